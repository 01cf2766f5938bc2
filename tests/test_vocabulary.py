"""Identifiers and text use the field's words and American spelling: words that the style guide rules out are absent."""

from __future__ import annotations

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = sorted((ROOT / "src" / "rgcn").rglob("*.py"))
FOLDERS = ("tests", "tools", "benchmarks", "examples")
SCRIPTS = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) if path != Path(__file__)]
SOURCES = [*PACKAGE, *SCRIPTS]
SITE = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
DOCUMENTS = [*SITE, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
PAGE_SUFFIXES = (".css", ".html", ".js", ".json", ".md", ".yaml")
PAGES = [path for path in sorted((ROOT / "src" / "rgcn").rglob("*")) if path.suffix in PAGE_SUFFIXES]

# Whole identifiers, with the words that replace them.
IDENTIFIERS = {
    "Axis": "Registry",
    "FEW": "a named setting with its unit",
    "MOST": "MAX_...",
    "added_up": "all_reduce",
    "asked": "questions, options",
    "beside": "extra_state",
    "figures": "metrics",
    "footprint": "resource_estimate",
    "give_back": "release",
    "handed": "arguments",
    "hear_all": "all_reduce",
    "heard": "messages",
    "hears": "has_messages",
    "house": "package",
    "last_words": "error",
    "let_go": "release",
    "leveled": "normalized",
    "mine": "local",
    "on_epoch": "on_report",
    "room": "subpackage, free memory",
    "rooms": "subpackages",
    "said": "message",
    "settled": "resolved",
    "standing": "scores",
    "strange": "has_nan",
    "told": "message",
}
CLASSES = {
    "Asking",
    "Crew",
    "Desk",
    "Gate",
    "Heard",
    "Marks",
    "Permitted",
    "Served",
    "Shown",
    "TripleStanding",
}
# Phrases of comments, docstrings, messages and documents. The README may explain "the model that comes with rgcn" once.
PHRASES = (
    "added up",
    "by heart",
    "comes with rgcn",
    "give back",
    "go on from",
    "goes on from",
    "lets go",
    "let go of",
    "nobody",
    "shipped model",
    "told apart",
    "told from",
    "what moves them",
    "whoever",
)


# Beginnings of words in British spelling. Words of the first set are names of other projects, titles and old keys.
ALLOWED_WORDS = {
    "conversion.py": {"labelled"},
    "test_conversion.py": {"labelled"},
    "upgrading.md": {"labelled", "licence"},
    "universal_network.py": {"towards"},
    "catalog.json": {"licence"},
}
BRITISH = (
    *(
        "aluminium",
        "analys(?:e[drs]?\\b|ing)",
        "artefact",
        "behaviour",
        "cancell(?:able|ed|ing)",
        "catalogue",
        "centre",
    ),
    *("channell", "colour", "defence", "favour", "fibre", "flavour", "fulfil(?!l)", "grey", "honour", "judgement"),
    *(
        "labell(?!edby)",
        "labour",
        "learnt",
        "levell",
        "licence",
        "metre",
        "modell(?:ed|er|ing)",
        "neighbour",
        "programme\\b",
    ),
    *("rumour", "signall", "spelt", "towards", "travell", "tunnell", "unlabell", "whilst"),
    r"\w+(?:al|an|ar|as|er|gn|il|im|ol|on|or|ym)is(?:e[drs]?\b|ing\b|ations?\b)",
)
BRITISH_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(BRITISH)})[a-z]*")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_identifiers_contain_no_ruled_out_words(path: Path) -> None:
    text = path.read_text("utf-8")
    names = {
        token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.NAME
    }
    assert names & (IDENTIFIERS.keys() | CLASSES) == set()


@pytest.mark.parametrize("path", [*SOURCES, *DOCUMENTS], ids=relative)
def test_text_uses_no_private_phrases(path: Path) -> None:
    text = re.sub(r"\s*\n\s*#?\s*", " ", path.read_text("utf-8")).lower()
    text = text.replace("model that comes with rgcn", "", 1) if path.name == "README.md" else text
    assert [phrase for phrase in PHRASES if re.search(rf"\b{phrase}\b", text)] == []


@pytest.mark.parametrize("path", [*SOURCES, *DOCUMENTS, *PAGES], ids=relative)
def test_spelling_is_american(path: Path) -> None:
    words = set(BRITISH_WORD.findall(path.read_text("utf-8").lower()))
    assert words - ALLOWED_WORDS.get(path.name, set()) - {"cancellederror"} == set()
