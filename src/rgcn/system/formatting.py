"""Format numbers, times, sizes and settings as text, the same way in tables, pages and messages.

Also consoles that are safe from control characters: a name read from a file is shown on a terminal, but cannot move its
cursor or clear its screen.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from rich.console import Console

# Characters that HTML and XML forbid, and surrogates, which cannot be encoded.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def format_duration(seconds: float) -> str:
    """Format a measured time: three digits below a minute, then minutes or hours.

    >>> [format_duration(seconds) for seconds in (0.000812, 0.0123, 0.9996, 2.5, 12.34, 75, 3180, 7199)]
    ['812 µs', '12.3 ms', '1 s', '2.5 s', '12.3 s', '1 min 15 s', '53 min', '2 h']
    """
    if seconds <= 0:
        return "0 s"
    for unit, size, limit in (("µs", 1e-6, 1000), ("ms", 1e-3, 1000), ("s", 1.0, 60)):
        if _rounded(seconds / size) < limit:
            return f"{format_number(seconds / size)} {unit}"
    minutes, rest = divmod(round(seconds), 60)
    return _minutes(round(seconds / 60)) if minutes >= 60 or not rest else f"{minutes} min {rest} s"


def format_rough_duration(seconds: float) -> str:
    """Format an estimated time, such as the rest of a training, with few digits.

    >>> [format_rough_duration(seconds) for seconds in (1.234, 75, 180, 4800)]
    ['1.2 s', '75 s', '3 min', '1 h 20 min']
    """
    return _minutes(round(seconds / 60)) if seconds >= 90 else f"{seconds:.{1 if seconds < 9.95 else 0}f} s"


def _minutes(minutes: int) -> str:
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours:,} h {rest} min" if rest else f"{hours:,} h"


def format_bytes(size: float) -> str:
    """Format a number of bytes with three digits, in MiB or GiB.

    >>> format_bytes(3 * 2**20), format_bytes(818.4 * 2**20), format_bytes(5.594 * 2**30), format_bytes(1000 * 2**20)
    ('3 MiB', '818 MiB', '5.59 GiB', '0.977 GiB')
    """
    mebibytes = size / 2**20
    return f"{format_number(mebibytes)} MiB" if _rounded(mebibytes) < 1000 else f"{format_number(size / 2**30)} GiB"


def format_count(number: int, word: str) -> str:
    """Format a number with its noun in singular or plural.

    >>> format_count(1, "node"), format_count(1200, "class")
    ('1 node', '1,200 classes')
    """
    plural = word if number == 1 else word + ("es" if word.endswith(("s", "x")) else "s")
    return f"{number:,} {plural}"


def format_number(ratio: float) -> str:
    """Format a number with three digits.

    >>> format_number(1.83), format_number(13.9), format_number(4484.7)
    ('1.83', '13.9', '4,485')
    """
    return f"{ratio:.3g}" if _rounded(ratio) < 1000 else f"{ratio:,.0f}"


def format_percent(share: float) -> str:
    """Format a probability or a share in percent, never as 0 % or 100 %.

    >>> [format_percent(share) for share in (0.9756, 0.314, 0.0123, 0.00004, 0.99987)]
    ['98 %', '31 %', '1.2 %', 'under 0.1 %', 'over 99.9 %']
    """
    if share >= 0.9995:
        return "over 99.9 %"
    if share < 0.0005:
        return "under 0.1 %"
    decimals = 1 if share < 0.0995 or share >= 0.9895 else 0
    return f"{100 * share:.{decimals}f} %"


def format_setting(value: Any) -> str:
    """Format a setting as a YAML configuration file has it.

    >>> [format_setting(value) for value in (None, True, 1.0, 0.1 + 0.2, 7000, ["files"], {"train": "a.tsv"})]
    ['null', 'true', '1.0', '0.3', '7000', '[files]', '{train: a.tsv}']
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return str(float(f"{value:.6g}"))
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {format_setting(inner)}' for key, inner in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(format_setting, value))}]"
    return str(value)


def shorten(text: str, max_length: int) -> str:
    """Cut a text to at most `max_length` characters, the last of which is then an ellipsis.

    >>> shorten("Switzerland", 6)
    'Switz…'
    """
    return text if len(text) <= max_length else text[: max_length - 1].rstrip() + "…"


def _rounded(value: float) -> float:
    """Round to the three digits that are shown, which decide about the unit: 0.9996 s is 1 s, not 1000 ms."""
    return float(f"{value:.3g}")


def replace_unprintable(text: str) -> str:
    r"""Replace characters that neither pages nor terminals can show.

    >>> replace_unprintable("nul\x00l")
    'nul�l'
    """
    return _UNPRINTABLE.sub("\ufffd", text)


T = TypeVar("T")
MAX_TABLE_ROWS = 100


def html_table(rows: Sequence[Mapping[str, Any]], caption: str = "") -> str:
    """Format rows as an HTML table for a notebook, at most the first `MAX_TABLE_ROWS`.

    Args:
        rows: Mappings with the same keys, which become the header.
        caption: Text above the table.

    >>> html_table([{"node": "<b>", "score": 0.12345}])
    '<table><thead><tr><th>node</th><th>score</th></tr></thead><tbody><tr><td>&lt;b&gt;</td><td>0.1235</td></tr></tbody></table>'
    """

    def line(cells: Sequence[Any], tag: str) -> str:
        texts = (f"{cell:.4g}" if isinstance(cell, float) else "" if cell is None else str(cell) for cell in cells)
        return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"

    more = f" (the first {MAX_TABLE_ROWS} of {len(rows):,})" if len(rows) > MAX_TABLE_ROWS else ""
    head = f"<thead>{line([*rows[0]], 'th')}</thead>" if rows else ""
    body = "".join(line([*row.values()], "td") for row in rows[:MAX_TABLE_ROWS])
    title = f"<caption>{escape(caption + more)}</caption>" if caption or more else ""
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


class Rows(list[T]):
    """A list of named tuples that a notebook shows as a table."""

    def _repr_html_(self) -> str:
        rows = [row._asdict() for row in self]  # type: ignore[attr-defined]
        return html_table([{key: cell for key, cell in row.items() if not isinstance(cell, dict)} for row in rows])


def visible_text(text: str) -> str:
    r"""Replace control characters, by which text could change what a terminal shows elsewhere.

    >>> visible_text("a\x1b[2Jb\rc\n")
    'a�[2Jb�c\n'
    """
    return replace_unprintable(text).replace("\r", "\ufffd")


def text_console(**settings: Any) -> Console:
    """Create a rich console that shows the control characters of texts, but obeys its own.

    Args:
        **settings: Arguments of `rich.console.Console`.
    """
    from rich import console as rich_console
    from rich.segment import Segment

    class TextConsole(rich_console.Console):
        def render(self, renderable: Any, options: Any = None) -> Iterator[Any]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible_text(segment.text), segment.style)

    return TextConsole(**settings)


class _VisibleTextStream:
    """A stream that replaces control characters. Consoles of rich bypass it through `rich_proxied_file`."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(visible_text(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "writelines"):  # bypass `write`; click uses `buffer` under some locales
            raise AttributeError(name)
        return getattr(self.rich_proxied_file, name)


@contextmanager
def safe_output() -> Iterator[None]:
    """Replace control characters in all that is written to standard output and standard error meanwhile."""
    out, err = (stream and cast(Any, _VisibleTextStream(stream)) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield
