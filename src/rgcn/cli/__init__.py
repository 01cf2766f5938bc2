"""The command line: it parses, calls, and prints."""

from rgcn.cli import options as options  # it registers the commands
from rgcn.cli.commands import main as main
