"""What a person sees of a model that tells classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from rgcn.cli.outcome import Outcome, number, shown, spread
from rgcn.graph import SPLITS
from rgcn.graph.titles import local_name
from rgcn.pages.node_report import majority
from rgcn.tasks.estimator import Estimator
from rgcn.tasks.node_classifier import ClassEstimator
from rgcn.words import count


class ClassOutcome(Outcome):
    """Accuracy beside that of the most frequent class; some nodes, what is said of them, and what is true."""

    def beside(self, model: Estimator, split: str, measured: Mapping[str, Any]) -> str:
        labels = model.graph_.labels
        assert labels is not None
        most, right = majority(labels, split)
        always = f"always {local_name(most)!r}: {self.task.headline.words(right)}"
        return f"{count(measured['count'], 'node')}; {always}"

    def evaluated(self, measured: Mapping[str, Any]) -> str:
        return f"{self.figures(measured)} of {count(measured['count'], 'node')}"

    def examples(self, model: Estimator) -> Table:
        """A few nodes, spread over the last split, with the class predicted and, where that is wrong, the true one."""
        assert isinstance(model, ClassEstimator)
        labels = model.graph_.labels
        assert labels is not None
        split = next((s for s in reversed(SPLITS) if len(labels.of(s)[0])), "train")
        nodes, classes = labels.of(split)
        chosen = spread(len(nodes))
        predictions = model.predict(nodes[chosen].tolist())
        sure = "probability" if model.calibration_.fitted else "score"
        table = Table(title=f"{len(chosen)} of {len(nodes)} {split} nodes", title_justify="left")
        for name in ("node", "predicted", sure, "truly"):
            table.add_column(name, justify="right" if name == sure else "left", overflow="fold")
        for prediction, true_class in zip(predictions, classes[chosen].tolist(), strict=True):
            truth = labels.names[true_class]
            right = prediction.label == truth
            table.add_row(
                shown(prediction.node),
                f"[{'green' if right else 'red'}]{shown(prediction.label)}[/]",
                number(prediction.score, prediction.probability),
                "" if right else shown(truth),
            )
        return table
