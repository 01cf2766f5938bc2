"""Readable titles of nodes, relations and classes, and the ids that a typed text stands for."""

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
from rgcn.graph.name_search import BLOCK_ENTRIES, IndexPart, NameSearch, checked, joined, normalize_name
from rgcn.graph.vocabulary import NodeKind, Vocabulary
from rgcn.system.atomic_files import write_array
from rgcn.system.formatting import shorten
from rgcn.system.threads import map_in_threads

# Relations whose literals are titles of their subjects, best first; compared with the last part of the relation's IRI.
NAMING_RELATIONS = ("prefLabel", "label", "name", "title")
MAX_TITLE_LENGTH = 120
TITLE_END_LENGTH = 40  # a long title keeps the end of the name, because names often differ only there
MAX_SHORT_NAME_LENGTH = 64
MAX_URL_BYTES = 9_000  # for one name: the address of a request may contain three
PREFIX_LENGTH = 100  # of a name that is too long for an address
MAX_FAST_NAMES = 200_000
MIN_STORED_INDEX_NODES = 100_000
BLOCK_ROWS = 1 << 20
TITLES = "search.titles.npy"
# Never part of a percent-encoded name: white space, a % without two hex digits, and escapes of letters and digits.
_NOT_ENCODED = re.compile(r"\s|%(?![0-9A-Fa-f]{2})|%(?:3\d|[46][1-9A-Fa-f]|[57][0-9Aa])")


class Titles:
    """Readable titles of the nodes, relations and classes of a graph.

    The title of a node is, in this order: its external title, a literal of the graph that names it, the last part of
    its IRI, or the text of the literal that it is. Titles are for reading and need not be unique; names are unique.
    Percent-encoded names are decoded (`percent_decode`) unless another node has the decoded name; long ones are cut.

    Args:
        graph: The graph.
        titles: External titles of nodes by id, for example of a data set.
        descriptions: External descriptions of nodes by id.

    >>> kg = KnowledgeGraph.from_triples([("http://x.org/id7", "http://x.org/worksAt", "http://x.org/aifb")])
    >>> titles = Titles(kg, {0: "Ada Lovelace"})
    >>> titles.of(0), titles.of(1), titles.relation(0)
    ('Ada Lovelace', 'aifb', 'worksAt')
    """

    def __init__(
        self,
        graph: KnowledgeGraph,
        titles: Mapping[int, str] | None = None,
        descriptions: Mapping[int, str] | None = None,
    ) -> None:
        self.graph, self.external_titles, self._descriptions = graph, titles or {}, descriptions or {}

    def extend_to(self, graph: KnowledgeGraph) -> Titles:
        """Return the titles of a larger graph whose first nodes are those of this one."""
        return Titles(graph, self.external_titles, self._descriptions)

    def of(self, node: int) -> str:
        """Return the title of a node."""
        return self._title(node, self.graph.nodes[node])

    def titles_of(self, nodes: NDArray[np.int64], names: list[str], local_names: list[str]) -> list[str]:
        """Return the titles of nodes, given their names and the last parts of these."""
        titles, kinds = list(local_names), self.graph.node_kinds
        is_other = np.array(["%" in last or len(last) > MAX_TITLE_LENGTH for last in local_names], dtype=bool)
        if self.external_titles:
            is_other |= np.isin(nodes, list(self.external_titles))
        if kinds is not None:
            is_other |= (self._naming_literals[nodes] >= 0) | (kinds[nodes] == NodeKind.LITERAL)
        for index in np.flatnonzero(is_other).tolist():
            titles[index] = self._title(int(nodes[index]), names[index])
        return titles

    def _title(self, node: int, name: str) -> str:
        if title := self.external_titles.get(node):
            return title
        if self.graph.node_kinds is not None:
            literal = int(self._naming_literals[node])
            if literal >= 0 or self.graph.node_kinds[node] == NodeKind.LITERAL:
                return shorten(literal_text(name if literal < 0 else self.graph.nodes[literal]), MAX_TITLE_LENGTH)
        return readable_name(name, self.graph.nodes)

    def literals(self, nodes: NDArray[np.int64]) -> list[str | None]:
        """Return for each node the literal whose text is its title, or None."""
        kinds, literals = self.graph.node_kinds, np.full(len(nodes), None, dtype=object)
        if kinds is not None:
            ids = self._naming_literals[nodes].astype(np.int64)
            ids = np.where((ids < 0) & (kinds[nodes] == NodeKind.LITERAL), nodes, ids)
            literals[ids >= 0] = self.graph.nodes.names_of(ids[ids >= 0])
        return list(literals)

    def description(self, node: int) -> str | None:
        """Return the external description of a node."""
        return self._descriptions.get(node)

    def relation(self, relation: int) -> str:
        """Return the title of a relation."""
        name = self.graph.relations[relation]
        return readable_name(name, self.graph.relations).strip("_") or name

    def class_(self, number: int) -> str:
        """Return the title of a class; if a node has the name of the class, it is the title of that node."""
        node = self.graph.nodes.get(self.classes[number])
        return readable_name(self.classes[number], self.classes) if node is None else self.of(node)

    @property
    def classes(self) -> Vocabulary:
        """The names of the classes."""
        if self.graph.labels is None:
            raise DataError("the graph has no classes: none of its nodes is labeled")
        return self.graph.labels.names

    @cached_property
    def _naming_literals(self) -> NDArray[np.int32]:
        """For each node the literal of the graph that is its title, or -1, int32 [num_nodes]."""
        folder = self.graph.search_folder
        if folder is not None and (folder / TITLES).is_file():
            return np.asarray(np.load(folder / TITLES, mmap_mode="r"))
        graph, result = self.graph, np.full(self.graph.num_nodes, -1, dtype=np.int32)
        relations = [local_name(name) for name in graph.relations]
        rank = np.array([(*NAMING_RELATIONS, name).index(name) for name in relations])
        is_naming = rank < len(NAMING_RELATIONS)
        starts = range(0, len(graph) if is_naming.any() else 0, BLOCK_ROWS)
        numbers = (np.flatnonzero(is_naming[graph.triples_at(slice(at, at + BLOCK_ROWS))[:, 1]]) + at for at in starts)
        rows = graph.triples_at(np.concatenate([np.empty(0, np.int64), *numbers]))
        rows = rows[graph.is_literal[rows[:, 2]]]
        literals, literal = np.unique(rows[:, 2], return_inverse=True)
        is_foreign, has_text = np.empty((2, len(literals)), dtype=bool)
        for first in range(0, len(literals), BLOCK_ENTRIES):
            names = graph.nodes.names_of(literals[first : first + BLOCK_ENTRIES])
            is_foreign[first : first + len(names)] = [not _is_english(name) for name in names]
            # Most literals begin with a letter, which is quicker to see than whether the text is empty.
            has_text[first : first + len(names)] = [name[1:2].isalnum() or bool(literal_text(name)) for name in names]
        # By language, then relation, then the order of the graph; reversed, so that the first one is written last.
        order = np.lexsort((is_foreign[literal], rank[rows[:, 1]]))
        order = order[has_text[literal[order]]][::-1]
        result[rows[order, 0]] = rows[order, 2]
        return result


def local_name(name: str) -> str:
    """Return the part of an IRI after its last '#' or '/'; any other name as it is.

    >>> local_name("http://example.org/people#ada"), local_name('"a literal / with a slash"')
    ('ada', '"a literal / with a slash"')
    """
    if "://" not in name[:12] or name.startswith('"'):
        return name
    stem = name.rstrip("#/")
    return stem[max(stem.rfind("#"), stem.rfind("/")) + 1 :] or name


def percent_decode(name: str) -> str:
    """Decode a name that is clearly percent-encoded; return any other name as it is.

    Every % must begin an escape, the escapes must be UTF-8 and necessary, and the text must be printable.

    >>> percent_decode("libstdc%2B%2B6"), percent_decode("http://x.org/%C3%9Cberlingen")
    ('libstdc++6', 'http://x.org/Überlingen')
    >>> percent_decode("50%off"), percent_decode("caf%E9")
    ('50%off', 'caf%E9')
    """
    if "%" not in name or name.startswith('"') or _NOT_ENCODED.search(name):
        return name
    try:
        text = unquote(name, errors="strict")
    except UnicodeDecodeError:
        return name
    return text if text.isprintable() and text == text.strip() else name


def readable_name(name: str, names: Container[str] = ()) -> str:
    """Return the last part of a name, decoded unless the result is one of `names`, and cut if it is long.

    >>> readable_name("http://x.org/AC%2FDC"), readable_name("a%20b", ["a%20b", "a b"])
    ('AC/DC', 'a%20b')
    """
    shown = local_name(name)
    if "%" in shown and percent_decode(name) not in names:
        shown = percent_decode(shown)
    if len(shown) <= MAX_TITLE_LENGTH:
        return shown
    return f"{shown[: MAX_TITLE_LENGTH - TITLE_END_LENGTH - 1]}…{shown[-TITLE_END_LENGTH:]}"


def addressable_name(name: str) -> str:
    """Return the name, or its beginning and a checksum if it is too long for an address. `NameLookup` accepts both.

    >>> addressable_name("Bern"), len(addressable_name("x" * 1_000_000))
    ('Bern', 143)
    """
    if len(name) < MAX_URL_BYTES // 12 or len(quote(name, safe="", errors="surrogatepass")) <= MAX_URL_BYTES:
        return name  # a character takes at most twelve bytes
    return f"{name[:PREFIX_LENGTH]}… [sha256 {sha256(name.encode(errors='surrogatepass')).hexdigest()[:32]}]"


def short_name(name: str) -> str:
    """Return the last part of an IRI or the text of a literal, cut to less than a line.

    >>> short_name("http://example.org/people#ada"), short_name('"42"^^<http://www.w3.org/2001/XMLSchema#integer>')
    ('ada', '42')
    """
    shown = name[1 : name.rindex('"')] if name.startswith('"') and '"' in name[1:] else local_name(name)
    return shorten(" ".join(shown.split()) or name, MAX_SHORT_NAME_LENGTH)


def literal_text(name: str) -> str:
    """Return the text of a literal in N-Triples form; any other name as it is.

    >>> literal_text('"42"^^<http://www.w3.org/2001/XMLSchema#integer>'), literal_text("plain")
    ('42', 'plain')
    """
    if not name.startswith('"') or '"' not in name[1:]:
        return name
    text = name[1 : name.rindex('"')]
    plain = re.sub(r"\\(.)", lambda escape: " " if escape[1] in "nrtbf" else escape[1], text)
    return " ".join(plain.split())


def _is_english(literal: str) -> bool:
    """Return True if the literal is in English or has no language."""
    language = "" if literal.endswith('"') else literal.rpartition('"')[2].lower()
    return not language.startswith("@") or language == "@en" or language.startswith("@en-")


# Prefixes that are often used without being declared, and their namespaces.
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


def expand_prefix(text: str, declared: Mapping[str, list[str]]) -> Iterator[str]:
    """Yield the IRIs that prefix:name may stand for.

    Args:
        text: What a person typed.
        declared: Prefix -> its namespaces. They replace the well-known ones of the same prefix.

    >>> list(expand_prefix("brick:hasQuantity", {})), list(expand_prefix("ex:a", {"ex": ["http://x.org/"]}))
    (['https://brickschema.org/schema/Brick#hasQuantity'], ['http://x.org/a'])
    """
    prefix, colon, rest = text.partition(":")
    if colon and not rest.startswith("//"):
        spaces = declared.get(prefix) or [space for known, space in WELL_KNOWN if known == prefix.lower()]
        yield from (space + rest for space in spaces)


class NameResolver:
    """Finds the relations, the classes or (`NodeResolver`) the nodes of a graph by what people call them.

    Args:
        names: The unique names.
        title: Returns the title of an id.
        prefixes: Prefix -> its namespaces, as the files of the graph declare them.
    """

    def __init__(
        self, names: Vocabulary, title: Callable[[int], str], prefixes: Mapping[str, list[str]] | None
    ) -> None:
        self._names, self._title, self._prefixes = names, title, prefixes or {}

    @cached_property
    def search(self) -> NameSearch:
        """The search index."""
        return NameSearch.of(self.index_parts())

    def index_parts(self) -> Iterator[IndexPart]:
        """Yield the content of the search index, best names first."""
        return (name_search.index_part(self.spellings(ids)) for ids in self._blocks())

    def _blocks(self) -> list[NDArray[np.int64]]:
        order = self._best_first()
        return np.split(order, range(BLOCK_ENTRIES, len(order), BLOCK_ENTRIES))

    def _best_first(self) -> NDArray[np.int64]:
        """Order the ids: of those that match equally well, the first are found."""
        return np.arange(len(self._names))

    def _titles(self, ids: NDArray[np.int64], names: list[str], local_names: list[str]) -> list[str]:
        return list(map(self._title, ids.tolist()))

    def _is_literal(self, number: int) -> bool:
        return False

    def spellings(self, ids: NDArray[np.int64]) -> Iterator[name_search.Spelling]:
        """Yield for each id what it may be called: title, name, last part of the name, name without its prefix."""
        names = self._names.names_of(ids)
        local_names = list(map(local_name, names))
        titles = self._titles(ids, names, local_names)
        for number, title, name, last in zip(ids.tolist(), titles, names, local_names, strict=True):
            others = [":" + normalize_name(name.partition(":")[2])] if _has_prefix(name) else []
            further = self._name_forms(name) if "%" in name else (last,)
            others += [form for form in dict.fromkeys(further) if form is not title and form not in (title, name)]
            yield number, title, name, others

    def _name_forms(self, name: str) -> tuple[str, ...]:
        """Return the name and its last part, as they are and decoded."""
        plain, last = percent_decode(name), local_name(name)
        return (name, last) if plain in self._names else (name, last, plain, percent_decode(last))

    def find_exact(self, key: str) -> list[int]:
        """Return the ids whose title, name or last part is this normalized text, else those with it after a prefix."""
        ids, prefixed = (checked(self.search.whole(text), len(self._names)) for text in (key, ":" + key))
        exact = [n for n in ids if key in map(normalize_name, (self._title(n), *self._name_forms(self._names[n])))]
        names = ((n, self._names[n]) for n in ([] if exact else prefixed))
        return exact or [n for n, name in names if _has_prefix(name) and normalize_name(name.partition(":")[2]) == key]

    def candidates(self, text: str) -> list[int]:
        """Return all ids that a text may stand for: an exact name, else prefix:name, else a title or a last part.

        If there are none, the text is percent-decoded and tried again: it may be from an address.
        """
        plain = percent_decode(text)
        return self._candidates(text) or (self._candidates(plain) if plain != text else [])

    def _candidates(self, text: str) -> list[int]:
        bare = text[1:-1] if text.startswith("<") and text.endswith(">") else text
        for exact in (text, bare):
            if (number := self._names.get(exact)) is not None:
                return [number]
        if bare.endswith("]") and bare in self._shortened_names:
            return [self._shortened_names[bare]]
        iris = list(expand_prefix(bare, self._prefixes))
        ids = [number for iri in iris if (number := self._names.get(iri)) is not None]
        ids = ids or [number for iri in iris for number in self.find_exact(normalize_name(iri))]
        ids = ids or (self.find_exact(normalize_name(bare)) if text.strip() else [])
        if len(ids) > 1:
            # A node and the literal that names it have the same title: prefer the node.
            ids = [number for number in ids if not self._is_literal(number)] or ids
            same_case = [number for number in ids if self._title(number) == bare]
            return same_case if len(same_case) == 1 else ids
        return ids

    def ids(self, texts: Iterable[str | int]) -> NDArray[np.int64]:
        """Return the ids that texts stand for, int64 [n]."""
        return self._names.ids(texts if isinstance(texts, str) else map(self.resolve, texts))

    def resolve(self, text: str | int) -> int:
        """Return the id that a text stands for. An id in range is returned as it is.

        Raises:
            EmptyNameError: The text is empty.
            AmbiguousNameError: Several names match.
            UnknownNameError: No name matches.
        """
        if not isinstance(text, str):
            return self._names.id(text)
        ids = self.candidates(text)
        if len(ids) == 1:
            return ids[0]
        if not text.strip():
            raise EmptyNameError(self._names.kind, text)
        if ids:
            raise AmbiguousNameError(self._names.kind, text, [addressable_name(self._names[number]) for number in ids])
        similar = checked(self.search.similar(text), len(self._names))
        raise UnknownNameError(self._names.kind, text, (), list(map(self._unambiguous_name, similar)))

    def find(self, query: str, limit: int = 10) -> list[int]:
        """Return at most `limit` ids whose title or name contains the query, best first."""
        return checked(self.search.find(query, limit), len(self._names))

    def _unambiguous_name(self, number: int) -> str:
        """Return the title if it stands for this id only, else the name."""
        title = self._title(number)
        return title if self.candidates(title) == [number] else addressable_name(self._names[number])

    @cached_property
    def _shortened_names(self) -> dict[str, int]:
        """`addressable_name` -> id, of the names that it shortens."""
        stored, ids = self._names.stored_names, range(len(self._names))
        if stored is not None:
            ids = np.flatnonzero(np.diff(stored.ends, prepend=0) >= MAX_URL_BYTES // 12).tolist()
        names = ((number, self._names[number]) for number in ids)
        return {short: number for number, name in names if (short := addressable_name(name)) != name}


def _has_prefix(name: str) -> bool:
    return ":" in name and "://" not in name and not name.startswith(('"', "_:"))


class NodeResolver(NameResolver):
    """Finds nodes, of which there may be millions. Their search index may be stored in a folder."""

    def __init__(self, titles: Titles) -> None:
        super().__init__(titles.graph.nodes, titles.of, titles.graph.metadata.get("prefixes"))
        self._node_titles, self._graph = titles, titles.graph

    @cached_property
    def search(self) -> NameSearch:
        """The search index: that of the folder, unless external titles are missing in it."""
        folder = None if self._node_titles.external_titles else self._graph.search_folder
        return NameSearch.of(self.index_parts()) if folder is None else NameSearch.open(folder)

    def index_parts(self) -> Iterator[IndexPart]:
        """Yield the content of the search index, best names first; of many stored names by columns of polars."""
        is_small = self._names.stored_names is None or len(self._names) < MIN_STORED_INDEX_NODES
        if is_small or self._node_titles.external_titles:
            return super().index_parts()
        return (part for _, part in map_in_threads(self._blocks(), self._index_part_of_columns))

    def _index_part_of_columns(self, ids: NDArray[np.int64]) -> IndexPart:
        from rgcn.graph.spelling import joined_series, spell_plain  # imports polars

        texts, keys, position = spell_plain(self._names.names_of(ids), self._node_titles.literals(ids))
        if not texts.null_count():
            return IndexPart.of(ids, joined_series(texts), ids[position], joined_series(keys))
        _, others, owners, other_keys = name_search.entries_of(self.spellings(ids[texts.is_null().to_numpy()]))
        remaining = iter(others)
        all_texts = [next(remaining) if text is None else text for text in texts]
        return IndexPart.of(ids, joined(all_texts), [*ids[position].tolist(), *owners], joined([*keys, *other_keys]))

    def _best_first(self) -> NDArray[np.int64]:
        # Literals last: a part of a name is more often meant for a node than for a text that contains it.
        return np.lexsort((-self._graph.degrees(), self._graph.is_literal))  # stable: ties in the order of the graph

    def _titles(self, ids: NDArray[np.int64], names: list[str], local_names: list[str]) -> list[str]:
        return self._node_titles.titles_of(ids, names, local_names)

    def _is_literal(self, number: int) -> bool:
        return self._graph.kind(number) is NodeKind.LITERAL


class NameLookup:
    """Converts what people type to ids: a name, <name>, prefix:name, a title, or the last part of an IRI.

    `node`, `relation` and `class_` return the one id that a text stands for, `node_ids` those of several texts, `nodes`
    all nodes that a text may stand for, and `find` the best nodes that contain it.

    Case matters only if it is needed to tell names apart. Prefixes are those that the files of the graph declare, and
    well-known ones. Indexes are made on first use: an exact name needs none; the first other text waits for the search
    index, further ones take about a millisecond.

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
        self._nodes = NodeResolver(titles)
        self._relations = NameResolver(titles.graph.relations, titles.relation, prefixes)
        self.node, self.relation, self.node_ids = self._nodes.resolve, self._relations.resolve, self._nodes.ids
        self.nodes, self.find = self._nodes.candidates, self._nodes.find

    @cached_property
    def _classes(self) -> NameResolver:
        return NameResolver(self._titles.classes, self._titles.class_, self._titles.graph.metadata.get("prefixes"))

    def class_(self, text: str) -> int:
        """Return the class that a text stands for."""
        return self._classes.resolve(text)

    @property
    def is_search_fast(self) -> bool:
        """True if `find` always takes few milliseconds; among very many names, an unusual query may take tens."""
        return len(self._nodes.search.ids) <= MAX_FAST_NAMES

    def prepare(self) -> None:
        """Make all indexes now, so that no request to a server waits for them."""
        classes = [] if self._titles.graph.labels is None else [self._classes]
        for resolver in (self._nodes, self._relations, *classes):
            _ = resolver.search, resolver._shortened_names


def write_search(graph: KnowledgeGraph, folder: Path) -> list[str]:
    """Write the search index and the titles of nodes into the folder of a stored graph.

    Returns:
        The names of the files; none for a small graph, whose index is made faster than opened.
    """
    if graph.num_nodes < MIN_STORED_INDEX_NODES:
        return []
    titles = Titles(graph)
    if graph.node_kinds is not None:
        write_array(folder / TITLES, np.int32, (graph.num_nodes,), [titles._naming_literals])
    NameSearch.write(NodeResolver(titles).index_parts(), folder)
    return [*([TITLES] if graph.node_kinds is not None else []), *name_search.SEARCH_FILES]
