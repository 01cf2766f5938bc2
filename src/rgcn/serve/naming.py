"""From the names in a request to nodes, relations and classes; what may have been meant where there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rgcn.errors import close_matches
from rgcn.graph import Vocabulary
from rgcn.graph.titles import AmbiguousNameError, lookup_key
from rgcn.predict import OpenModel
from rgcn.predict.search import NameSearch
from rgcn.serve.refusals import Refusal, shortened
from rgcn.serve.searching import IndexedSearch

MOST_COMPARED, LONGEST_COMPARED = 8, 60


class ShortList:
    """Names few enough to be compared one by one, by the letters they share first: relations and classes."""

    def __init__(self, names: Iterable[str]) -> None:
        self._shapes = {name: _shape(name) for name in names}

    def similar(self, name: str) -> list[str]:
        wanted = _shape(name[:LONGEST_COMPARED])
        near = sorted(self._shapes, key=lambda known: -len(wanted & self._shapes[known]))[:MOST_COMPARED]
        return close_matches(name[:LONGEST_COMPARED], near)


def _shape(name: str) -> set[str]:
    """The pairs of letters in a name.

    >>> sorted(_shape("Peru"))
    ['er', 'pe', 'ru']
    """
    folded = lookup_key(name)
    return {folded[at : at + 2] for at in range(len(folded) - 1)}


class Naming:
    """`OpenModel.node` and its like for a server: a wrong name costs a millisecond, not a second.

    The suggestions of `UnknownNameError` compare a name with all others, holding Python's lock. One stranger who asks
    for nonsense would keep everybody waiting; here an index is asked what is near.
    """

    def __init__(self, opened: OpenModel, search: NameSearch) -> None:
        self._opened, self._search, self._titles = opened, search, opened.titles
        graph = opened.graph
        relations = (text for i, name in enumerate(graph.relations) for text in (name, self._titles.relation(i)))
        self._relations = ShortList(relations)
        labels = graph.labels.names if graph.labels is not None else Vocabulary([], kind="class")
        self._classes = ShortList(text for i, name in enumerate(labels) for text in (name, self._titles.class_(i)))
        self._labels = labels
        # Titles makes these when they are first looked at, which would be while everybody waits.
        self._nodes_by_key, self._relations_by_key = self._titles.nodes_by_key, self._titles.relations_by_key
        self._classes_by_key = self._titles.classes_by_key if len(labels) else {}

    def node(self, text: str) -> int:
        number = self._opened.graph.nodes.get(text)
        if number is not None:
            return number
        return self._found(text, self._opened.graph.nodes, self._nodes_by_key, self._titles.node, self._near)

    def relation(self, text: str) -> int:
        number = self._opened.graph.relations.get(text)
        if number is not None:
            return number
        titles, names = self._titles, self._opened.graph.relations
        return self._found(text, names, self._relations_by_key, titles.find_relation, self._relations.similar)

    def class_(self, text: str) -> int:
        if not len(self._labels):
            raise Refusal("wrong_task", "this model knows no classes: it predicts links")
        return self._found(text, self._labels, self._classes_by_key, self._titles.find_class, self._classes.similar)

    def _found(
        self,
        text: str,
        names: Vocabulary,
        by_key: dict[str, list[int]],
        find: Callable[[str], int],
        similar: Callable[[str], list[str]],
    ) -> int:
        bare = text[1:-1] if text.startswith("<") and text.endswith(">") else text
        if names.get(bare) is None and lookup_key(bare) not in by_key:
            suggestions = similar(text)
            hint = f" Did you mean {', '.join(map(repr, suggestions))}?" if suggestions else ""
            raise Refusal(f"unknown_{names.kind}", f"unknown {names.kind} {shortened(text)}.{hint}", suggestions)
        try:
            return find(text)
        except AmbiguousNameError as error:
            meant = [names[number] for number in by_key.get(lookup_key(bare), ())[:5]]
            raise Refusal("ambiguous", str(error), meant) from None

    def _near(self, text: str) -> list[str]:
        """Titles where they say which node is meant, else names."""
        if not isinstance(self._search, IndexedSearch):
            return []
        near = self._search.similar(text)
        titled = {node: self._titles.of(node) for node in near}
        by_key = self._nodes_by_key
        return [
            title if by_key.get(lookup_key(title)) == [node] else self._opened.graph.nodes[node]
            for node, title in titled.items()
        ]
