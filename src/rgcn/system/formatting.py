"""What people read: numbers, times, memory and settings as text, one way each, for tables, pages and messages alike.

And consoles that no text can give orders: names from files are shown on a terminal, and can do nothing to it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from rich.console import Console

# Characters that HTML and XML forbid, and halves of characters that cannot be written to a file at all.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def duration(seconds: float) -> str:
    """A time that was measured: three figures below a minute, then minutes or hours.

    >>> [duration(seconds) for seconds in (0.000812, 0.0123, 0.9996, 2.5, 12.34, 75, 3180, 7199)]
    ['812 µs', '12.3 ms', '1 s', '2.5 s', '12.3 s', '1 min 15 s', '53 min', '2 h']
    """
    if seconds <= 0:
        return "0 s"
    for unit, size, most in (("µs", 1e-6, 1000), ("ms", 1e-3, 1000), ("s", 1.0, 60)):
        if _rounded(seconds / size) < most:
            return f"{times(seconds / size)} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    return _minutes(round(seconds / 60)) if minutes >= 60 or not rest else f"{minutes} min {rest} s"


def rough_duration(seconds: float) -> str:
    """A time that is only guessed, such as what is left of a training: no more figures than are meant.

    >>> [rough_duration(seconds) for seconds in (1.234, 75, 180, 4800)]
    ['1.2 s', '75 s', '3 min', '1 h 20 min']
    """
    return _minutes(round(seconds / 60)) if seconds >= 90 else f"{seconds:.{1 if seconds < 9.95 else 0}f} s"


def _minutes(minutes: int) -> str:
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours:,} h {rest} min" if rest else f"{hours:,} h"


def memory(size: float) -> str:
    """Bytes in the unit that suits them, three figures.

    >>> memory(3 * 2**20), memory(818.4 * 2**20), memory(5.594 * 2**30), memory(1000 * 2**20)
    ('3 MiB', '818 MiB', '5.59 GiB', '0.977 GiB')
    """
    mebibytes = size / 2**20
    return f"{times(mebibytes)} MiB" if _rounded(mebibytes) < 1000 else f"{times(size / 2**30)} GiB"


def count(number: int, word: str) -> str:
    """
    >>> count(1, "node"), count(1200, "class")
    ('1 node', '1,200 classes')
    """
    plural = word if number == 1 else word + ("es" if word.endswith(("s", "x")) else "s")
    return f"{number:,} {plural}"


def times(ratio: float) -> str:
    """Three figures.

    >>> times(1.83), times(13.9), times(4484.7)
    ('1.83', '13.9', '4,485')
    """
    return f"{ratio:.3g}" if _rounded(ratio) < 1000 else f"{ratio:,.0f}"


def percent(share: float) -> str:
    """A probability or a share: never quite nothing and never quite everything.

    >>> [percent(share) for share in (0.9756, 0.314, 0.0123, 0.00004, 0.99987)]
    ['98 %', '31 %', '1.2 %', 'under 0.1 %', 'over 99.9 %']
    """
    if share >= 0.9995:
        return "over 99.9 %"
    if share < 0.0005:
        return "under 0.1 %"
    places = 1 if share < 0.0995 or share >= 0.9895 else 0
    return f"{100 * share:.{places}f} %"


def setting(value: Any) -> str:
    """A setting as a configuration file has it.

    >>> [setting(value) for value in (None, True, 1.0, 0.1 + 0.2, 7000, ["files"], {"train": "a.tsv"})]
    ['null', 'true', '1.0', '0.3', '7000', '[files]', '{train: a.tsv}']
    """
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float):
        return str(float(f"{value:.6g}"))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {setting(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(setting, value))}]"
    return str(value)


def shortened(text: str, letters: int) -> str:
    """
    >>> shortened("Switzerland", 6)
    'Switz…'
    """
    return text if len(text) <= letters else text[: letters - 1].rstrip() + "…"


def _rounded(value: float) -> float:
    """What is shown decides about the unit: 0.9996 s is 1 s, not 1000 ms."""
    return float(f"{value:.3g}")


def printable(text: str) -> str:
    """Text without characters that no page and no terminal shows.

    >>> printable("nul\\x00l")
    'nul�l'
    """
    return _UNPRINTABLE.sub("\ufffd", text)


T = TypeVar("T")
MOST_ROWS = 100


def html_table(rows: Sequence[Mapping[str, Any]], caption: str = "") -> str:
    """Rows of the same columns for a notebook, the first hundred of them.

    >>> html_table([{"node": "<b>", "score": 0.12345}])
    '<table><thead><tr><th>node</th><th>score</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td>0.1235</td></tr></tbody></table>'
    """

    def line(cells: Sequence[Any], tag: str) -> str:
        shown = (f"{cell:.4g}" if isinstance(cell, float) else "" if cell is None else str(cell) for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in shown)}</tr>"

    more = f" (the first {MOST_ROWS} of {len(rows):,})" if len(rows) > MOST_ROWS else ""
    head = f"<thead>{line([*rows[0]], 'th')}</thead>" if rows else ""
    body = "".join(line([*row.values()], "td") for row in rows[:MOST_ROWS])
    words = f"<caption>{escape(caption + more)}</caption>" if caption or more else ""
    return f"<table>{words}{head}<tbody>{body}</tbody></table>"


class Rows(list[T]):
    """A list of named tuples, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [row._asdict() for row in self]  # type: ignore[attr-defined]
        return html_table([{key: cell for key, cell in row.items() if not isinstance(cell, dict)} for row in rows])


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
