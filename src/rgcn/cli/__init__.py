"""The command line: it parses, calls, and prints."""

from __future__ import annotations

import signal
import sys
import warnings
from pathlib import Path
from typing import TextIO

from rgcn.errors import RgcnError, StoppedError


def main() -> None:
    """Entry point of `rgcn`: what a user did wrong is said in a sentence, without a traceback."""
    from rgcn.cli.app import app

    warnings.showwarning = _say_warning
    try:
        app()
    except RgcnError as error:
        print(f"rgcn: {error}", file=sys.stderr)
        sys.exit(error.exit_code if isinstance(error, StoppedError) else 1)
    except KeyboardInterrupt:
        print("rgcn: interrupted", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:  # the reader of our output, `head` say, has seen enough
        sys.stderr.close()
        sys.exit(0)


def _say_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of ours is a sentence for the user; where in our code it came from tells them nothing."""
    ours = issubclass(category, UserWarning) and "rgcn" in Path(filename).parts
    words = f"rgcn: {message}\n" if ours else warnings.formatwarning(message, category, filename, lineno, line)
    sys.stderr.write(words)
