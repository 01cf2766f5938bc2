"""Classes of some of the nodes, and which of them may be learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rgcn.errors import DataError
from rgcn.graph.vocabulary import Vocabulary

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True, eq=False)
class NodeLabels:
    """Class of each labelled node, and its split.

    nodes   int64 [L]  node ids, each at most once
    classes int64 [L]  class ids
    names              the class names; one numbering for all splits, so that class 0 is the same class everywhere
    splits  int8 [L]   index into ("train", "valid", "test")
    """

    nodes: NDArray[np.int64]
    classes: NDArray[np.int64]
    names: Vocabulary
    splits: NDArray[np.int8]

    def __post_init__(self) -> None:
        for field, dtype in (("nodes", np.int64), ("classes", np.int64), ("splits", np.int8)):
            array = np.array(getattr(self, field), dtype=dtype)
            array.setflags(write=False)
            object.__setattr__(self, field, array)
        if not len(self.nodes) == len(self.classes) == len(self.splits):
            raise DataError("labels: nodes, classes and splits differ in length")
        if len(np.unique(self.nodes)) != len(self.nodes):
            raise DataError("labels: a node has two classes; this library gives each node one class")
        if len(self.classes) and not (self.classes.min() >= 0 and self.classes.max() < len(self.names)):
            raise DataError("labels: a class id has no name")
        if len(self.splits) and not (self.splits.min() >= 0 and self.splits.max() < len(SPLITS)):
            raise DataError(f"labels: a split is none of {', '.join(SPLITS)}")

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def num_classes(self) -> int:
        return len(self.names)

    def of(self, split: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(nodes, classes) of one split, or of "all"."""
        if split == "all":
            return self.nodes, self.classes
        if split not in SPLITS:
            raise DataError(f"unknown split {split!r}; there are {', '.join(SPLITS)} and all")
        chosen = self.splits == SPLITS.index(split)
        return self.nodes[chosen], self.classes[chosen]

    def counts(self) -> Mapping[str, int]:
        """Number of labelled nodes in each split that has any."""
        sizes = {split: int((self.splits == i).sum()) for i, split in enumerate(SPLITS)}
        return {split: size for split, size in sizes.items() if size}

    def remapped(self, new_id: NDArray[np.int64], drop_missing: bool = True) -> NodeLabels:
        """The same labels after renumbering nodes; `new_id` is -1 for nodes that are gone."""
        kept = new_id[self.nodes] >= 0
        if not drop_missing and not kept.all():
            raise DataError("renumbering would lose labelled nodes")
        return NodeLabels(new_id[self.nodes[kept]], self.classes[kept], self.names, self.splits[kept])

    def __repr__(self) -> str:
        parts = ", ".join(f"{split} {count}" for split, count in self.counts().items())
        return f"NodeLabels({len(self)} nodes, {self.num_classes} classes; {parts})"
