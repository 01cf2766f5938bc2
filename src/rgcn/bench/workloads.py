"""Which network is trained on which graph: the published settings, and a sensible guess for other graphs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from rgcn.errors import ConfigError

MODELS = ("rgcn", "e-rgcn")
# A first layer of full matrices has relations · nodes rows; beyond this many other people's layers need gigabytes.
MOST_ROWS_WITHOUT_BASES = 1_000_000


@dataclass(frozen=True)
class Workload:
    """One network and how it learns. `hidden`, `bases` and `l2_penalty` are rgcn's, the other two e-rgcn's."""

    model: str
    hidden: int = 16
    bases: int | None = None
    l2_penalty: float = 0.0
    embedding: int = 32
    weight_decay: float = 0.0

    def settings(self) -> dict[str, Any]:
        """As arguments of `rgcn.NodeClassifier`."""
        if self.model == "e-rgcn":
            return {"model": self.model, "embedding": self.embedding, "weight_decay": self.weight_decay}
        decomposition = {} if self.bases is None else {"decomposition": "basis", "bases": self.bases}
        return {"model": self.model, "hidden": self.hidden, "l2_penalty": self.l2_penalty, **decomposition}

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


PUBLISHED = {
    "aifb": Workload("rgcn", hidden=16),
    "mutag": Workload("rgcn", hidden=16, bases=30, l2_penalty=5e-4),
    "bgs": Workload("rgcn", hidden=16, bases=40, l2_penalty=5e-4),
    "am": Workload("rgcn", hidden=10, bases=40, l2_penalty=5e-4),
}
EMBEDDED = Workload("e-rgcn", embedding=32, weight_decay=0.005)


def workload_for(
    graph: str, model: str, num_nodes: int, num_relations: int, hidden: int | None = None, bases: int | None = None
) -> Workload:
    """The settings published for a graph and model, or a guess by size; `hidden` and `bases` override (bases 0: none).

    >>> workload_for("am-shaped", "rgcn", 246_728, 122)
    Workload(model='rgcn', hidden=10, bases=40, l2_penalty=0.0005, embedding=32, weight_decay=0.0)
    """
    if model not in MODELS:
        raise ConfigError(f"unknown model {model!r}; there are {', '.join(MODELS)}")
    if model == "e-rgcn":
        return EMBEDDED
    published = PUBLISHED.get(graph.removesuffix("-shaped").removesuffix("-full"))
    large = 2 * num_nodes * num_relations > MOST_ROWS_WITHOUT_BASES
    workload = published or Workload("rgcn", bases=40 if large else None)
    if hidden is not None:
        workload = replace(workload, hidden=hidden)
    if bases is not None:
        workload = replace(workload, bases=bases or None)
    return workload
