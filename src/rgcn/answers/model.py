"""What has to be known of a model to make answers of its scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from rgcn.graph import KnowledgeGraph
from rgcn.scoring import Scorer

if TYPE_CHECKING:
    from rgcn.answers.calibration import Calibration


class AnsweringModel(Protocol):
    """A trained model with the graph it knows; every `Estimator` is one, and so is an opened one."""

    @property
    def graph_(self) -> KnowledgeGraph: ...

    @property
    def calibration_(self) -> Calibration: ...

    def scorer(self) -> Scorer: ...

    def logits(self, nodes: Iterable[str | int]) -> Tensor: ...
