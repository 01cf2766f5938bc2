"""The command line: it parses, calls, and prints."""

from rgcn.cli.commands import main as main
