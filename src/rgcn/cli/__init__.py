"""The command line: parse the arguments, call the library, and print the results."""

from rgcn.cli import options as options  # it registers the commands
from rgcn.cli.commands import main as main
