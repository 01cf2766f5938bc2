"""The command line: it parses, calls, and prints."""

from rgcn.cli import model_commands as model_commands  # it registers its commands
from rgcn.cli import study_commands as study_commands  # likewise
from rgcn.cli.commands import main as main
