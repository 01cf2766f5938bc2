"""What reaches a terminal: names from files are shown, and can do nothing to it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, cast

from rgcn.system.formatting import printable

if TYPE_CHECKING:
    from rich.console import Console


def shown(text: str) -> str:
    """Text without characters that a terminal takes for orders, or goes back with.

    >>> shown("a\\x1b[2Jb\\rc\\n")
    'a�[2Jb�c\\n'
    """
    return printable(text).replace("\r", "\ufffd")


def text_console(**settings: Any) -> Console:
    """Rich's console: its own colors and movements pass, those in texts do not."""
    from rich import console as rich_console
    from rich.segment import Segment

    class TextConsole(rich_console.Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Any]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(shown(segment.text), segment.style)

    return TextConsole(**settings)


class _Shown:
    """A stream whose text is only shown. Consoles of rich write around it, by `rich_proxied_file`."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(shown(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):  # ways around `write`; click takes the first where it mistrusts a locale
            raise AttributeError(name)
        return getattr(self.rich_proxied_file, name)


@contextmanager
def safe_output() -> Iterator[None]:
    """Standard output and standard error, through which no text gives a terminal orders."""
    out, err = (None if stream is None else cast(Any, _Shown(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield
