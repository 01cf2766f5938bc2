"""The command line: it parses, calls, and prints."""

from __future__ import annotations

import sys

from rgcn.errors import RgcnError


def main() -> None:
    """Entry point of `rgcn`: what a user did wrong is said in a sentence, without a traceback."""
    from rgcn.cli.app import app

    try:
        app()
    except RgcnError as error:
        print(f"rgcn: {error}", file=sys.stderr)
        sys.exit(1)
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        sys.stderr.close()
        sys.exit(0)
