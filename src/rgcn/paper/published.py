"""The figures of published.yaml, which is every one the paper states, and where in the paper each stands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import yaml

ORIGINAL, PAPER = "TF-RGCN", "Torch-RGCN"
METRICS = ("mrr", "hits@1", "hits@3", "hits@10")
STATISTICS = ("min", "max", "mean", "std")
LINK_EPOCHS_TIMED = 7_000
GPU, CPU = "one GTX 1080 Ti", "12 cores"


@dataclass(frozen=True)
class Figure:
    """A published figure."""

    value: float | None = None  # None where the paper gives words only
    by: str = ""  # whose figure it is: TF-RGCN, Torch-RGCN, e-RGCN or c-RGCN; empty where it is of no model
    where: str = ""  # in the paper
    error: float | None = None  # standard error, where one is given
    words: str | None = None  # what the paper says instead of a number, or with another unit than we would


@dataclass(frozen=True)
class PublishedTensor:
    """A row of Table 4: `STATISTICS` of Torch-RGCN and of TF-RGCN, which holds the blocks of inverses apart."""

    name: str
    shape: str
    torch_rgcn: Sequence[float]
    tf_rgcn: Sequence[float]
    tf_rgcn_inverse: Sequence[float] = ()

    @property
    def allowed(self) -> float:
        """How far our standard deviation may be off: outputs follow from more random numbers than initial values."""
        return 0.10 if self.name.endswith("output") else 0.02


def _figures(given: Mapping[str, Any]) -> dict[str, Figure]:
    return {name: Figure(**figure) for name, figure in given.items()}


def _ranking(by: str, where: str, values: list[float], errors: list[float | None] | None = None) -> dict[str, Figure]:
    rows = zip(METRICS, values, errors or [None] * len(values), strict=True)
    return {metric: Figure(value, by, where, error) for metric, value, error in rows}


_READ = yaml.safe_load((resources.files("rgcn.paper") / "published.yaml").read_text(encoding="utf-8"))

TITLES: Mapping[str, str] = _READ["titles"]
NODE_DATASETS: Mapping[str, Mapping[str, int]] = _READ["node datasets"]
LINK_DATASETS: Mapping[str, Mapping[str, int]] = _READ["link datasets"]
PRUNED: list[str] = _READ["pruned"]
ACCURACY = {
    name: tuple(Figure(**figure, where="Table 2") for figure in given) for name, given in _READ["accuracy"].items()
}
# {configuration: a dictionary {metric: figure} for each published row}
RANKING = {name: tuple(_ranking(**row) for row in rows) for name, rows in _READ["ranking"].items()}
DESCRIBED: Mapping[str, Mapping[str, Any]] = _READ["described"]
SHARES = _figures(_READ["parameters"])
NODE_TIMES, LINK_TIMES = _figures(_READ["times"]["cpu"]), _figures(_READ["times"]["link"])
NODE_TIME_ON_GPU, FREEBASE_TIME, DISTMULT_TIME = (
    Figure(**_READ["times"][key]) for key in ("gpu", "freebase", "distmult")
)
TENSORS = tuple(PublishedTensor(**tensor) for tensor in _READ["tensors"])
