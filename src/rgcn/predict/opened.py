"""A trained model opened for questions by name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgcn.answers.calibration import Calibration
from rgcn.atomic import write_atomically
from rgcn.data.registry import cache_folder
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import NameLookup, Titles
from rgcn.runs.assembly import load_trained, refuse_changed_data
from rgcn.runs.folder import RunFolder
from rgcn.tasks.estimator import Estimator, cannot_answer
from rgcn.tasks.storage import load_model
from rgcn.tasks.task import Task

if TYPE_CHECKING:
    from torch import Tensor

    from rgcn.config import RunConfig
    from rgcn.scoring import Scorer

KINDS = ("iri", "literal", "blank")
CALIBRATION_FILE = "calibration.json"
CALIBRATION_VERSION = 4


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model, the graph it knows, and the names people use for what is in it."""

    path: Path  # folder of the run, or of a saved model
    name: str  # the folder's name
    model: Estimator
    titles: Titles
    about: dict[str, Any] = field(default_factory=dict)  # what run.json says; empty for a model saved outside a run
    result: dict[str, Any] | None = None  # the run's figures, once it is finished
    config: RunConfig | None = None  # the run's
    new_nodes: tuple[int, ...] = ()  # added after training (`unseen.with_new_triples`)

    @property
    def graph(self) -> KnowledgeGraph:
        return self.model.graph_

    @property
    def task(self) -> Task:
        return self.model.task_()

    def answers(self, kind: str) -> bool:
        """Whether it answers questions about "classes", or about "links"."""
        return kind in self.task.answers

    def must_answer(self, kind: str) -> None:
        """Refuse a kind of question that this model does not answer, with a word on what would."""
        if not self.answers(kind):
            raise DataError(f"{self.path}: {cannot_answer(self.model, kind)}")

    # -- what answers are made of (`AnsweringModel`) -------------------------------------------------------

    @property
    def graph_(self) -> KnowledgeGraph:
        return self.model.graph_

    @property
    def calibration_(self) -> Calibration:
        return self.calibration

    @property
    def fingerprint_(self) -> str:
        return self.model.fingerprint_

    def scorer(self) -> Scorer:
        return self.model.scorer()

    def logits(self, nodes: Iterable[str | int]) -> Tensor:
        return self.model.logits(nodes)

    # -- names -------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> NameLookup:
        """Nodes, relations and classes by what people type."""
        return NameLookup(self.titles)

    def node(self, text: str) -> int:
        """The node somebody means."""
        return self.names.node(text)

    def relation(self, text: str) -> int:
        """The relation somebody means."""
        return self.names.relation(text)

    def class_(self, text: str) -> int:
        """The class somebody means."""
        return self.names.class_(text)

    def describe(self, node: int) -> dict[str, Any]:
        """A node for people and programs: name, title, description, kind."""
        return {
            "name": self.graph.nodes[node],
            "title": self.titles.of(node),
            "description": self.titles.description(node),
            "kind": KINDS[self.graph.kind(node)],
        }

    def describe_relation(self, relation: int) -> dict[str, str]:
        return {"name": self.graph.relations[relation], "title": self.titles.relation(relation)}

    def describe_class(self, number: int) -> dict[str, str]:
        assert self.graph.labels is not None
        return {"name": self.graph.labels.names[number], "title": self.titles.class_(number)}

    # -- probabilities -----------------------------------------------------------------------------------

    @cached_property
    def calibration(self) -> Calibration:
        """How scores become probabilities; fitted when it is first asked for, and kept beside the model."""
        return calibration_of(self.model, self.path)


def open_model(
    path: str | Path,
    *,
    mirror: Path | None = None,
    device: str = "auto",
    accept_changed_data: bool = False,
) -> OpenModel:
    """Open a run, finished or as far as it has come, or a folder that `save` wrote.

    A model answers from the copy of the graph that was saved with it. Where the data it was trained on can still be
    read and are no longer the same, its answers are about a graph that is gone: refused, unless `accept_changed_data`.

    >>> import rgcn, tempfile
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c")], name="small")
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.LinkPredictor("distmult", embedding=4, epochs=1).fit(kg).save(folder)
    >>> opened = open_model(folder)
    >>> opened.task.name, opened.node("B"), opened.describe(2)["title"]
    ('link-prediction', 1, 'c')
    """
    folder = Path(path)
    if (folder / "model.json").is_file() and not RunFolder(folder).exists():
        model = load_model(folder, device=device)
        return OpenModel(folder, folder.resolve().name, model, _titles(model.graph_, None, mirror))
    run = RunFolder(folder)
    run.check()
    if not accept_changed_data:
        refuse_changed_data(run)
    config = run.config()
    model = load_trained(run, mirror, device)
    titles = _titles(model.graph_, config.data.dataset, mirror)
    return OpenModel(folder, folder.resolve().name, model, titles, run.about(), run.result(), config)


def _titles(graph: KnowledgeGraph, dataset: str | None, mirror: Path | None) -> Titles:
    """Readable names: those of the data set, where it has some."""
    from rgcn.data.wordnet import names_outside

    outside = names_outside(dataset or graph.name, graph, mirror)
    return Titles(graph) if outside is None else Titles(graph, outside.titles, outside.descriptions)


def calibration_of(model: Estimator, folder: Path) -> Calibration:
    """The calibration of a model: from its folder, or fitted and kept there where the folder can be written.

    One without a folder of its own, such as the model that comes with rgcn, has it in the user's cache folder. It is
    used again while weights and graph are the same.
    """
    same = model.fingerprint_
    key, path, found = f"{CALIBRATION_VERSION} {same}", folder / CALIBRATION_FILE, None
    if not ((folder / "model.json").is_file() or RunFolder(folder).exists()):
        path = cache_folder() / "calibrations" / f"{same}.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = Calibration.from_dict(values) if values.get("of") == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none there, or a damaged one
        pass
    if found is None:
        found = model.calibration_
        with suppress(OSError):  # a folder that may only be read is none the worse
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps({"of": key, **found.as_dict()}, indent=2) + "\n")
    model.calibration_ = found
    return found
