"""What people call the nodes, relations and classes of a graph, and which of them somebody means."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import AmbiguousNameError, DataError, EmptyNameError, UnknownNameError
from rgcn.graph import name_search
from rgcn.graph.knowledge_graph import KnowledgeGraph
from rgcn.graph.name_search import ENTRIES_AT_ONCE, SEARCH_FILES, Entries, NameSearch, Spelled, Written, folded
from rgcn.graph.vocabulary import NodeKind, Vocabulary
from rgcn.system.atomic_files import write_array
from rgcn.system.formatting import shortened
from rgcn.system.threads import in_order

# Relations whose literals name their subject, best first; an IRI's last part is compared.
NAMING_RELATIONS = ("prefLabel", "label", "name", "title")
LONGEST = 120
LONGEST_END = 40  # letters of the end of a long name that its title keeps: names often differ only there
LONGEST_SHORT_NAME = 64
LONGEST_ASKED = 9_000  # bytes of a name in the address of a request, which may hold three of them
BEGINNING = 100
QUICKLY_FOUND = 200_000  # names
SEARCHED_ON_DISK = 100_000  # nodes
ROWS_AT_ONCE = 1 << 20
TITLES = "search.titles.npy"
# What no percent-encoded name has: white space, a % that begins no escape, and letters and digits that nobody escapes.
_NOT_ENCODED = re.compile(r"\s|%(?![0-9A-Fa-f]{2})|%(?:3\d|[46][1-9A-Fa-f]|[57][0-9Aa])")


class Titles:
    """Readable names: a data set's own naming, a label in the graph, the last part of an IRI, a literal's text.

    Titles are for reading. Two nodes may have the same one; names stay what tells nodes apart. Percent-encoded names
    are decoded (`decoded`), unless that is the name of another node; long ones are cut.

    >>> kg = KnowledgeGraph.from_triples([("http://x.org/id7", "http://x.org/worksAt", "http://x.org/aifb")])
    >>> titles = Titles(kg, {0: "Ada Lovelace"})
    >>> titles.of(0), titles.of(1), titles.relation(0)
    ('Ada Lovelace', 'aifb', 'worksAt')
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        given: Mapping[int, str] | None = None,
        descriptions: Mapping[int, str] | None = None,
    ) -> None:
        """given, descriptions: from outside the graph; they come before what the graph itself says."""
        self.graph = graph
        self._given = given or {}
        self._descriptions = descriptions or {}

    def over(self, graph: KnowledgeGraph) -> Titles:
        """The titles of a larger graph that begins with the nodes of this one."""
        return Titles(graph, self._given, self._descriptions)

    def of(self, node: int) -> str:
        return self._title(node, self.graph.nodes[node])

    def many(self, nodes: NDArray[np.int64], names: list[str], lasts: list[str]) -> list[str]:
        """The titles of some nodes, whose names, and the last parts of these, are these."""
        found, kinds = list(lasts), self.graph.node_kinds
        other = np.array(["%" in last or len(last) > LONGEST for last in lasts], dtype=bool)
        if self._given:
            other |= np.isin(nodes, list(self._given))
        if kinds is not None:
            other |= (self._by_literal[nodes] >= 0) | (kinds[nodes] == NodeKind.LITERAL)
        for place in np.flatnonzero(other).tolist():
            found[place] = self._title(int(nodes[place]), names[place])
        return found

    def _title(self, node: int, name: str) -> str:
        found, kinds = self._given.get(node), self.graph.node_kinds
        if found or kinds is None:
            return found or readable(name, self.graph.nodes)
        literal = int(self._by_literal[node])
        if literal >= 0 or kinds[node] == NodeKind.LITERAL:
            return shortened(literal_text(name if literal < 0 else self.graph.nodes[literal]), LONGEST)
        return readable(name, self.graph.nodes)

    def literals(self, nodes: NDArray[np.int64]) -> list[str | None]:
        """The literal whose text is the title of each of some nodes, where there is one."""
        kinds, found = self.graph.node_kinds, np.full(len(nodes), None, dtype=object)
        if kinds is not None:
            of = self._by_literal[nodes].astype(np.int64)
            of = np.where((of < 0) & (kinds[nodes] == NodeKind.LITERAL), nodes, of)
            found[of >= 0] = self.graph.nodes.many(of[of >= 0])
        return list(found)

    @property
    def from_outside(self) -> bool:
        """Whether some are not the graph's own."""
        return bool(self._given)

    def description(self, node: int) -> str | None:
        return self._descriptions.get(node)

    def relation(self, relation: int) -> str:
        name = self.graph.relations[relation]
        return readable(name, self.graph.relations).strip("_") or name

    def class_(self, number: int) -> str:
        """A class is often a node too, the research group say, and then called as the node is."""
        node = self.graph.nodes.get(self.classes[number])
        return readable(self.classes[number], self.classes) if node is None else self.of(node)

    @property
    def classes(self) -> Vocabulary:
        if self.graph.labels is None:
            raise DataError("the graph has no classes: none of its nodes is labelled")
        return self.graph.labels.names

    @cached_property
    def _by_literal(self) -> NDArray[np.int32]:
        """int32 [N]: the literal of the graph that is a node's title, or -1."""
        folder = self.graph.search_folder
        if folder is not None and (folder / TITLES).is_file():
            return np.asarray(np.load(folder / TITLES, mmap_mode="r"))
        graph, found = self.graph, np.full(self.graph.num_nodes, -1, dtype=np.int32)
        relations = [local_name(name) for name in graph.relations]
        naming = np.array([(*NAMING_RELATIONS, name).index(name) for name in relations])
        is_naming = naming < len(NAMING_RELATIONS)
        starts = range(0, len(graph) if is_naming.any() else 0, ROWS_AT_ONCE)
        places = (np.flatnonzero(is_naming[graph.triples_at(slice(at, at + ROWS_AT_ONCE))[:, 1]]) + at for at in starts)
        rows = graph.triples_at(np.concatenate([np.empty(0, np.int64), *places]))
        rows = rows[graph.is_literal[rows[:, 2]]]
        literals, literal = np.unique(rows[:, 2], return_inverse=True)
        foreign, said = np.empty((2, len(literals)), dtype=bool)
        for first in range(0, len(literals), ENTRIES_AT_ONCE):
            names = graph.nodes.many(literals[first : first + ENTRIES_AT_ONCE])
            foreign[first : first + len(names)] = [not _is_english(name) for name in names]
            # Most begin with a letter; of the others it takes longer to tell.
            said[first : first + len(names)] = [name[1:2].isalnum() or bool(literal_text(name)) for name in names]
        # English and unmarked ones first of the best relation, then in the order of the graph; the first one stays.
        order = np.lexsort((foreign[literal], naming[rows[:, 1]])) if len(rows) else literal
        order = order[said[literal[order]]][::-1]
        found[rows[order, 0]] = rows[order, 2]
        return found


def local_name(name: str) -> str:
    """The part of an IRI after its last '#' or '/': what a person reads.

    >>> local_name("http://example.org/people#ada"), local_name('"a literal / with a slash"')
    ('ada', '"a literal / with a slash"')
    """
    if "://" not in name[:12] or name.startswith('"'):
        return name
    stem = name.rstrip("#/")
    return stem[max(stem.rfind("#"), stem.rfind("/")) + 1 :] or name


def decoded(name: str) -> str:
    """A name without its percent-encoding, where it clearly has one; else the name.

    Every % begins an escape, the escapes are UTF-8, they stand for nothing that needs none, and all can be shown.

    >>> decoded("libstdc%2B%2B6"), decoded("http://x.org/%C3%9Cberlingen"), decoded("50%off"), decoded("caf%E9")
    ('libstdc++6', 'http://x.org/Überlingen', '50%off', 'caf%E9')
    """
    if "%" not in name or name.startswith('"') or _NOT_ENCODED.search(name):
        return name
    try:
        text = unquote(name, errors="strict")
    except UnicodeDecodeError:
        return name
    return text if text.isprintable() and text == text.strip() else name


def readable(name: str, names: Container[str] = ()) -> str:
    """The last part of a name as people read it: decoded, unless that is another of the names, and not too long.

    >>> readable("http://x.org/AC%2FDC"), readable("a%20b", ["a%20b", "a b"])
    ('AC/DC', 'a%20b')
    """
    shown = local_name(name)
    if "%" in shown and decoded(name) not in names:
        shown = decoded(shown)
    return shown if len(shown) <= LONGEST else f"{shown[: LONGEST - LONGEST_END - 1]}…{shown[-LONGEST_END:]}"


def askable(name: str) -> str:
    """The name by which somebody asks: where it is too long for an address, its beginning and a checksum.

    `NameLookup` takes both.

    >>> askable("Bern"), len(askable("x" * 1_000_000))
    ('Bern', 143)
    """
    if len(name) < LONGEST_ASKED // 12 or len(quote(name, safe="", errors="surrogatepass")) <= LONGEST_ASKED:
        return name  # one letter takes twelve bytes at most
    return f"{name[:BEGINNING]}… [sha256 {sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}]"


def short_name(name: str) -> str:
    """What a person reads of a name: an IRI's last part, a literal's text; never longer than a line.

    >>> short_name("http://example.org/people#ada"), short_name('"42"^^<http://www.w3.org/2001/XMLSchema#integer>')
    ('ada', '42')
    """
    shown = name[1 : name.rindex('"')] if name.startswith('"') and '"' in name[1:] else local_name(name)
    return shortened(" ".join(shown.split()) or name, LONGEST_SHORT_NAME)


def literal_text(name: str) -> str:
    """What a literal says, of its N-Triples form.

    >>> literal_text('"42"^^<http://www.w3.org/2001/XMLSchema#integer>'), literal_text("plain")
    ('42', 'plain')
    """
    if not name.startswith('"') or '"' not in name[1:]:
        return name
    text = name[1 : name.rindex('"')]
    plain = re.sub(r"\\(.)", lambda escape: " " if escape[1] in "nrtbf" else escape[1], text)
    return " ".join(plain.split())


def _is_english(literal: str) -> bool:
    """English, or of no language."""
    language = "" if literal.endswith('"') else literal.rpartition('"')[2].lower()
    return not language.startswith("@") or language == "@en" or language.startswith("@en-")


# What people write without declaring it: prefixes and their namespaces.
_WELL_KNOWN = """
    rdf http://www.w3.org/1999/02/22-rdf-syntax-ns#    rdfs http://www.w3.org/2000/01/rdf-schema#
    owl http://www.w3.org/2002/07/owl#    xsd http://www.w3.org/2001/XMLSchema#    prov http://www.w3.org/ns/prov#
    skos http://www.w3.org/2004/02/skos/core#    foaf http://xmlns.com/foaf/0.1/    sh http://www.w3.org/ns/shacl#
    dc http://purl.org/dc/elements/1.1/    dcterms http://purl.org/dc/terms/    dct http://purl.org/dc/terms/
    dcat http://www.w3.org/ns/dcat#    schema http://schema.org/    schema https://schema.org/
    geo http://www.w3.org/2003/01/geo/wgs84_pos#    vcard http://www.w3.org/2006/vcard/ns#
    org http://www.w3.org/ns/org#    time http://www.w3.org/2006/time#    obo http://purl.obolibrary.org/obo/
    sosa http://www.w3.org/ns/sosa/    ssn http://www.w3.org/ns/ssn/    bot https://w3id.org/bot#
    brick https://brickschema.org/schema/Brick#    saref https://saref.etsi.org/core/    unit http://qudt.org/vocab/unit/
    dbo http://dbpedia.org/ontology/    dbr http://dbpedia.org/resource/    dbp http://dbpedia.org/property/
    wd http://www.wikidata.org/entity/    wdt http://www.wikidata.org/prop/direct/
"""
WELL_KNOWN = list(zip(_WELL_KNOWN.split()[::2], _WELL_KNOWN.split()[1::2], strict=True))


def expanded(text: str, declared: Mapping[str, list[str]]) -> Iterator[str]:
    """The IRIs that a short name stands for; `declared`: {prefix: its namespaces}, which come before well-known ones.

    >>> list(expanded("brick:hasQuantity", {})), list(expanded("ex:a", {"ex": ["http://x.org/"]}))
    (['https://brickschema.org/schema/Brick#hasQuantity'], ['http://x.org/a'])
    """
    prefix, colon, rest = text.partition(":")
    if colon and not rest.startswith("//"):
        spaces = declared.get(prefix) or [space for known, space in WELL_KNOWN if known == prefix.lower()]
        yield from (space + rest for space in spaces)


class Called:
    """The nodes, the relations or the classes of a graph, by what people call them.

    names     tell them apart
    title     what people read, of a number
    prefixes  namespaces of short names, which come before well-known ones
    """

    def __init__(
        self, names: Vocabulary, title: Callable[[int], str], prefixes: Mapping[str, list[str]] | None
    ) -> None:
        self._names, self._title, self._prefixes = names, title, prefixes or {}

    @cached_property
    def search(self) -> NameSearch:
        return NameSearch.of(self.written())

    def written(self) -> Iterator[Written]:
        """What an index of them is made of, a part at a time, best ones first."""
        return (Entries.of(self.spelled(some)).written() for some in self._parts())

    def _parts(self) -> list[NDArray[np.int64]]:
        order = self._best_first()
        return np.split(order, range(ENTRIES_AT_ONCE, len(order), ENTRIES_AT_ONCE))

    def _best_first(self) -> NDArray[np.int64]:
        """The order in which those that match equally well are found."""
        return np.arange(len(self._names))

    def _titles(self, some: NDArray[np.int64], names: list[str], lasts: list[str]) -> list[str]:
        """The titles of some, whose names, and the last parts of these, are these."""
        return list(map(self._title, some.tolist()))

    def _is_literal(self, number: int) -> bool:
        return False

    def spelled(self, some: NDArray[np.int64]) -> Iterator[Spelled]:
        """What each of some is called: by title, by name and its last part, by what follows a prefix."""
        names = self._names.many(some)
        lasts = list(map(local_name, names))
        titles = self._titles(some, names, lasts)
        for number, title, name, last in zip(some.tolist(), titles, names, lasts, strict=True):
            others = [":" + folded(name.partition(":")[2])] if _has_prefix(name) else []
            further = self._spellings(name) if "%" in name else (last,)
            others += [one for one in dict.fromkeys(further) if one is not title and one not in (title, name)]
            yield number, title, name, others

    def _spellings(self, name: str) -> tuple[str, ...]:
        """By which one is found beside its title: its name and the last part of it, as they are and decoded."""
        plain, last = decoded(name), local_name(name)
        return (name, last) if plain in self._names else (name, last, plain, decoded(last))

    def by_key(self, key: str) -> list[int]:
        """Those whose title, name or its last part is this, folded; where there are none, those of whose name it is
        what follows a prefix."""
        named, behind = (self._named(self.search.whole(word)) for word in (key, ":" + key))
        found = [n for n in named if key in map(folded, (self._title(n), *self._spellings(self._names[n])))]
        names = ((n, self._names[n]) for n in ([] if found else behind))
        return found or [n for n, name in names if _has_prefix(name) and folded(name.partition(":")[2]) == key]

    def candidates(self, text: str) -> list[int]:
        """All that a text may stand for: an exact name, else prefix:name, else a title or what an IRI ends with.

        Where there are none, the same of the decoded text: whoever asks may have it from an address.
        """
        return self._candidates(text) or (self._candidates(decoded(text)) if decoded(text) != text else [])

    def _candidates(self, text: str) -> list[int]:
        bare = text[1:-1] if text.startswith("<") and text.endswith(">") else text
        for exact in (text, bare):
            number = self._names.get(exact)
            if number is not None:
                return [number]
        if bare.endswith("]") and bare in self._cut:
            return [self._cut[bare]]
        iris = list(expanded(bare, self._prefixes))
        found = [number for iri in iris if (number := self._names.get(iri)) is not None]
        found = found or [number for iri in iris for number in self.by_key(folded(iri))]
        found = found or (self.by_key(folded(bare)) if text.strip() else [])
        if len(found) > 1:
            # A thing and the literal that names it have the same title: the thing is meant.
            found = [number for number in found if not self._is_literal(number)] or found
            same = [number for number in found if self._title(number) == bare]
            return same if len(same) == 1 else found
        return found

    def ids(self, texts: Iterable[str | int]) -> NDArray[np.int64]:
        return self._names.ids(texts if isinstance(texts, str) else map(self.meant, texts))

    def meant(self, text: str | int) -> int:
        """The one that a text stands for; an id stands for itself."""
        if not isinstance(text, str):
            return self._names.id(text)
        found = self.candidates(text)
        if len(found) == 1:
            return found[0]
        if not text.strip():
            raise EmptyNameError(self._names.kind, text)
        if found:
            raise AmbiguousNameError(self._names.kind, text, [askable(self._names[number]) for number in found])
        raise UnknownNameError(
            self._names.kind, text, (), list(map(self._clear, self._named(self.search.similar(text))))
        )

    def find(self, query: str, limit: int) -> list[int]:
        return self._named(self.search.find(query, limit))

    def _named(self, numbers: list[int]) -> list[int]:
        """What the index found, which may lie in a file: all of it has names."""
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(self._names):
            raise name_search.damaged_index()
        return numbers

    def _clear(self, number: int) -> str:
        """The title where it says who is meant, else the name."""
        title = self._title(number)
        return title if self.candidates(title) == [number] else askable(self._names[number])

    @cached_property
    def _cut(self) -> dict[str, int]:
        """Those whose names are too long to ask for, by what `askable` makes of these."""
        stored, every = self._names.stored, range(len(self._names))
        if stored is not None:
            every = np.flatnonzero(np.diff(stored.ends, prepend=0) >= LONGEST_ASKED // 12).tolist()
        names = ((number, self._names[number]) for number in every)
        return {cut: number for number, name in names if (cut := askable(name)) != name}


def _has_prefix(name: str) -> bool:
    return ":" in name and "://" not in name and not name.startswith(('"', "_:"))


class CalledNodes(Called):
    """The nodes, of which there may be millions, with an index that may lie in a folder."""

    def __init__(self, titles: Titles) -> None:
        super().__init__(titles.graph.nodes, titles.of, titles.graph.metadata.get("prefixes"))
        self._of, self._graph = titles, titles.graph

    @cached_property
    def search(self) -> NameSearch:
        folder = None if self._of.from_outside else self._graph.search_folder
        return NameSearch.of(self.written()) if folder is None else NameSearch.opened(folder)

    def written(self) -> Iterator[Written]:
        if self._of.from_outside or self._names.stored is None or len(self._names) < SEARCHED_ON_DISK:
            return super().written()
        return (found for _, found in in_order(self._parts(), self._written_in_columns))

    def _written_in_columns(self, some: NDArray[np.int64]) -> Written:
        from rgcn.graph.spelling import joined, spell_plain  # brings polars

        texts, keys, who = spell_plain(self._names.many(some), self._of.literals(some))
        if not texts.null_count():
            return Written.of(joined(texts), some, joined(keys), some[who])
        rest = Entries.of(self.spelled(some[texts.is_null().to_numpy()]))
        others, owners = iter(rest.texts), np.concatenate([some[who], np.asarray(rest.owners, np.int64)])
        every = [next(others) if text is None else text for text in texts]
        return Entries(some, every, [*keys, *rest.keys], owners).written()

    def _best_first(self) -> NDArray[np.int64]:
        # Literals last: who types a part of a name looks for a thing rather than for a text that mentions it.
        return np.lexsort((-self._graph.degrees(), self._graph.is_literal))  # stable: equal ones in the graph's order

    def _titles(self, some: NDArray[np.int64], names: list[str], lasts: list[str]) -> list[str]:
        return self._of.many(some, names, lasts)

    def _is_literal(self, number: int) -> bool:
        return self._graph.kind(number) is NodeKind.LITERAL


class NameLookup:
    """From what people type to ids: by name, in angle brackets, as prefix:name, by title or the last part of an IRI.

    Case decides only where it must. Prefixes are those that the graph's files declare, and well-known ones.

    What is not there is answered with what is spelled alike (`UnknownNameError.suggestions`), what several are called
    with all of them (`AmbiguousNameError.names`). Everything is made when it is first needed, and once: an exact name
    asks a dictionary and nothing else; the first wrong one waits for an index, further ones cost a millisecond.

    >>> from rgcn.graph import KnowledgeGraph
    >>> kg = KnowledgeGraph.from_triples([("http://x.org/id7", "http://x.org/worksAt", "http://x.org/aifb")])
    >>> names = NameLookup(Titles(kg, {0: "Ada Lovelace"}))
    >>> names.node("ada lovelace"), names.node("AIFB"), names.node("<http://x.org/aifb>"), names.relation("worksat")
    (0, 1, 1, 0)
    >>> names.find("love")
    [0]
    >>> names.node("Ada Lovelance")
    Traceback (most recent call last):
    rgcn.errors.UnknownNameError: unknown node 'Ada Lovelance'. Did you mean 'Ada Lovelace'?
    """

    def __init__(self, titles: Titles) -> None:
        self._titles, prefixes = titles, titles.graph.metadata.get("prefixes")
        self._nodes, self._relations = CalledNodes(titles), Called(titles.graph.relations, titles.relation, prefixes)
        self.node, self.relation, self.node_ids = self._nodes.meant, self._relations.meant, self._nodes.ids

    @cached_property
    def _classes(self) -> Called:
        return Called(self._titles.classes, self._titles.class_, self._titles.graph.metadata.get("prefixes"))

    def class_(self, text: str) -> int:
        return self._classes.meant(text)

    def nodes(self, text: str) -> list[int]:
        """All nodes that somebody may mean: none or several where `node` would raise, and no suggestions."""
        return self._nodes.candidates(text)

    def find(self, query: str, limit: int = 10) -> list[int]:
        """Nodes by a part of their name or title, best first."""
        return self._nodes.find(query, limit)

    @property
    def finds_quickly(self) -> bool:
        """Whether `find` keeps nobody waiting: among very many names, a strange question may take tens of ms."""
        return len(self._nodes.search.ids) <= QUICKLY_FOUND

    def prepare(self) -> None:
        """Make everything now, so that nobody waits for it later: for a server."""
        classes = [] if self._titles.graph.labels is None else [self._classes]
        for called in (self._nodes, self._relations, *classes):
            _ = called.search, called._cut


def write_search(graph: KnowledgeGraph, folder: Path) -> list[str]:
    """Write what finds nodes by a part of their name, and their titles, into the folder of a stored graph.

    The files' names; none of a small graph, whose index is made sooner than opened.
    """
    if graph.num_nodes < SEARCHED_ON_DISK:
        return []
    titles = Titles(graph)
    if graph.node_kinds is not None:
        write_array(folder / TITLES, np.int32, (graph.num_nodes,), [titles._by_literal])
    NameSearch.write(CalledNodes(titles).written(), folder)
    return [*([TITLES] if graph.node_kinds is not None else []), *SEARCH_FILES]
