"""Compute the search entries and spellings of many plain ASCII names at once, as columns of polars.

The result is that of `local_name`, `literal_text`, `normalize_name` and `NameResolver.spellings`: change both together;
a property test compares them. Names that are not ASCII, may be percent-encoded, have escapes, or have a very long last
part are left to these functions.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rgcn.graph.name_search import EDGE, MAX_NAME_LENGTH, JoinedTexts
from rgcn.graph.titles import MAX_TITLE_LENGTH

_SPACES = r"[\s\x1c-\x1f]+"
_NORMALIZED = r"[_\s\x1c-\x1f]"  # what normalization changes, apart from case
_UNUSUAL_SPACES = r"^ | $|  |[\t-\r\x1c-\x1f]"


def spell_plain(names: list[str], literals: list[str | None]) -> tuple[pl.Series, pl.Series, NDArray[np.int64]]:
    """Compute what the name search indexes for plain names: a text to search in, and spellings to look up.

    Args:
        names: Names of nodes; the name of a literal is its N-Triples form.
        literals: For each name the literal whose text is its title, which may be the name itself; None if the last part
            of the name is its title.

    Returns:
        The text in which `NameSearch` looks for parts of each name, None if the name is not plain [num_names]; the
        normalized spellings of plain names [n]; and for each spelling the position of its name, int64 [n].
    """
    name, literal, last, title, begins = map(pl.col, ("name", "literal", "last", "title", "begins"))
    is_literal, stem = name.str.starts_with('"'), name.str.strip_chars_end("#/")
    is_iri = name.str.head(12).str.contains("://", literal=True) & ~is_literal
    frame = pl.DataFrame({"name": names, "literal": literals}, schema=dict.fromkeys(("name", "literal"), pl.String))
    frame = frame.with_columns(
        last=pl.when(is_iri).then(stem.str.split("/").list.last().str.split("#").list.last()).otherwise(name),
        text=_one_spaced(literal.str.extract('(?s)^"(.*)"')).fill_null(literal),
    ).with_columns(title=pl.coalesce(_shortened(pl.col("text")), last), begins=name.str.head(MAX_NAME_LENGTH))
    both = pl.concat_str(name, literal.fill_null(""))
    plain = (name != "") & (literal.fill_null("-") != "") & (both.str.len_bytes() == both.str.len_chars())
    plain &= is_literal | ~name.str.contains("%", literal=True)
    has_escapes = literal.str.contains("\\", literal=True)
    plain &= pl.when(literal.is_null()).then(last.str.len_bytes() <= MAX_TITLE_LENGTH).otherwise(~has_escapes)
    has_prefix = name.str.contains(":", literal=True) & ~name.str.contains('^"|^_:|://')
    unusual = any(frame.select(pl.col("name", "literal").str.contains(_NORMALIZED).any()).row(0))

    def normalized(text: pl.Expr) -> pl.Expr:
        lowered = text.str.to_lowercase()
        return _one_spaced(lowered.str.replace_all("_", " ", literal=True)) if unusual else lowered

    spellings = frame.select(
        plain.alias("plain"),
        normalized(title).alias("title"),
        normalized(pl.when(begins != title).then(begins)).alias("name"),
        (":" + normalized(pl.when(has_prefix).then(name).str.replace("^[^:]*:", ""))).alias("prefix"),
        normalized(pl.when((last != title) & (last != name)).then(last)).alias("last"),
        normalized(pl.when(name != begins).then(name)).alias("whole"),
    )
    pieces = [EDGE + pl.col(piece) + EDGE for piece in ("title", "name")]
    entries = spellings.select(pl.when("plain").then(pl.concat_str(pieces, ignore_nulls=True))).to_series()
    keys = spellings.with_row_index("position").filter("plain").drop("plain").unpivot(index="position").drop_nulls()
    return entries, keys["value"], keys["position"].to_numpy().astype(np.int64)


def joined_series(texts: pl.Series) -> JoinedTexts:
    """Return plain texts as one: (their UTF-8 bytes, number of bytes of each text)."""
    return texts.str.join("").item().encode(), texts.str.len_bytes().to_numpy().astype(np.int64)


def _one_spaced(text: pl.Expr) -> pl.Expr:
    """Replace runs of white space by one space and strip it. Texts that need no change are skipped, which is faster."""
    messy = pl.when(text.str.contains(_UNUSUAL_SPACES)).then(text)
    return pl.coalesce(messy.str.replace_all(_SPACES, " ").str.strip_chars(" "), text)


def _shortened(text: pl.Expr) -> pl.Expr:
    cut = text.str.head(MAX_TITLE_LENGTH - 1).str.strip_chars_end(" ") + "…"
    return pl.when(text.str.len_bytes() > MAX_TITLE_LENGTH).then(cut).otherwise(text)
