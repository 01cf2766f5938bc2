"""Which node, relation or class somebody means."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np

from rgcn.errors import AmbiguousNameError, DataError, UnknownNameError
from rgcn.graph.name_search import NameSearch, folded
from rgcn.graph.titles import Titles, local_name
from rgcn.graph.vocabulary import NodeKind, Vocabulary


class Called:
    """The nodes, the relations or the classes, by what people call them.

    names       tell them apart
    title       what people read
    best_first  the order in which those that match equally well are found
    """

    def __init__(
        self,
        names: Vocabulary,
        title: Callable[[int], str],
        best_first: Callable[[], Iterable[int]] | None = None,
        is_literal: Callable[[int], bool] = lambda number: False,
    ) -> None:
        self._names, self._title, self._is_literal = names, title, is_literal
        self._best_first = best_first or (lambda: range(len(names)))

    @cached_property
    def by_key(self) -> dict[str, list[int]]:
        """Ids by title, by name and by its last part."""
        found: defaultdict[str, list[int]] = defaultdict(list)
        for number, name in enumerate(self._names):
            for key in set(map(folded, {self._title(number), local_name(name), name})):
                found[key].append(number)
        return dict(found)

    @cached_property
    def search(self) -> NameSearch:
        return NameSearch.of(self._names, self._title, self._best_first())

    def candidates(self, text: str) -> list[int]:
        """All that a text may stand for; an exact name comes before everything else."""
        bare = text[1:-1] if text.startswith("<") and text.endswith(">") else text
        for exact in (text, bare):
            number = self._names.get(exact)
            if number is not None:
                return [number]
        found = self.by_key.get(folded(bare), []) if text.strip() else []
        if len(found) > 1:
            # A thing and the literal that names it have the same title: the thing is meant.
            found = [number for number in found if not self._is_literal(number)] or found
            same = [number for number in found if self._title(number) == bare]
            return same if len(same) == 1 else found
        return found

    def meant(self, text: str) -> int:
        found = self.candidates(text)
        if len(found) == 1:
            return found[0]
        if not text.strip():
            raise DataError(f"an empty name is no {self._names.kind}'s")
        if found:
            raise AmbiguousNameError(self._names.kind, text, [self._names[number] for number in found])
        raise UnknownNameError(self._names.kind, text, (), list(map(self._clear, self.search.similar(text))))

    def _clear(self, number: int) -> str:
        """The title where it says who is meant, else the name."""
        title = self._title(number)
        return title if self.candidates(title) == [number] else str(self._names[number])

    def prepare(self) -> None:
        """Make now what is otherwise made when it is first needed."""
        known = self.search.well_known
        _ = self.by_key, known.index, known.whole


class NameLookup:
    """From what people type to ids: by name, in angle brackets, by title, by the last part of an IRI, in any case.

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
        self._titles, graph = titles, titles.graph
        self._nodes = Called(graph.nodes, titles.of, self._best_first, lambda n: graph.kind(n) is NodeKind.LITERAL)
        self._relations = Called(graph.relations, titles.relation)
        self.node, self.relation = self._nodes.meant, self._relations.meant

    @cached_property
    def _classes(self) -> Called:
        return Called(self._titles.classes, self._titles.class_)

    def class_(self, text: str) -> int:
        return self._classes.meant(text)

    def nodes(self, text: str) -> list[int]:
        """All nodes that somebody may mean: none or several where `node` would raise, and no suggestions."""
        return self._nodes.candidates(text)

    def find(self, query: str, limit: int = 10) -> list[int]:
        """Nodes by a part of their name or title, best first."""
        return self._nodes.search.find(query, limit)

    @property
    def finds_quickly(self) -> bool:
        """Whether `find` has an index: a text too long for one is read from end to end."""
        return self._nodes.search.index is not None

    def prepare(self) -> None:
        """Make everything now, so that nobody waits for it later: for a server."""
        self._nodes.prepare()
        self._relations.prepare()
        if self._titles.graph.labels is not None:
            self._classes.prepare()

    def _best_first(self) -> list[int]:
        """Literals last: who types a part of a name looks for a thing rather than for a text that mentions it."""
        graph = self._titles.graph
        degree = np.bincount(graph.triples[:, [0, 2]].ravel(), minlength=graph.num_nodes)
        order: list[int] = np.lexsort((-degree, graph.is_literal)).tolist()  # stable: equal ones in the graph's order
        return order
