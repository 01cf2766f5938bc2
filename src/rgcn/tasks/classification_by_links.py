"""Node classification by a link model: labels are triples, and a node's class is the object that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgcn.tasks.link_prediction import MEASUREMENTS
from rgcn.tasks.node_classification import ACCURACY, HELD_OUT, NodeClassification

if TYPE_CHECKING:
    from rgcn.config import RunConfig


class ClassificationByLinks(NodeClassification):
    """Node classification in everything but how it is learned."""

    name = "classification-by-links"
    watched = (ACCURACY,)
    run = "rgcn.config:ClassificationByLinksRun"
    estimator = "rgcn.tasks.link_classifier:LinkClassifier"
    folds = 1

    def for_trials(self, config: RunConfig) -> dict[str, Any]:
        every = config.training.evaluate_every or max(1, config.training.epochs // MEASUREMENTS)
        return {"training.evaluate_every": every, "training.validation": config.training.validation or HELD_OUT}

    def after_trials(self, config: RunConfig, epoch: int | None) -> dict[str, Any]:
        return self.for_trials(config)

    def words_on_trials(self, config: RunConfig, epoch: int | None) -> list[str]:
        return ["training.epochs is as it was: training keeps the weights that are best on validation by itself."]
