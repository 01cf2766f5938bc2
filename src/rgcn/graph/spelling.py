"""What plain names are called, many at a time: what `titles` and `name_search` say of ASCII, in columns of polars.

Whoever changes `local_name`, `literal_text`, `folded` or what somebody may be called changes it here too; a property
test compares them. Names that are not ASCII, that may be percent-encoded or have escapes, or whose last part is cut for
its length, are left to Python.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.graph.name_search import EDGE, LONGEST_NAME, Joined

LONGEST_TITLE = 120  # letters
_SPACES = r"[\s\x1c-\x1f]+"
_CHANGED = r"[_\s\x1c-\x1f]"  # what folding changes beside case
_UNUSUAL_SPACES = r"^ | $|  |[\t-\r\x1c-\x1f]"


def spell_plain(names: list[str], literals: list[str | None]) -> tuple[pl.Series, pl.Series, NDArray[np.int64]]:
    """Spell n names.

    Args:
        names: The N-Triples form of a literal, or any other name.
        literals: For each name the literal whose text is its title, which may be itself; None: its last part is.

    Returns:
        The entry of each name in an index, None of one that is not plain; what the plain ones may be called, [k]; and
        the place in `names` of whom each of these calls, int64 [k].
    """
    name, literal, last, title, begins = map(pl.col, ("name", "literal", "last", "title", "begins"))
    is_literal, stem = name.str.starts_with('"'), name.str.strip_chars_end("#/")
    is_iri = name.str.head(12).str.contains("://", literal=True) & ~is_literal
    frame = pl.DataFrame({"name": names, "literal": literals}, schema=dict.fromkeys(("name", "literal"), pl.String))
    frame = frame.with_columns(
        last=pl.when(is_iri).then(stem.str.split("/").list.last().str.split("#").list.last()).otherwise(name),
        text=_one_spaced(literal.str.extract('(?s)^"(.*)"')).fill_null(literal),
    ).with_columns(title=pl.coalesce(_shortened(pl.col("text")), last), begins=name.str.head(LONGEST_NAME))
    both = pl.concat_str(name, literal.fill_null(""))
    plain = (name != "") & (literal.fill_null("-") != "") & (both.str.len_bytes() == both.str.len_chars())
    plain &= is_literal | ~name.str.contains("%", literal=True)
    has_escapes = literal.str.contains("\\", literal=True)
    plain &= pl.when(literal.is_null()).then(last.str.len_bytes() <= LONGEST_TITLE).otherwise(~has_escapes)
    has_prefix = name.str.contains(":", literal=True) & ~name.str.contains('^"|^_:|://')
    unusual = any(frame.select(pl.col("name", "literal").str.contains(_CHANGED).any()).row(0))
    fold = _folded if unusual else _lowered
    found = frame.select(
        plain.alias("plain"),
        fold(title).alias("title"),
        fold(pl.when(begins != title).then(begins)).alias("name"),
        (":" + fold(pl.when(has_prefix).then(name).str.replace("^[^:]*:", ""))).alias("prefix"),
        fold(pl.when((last != title) & (last != name)).then(last)).alias("last"),
        fold(pl.when(name != begins).then(name)).alias("whole"),
    )
    pieces = [EDGE + pl.col(piece) + EDGE for piece in ("title", "name")]
    entries = found.select(pl.when("plain").then(pl.concat_str(pieces, ignore_nulls=True))).to_series()
    keys = found.with_row_index("who").filter("plain").drop("plain").unpivot(index="who").drop_nulls()
    return entries, keys["value"], keys["who"].to_numpy().astype(np.int64)


def joined(texts: pl.Series) -> Joined:
    """Plain texts back to back, and how many bytes each has."""
    return texts.str.join("").item().encode(), texts.str.len_bytes().to_numpy().astype(np.int64)


def _one_spaced(text: pl.Expr) -> pl.Expr:
    """One space for any white space, none around; most have none to change, which is told sooner than it is changed."""
    messy = pl.when(text.str.contains(_UNUSUAL_SPACES)).then(text)
    return pl.coalesce(messy.str.replace_all(_SPACES, " ").str.strip_chars(" "), text)


def _lowered(text: pl.Expr) -> pl.Expr:
    return text.str.to_lowercase()


def _folded(text: pl.Expr) -> pl.Expr:
    return _one_spaced(text.str.replace_all("_", " ", literal=True).str.to_lowercase())


def _shortened(text: pl.Expr) -> pl.Expr:
    cut = text.str.head(LONGEST_TITLE - 1).str.strip_chars_end(" ") + "…"
    return pl.when(text.str.len_bytes() > LONGEST_TITLE).then(cut).otherwise(text)
