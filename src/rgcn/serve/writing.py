"""Answers as JSON, put together from pieces that were written once: a node's bytes are made when the server starts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rgcn.graph import SPLITS
from rgcn.predict import OpenModel

BOOL = (b"false", b"true")
# Of larger graphs the pieces are made when they are needed: they would take more memory than the model.
MOST_PREPARED = 300_000


def as_json(value: Any) -> bytes:
    """Compact, ASCII, and never NaN.

    >>> as_json({"name": "Zürich"})
    b'{"name":"Z\\\\u00fcrich"}'
    """
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


SPLIT: dict[str | None, bytes] = {None: b"null", **{split: as_json(split) for split in SPLITS}}
SPLIT_BY_NUMBER = (*(SPLIT[split] for split in SPLITS), SPLIT[None])  # so that -1, no split, is null


def number(value: float | None) -> bytes:
    """Six digits are what scores of float32 are good for; null where there is none.

    >>> number(0.123456789), number(1.0), number(1e-12), number(None)
    (b'0.123457', b'1', b'1e-12', b'null')
    """
    return b"null" if value is None else b"%.6g" % value


class Pieces:
    """The JSON of every node, relation and class of a graph."""

    def __init__(self, opened: OpenModel) -> None:
        graph = opened.graph
        self._opened = opened
        self._nodes: list[bytes] | None = None
        if graph.num_nodes <= MOST_PREPARED:
            self._nodes = [as_json(opened.describe(node)) for node in range(graph.num_nodes)]
        self.relations = [as_json(opened.describe_relation(relation)) for relation in range(graph.num_relations)]
        count = 0 if graph.labels is None else graph.labels.num_classes
        self.classes = [as_json(opened.describe_class(class_)) for class_ in range(count)]

    def node(self, node: int) -> bytes:
        return as_json(self._opened.describe(node)) if self._nodes is None else self._nodes[node]


def listed(pieces: Iterable[bytes]) -> bytes:
    """[a,b,c]"""
    return b"[" + b",".join(pieces) + b"]"
