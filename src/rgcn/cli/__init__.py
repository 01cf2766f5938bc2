"""The command line: it parses, calls, and prints."""

from rgcn.cli.app import main

__all__ = ["main"]
