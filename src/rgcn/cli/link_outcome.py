"""What a person sees of a model that predicts links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from rgcn.cli.outcome import Outcome, number, shown, spread
from rgcn.graph.titles import local_name
from rgcn.tasks.estimator import Estimator
from rgcn.tasks.link_predictor import LinkPredictor
from rgcn.words import count


class LinkOutcome(Outcome):
    """Ranks; some questions that held-out triples ask, what is answered, and what is true."""

    def beside(self, model: Estimator, split: str, measured: Mapping[str, Any]) -> str:
        return count(measured["count"], "filtered question")

    def evaluated(self, measured: Mapping[str, Any]) -> Table:
        """Figures by direction and by relation, the most frequent first."""
        table = Table(box=SIMPLE)
        table.add_column("", no_wrap=True)
        for name in (*(metric.title for metric in self.task.metrics), "count"):
            table.add_column(name, justify="right", no_wrap=True)
        relations = sorted(measured["by_relation"].items(), key=lambda item: -item[1]["count"])
        rows = {"both directions": measured}
        rows |= {f"asking for the {direction}": one for direction, one in measured["by_direction"].items()}
        rows |= {local_name(relation): one for relation, one in relations}
        for place, (label, values) in enumerate(rows.items()):
            cells = [metric.words(values[metric.name]) for metric in self.task.metrics]
            table.add_row(label, *cells, f"{values['count']:,}", end_section=place == 2)
        return table

    def examples(self, model: Estimator) -> Table:
        """Questions (subject, relation, ?): the best answers that were not learned, and the one that is held out."""
        assert isinstance(model, LinkPredictor)
        graph, split = model.graph_, next(iter(reversed(model.measured_splits())), "train")
        triples = graph.split_triples(split)
        chosen = spread(len(triples))
        sure = "probability" if model.calibration_.fitted else "score"
        title = f"{len(chosen)} of {len(triples)} {split} triples: new answers, best first"
        table = Table(title=title, title_justify="left")
        for name in ("question", f"the model says ({sure})", "held out"):
            table.add_column(name, overflow="fold")
        for s, r, o in triples[chosen].tolist():
            answer = graph.nodes[o]
            best = model.predict(subject=s, relation=r, k=3, known="mark" if split == "train" else "drop")
            words = [
                f"[{'green' if one.object == answer else 'default'}]{shown(one.object)}[/] "
                f"({number(one.score, one.probability)})"
                for one in best
            ]
            question = f"{shown(graph.nodes[s])} —{shown(graph.relations[r])}→ ?"
            table.add_row(question, ", ".join(words), shown(answer))
        return table
