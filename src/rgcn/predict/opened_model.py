"""A model opened for questions by name: a trained one, or the one that comes with rgcn, over any graph."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rgcn.config import DataConfig, validated
from rgcn.data import read
from rgcn.data.attributes import with_features
from rgcn.data.registry import cache_folder, path_or_dataset
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph, NodeKind
from rgcn.graph.titles import NameLookup, Titles, askable
from rgcn.graph.vocabulary import plain_name, relation_ids, some_names
from rgcn.links.calibration import Calibration
from rgcn.links.calibration_fitting import PATIENT, QUICK
from rgcn.models.answer_kind import AnswerKind, ClassKind, cannot_answer, kind_of
from rgcn.models.estimator import Estimator
from rgcn.models.growth import extended, grown_graph
from rgcn.models.link_classifier import LinkClassifier
from rgcn.models.link_predictor import LinkPredictor
from rgcn.models.storage import load_model
from rgcn.models.task import Task
from rgcn.nn.scorer import Scorer
from rgcn.plugins import ANSWER_KINDS
from rgcn.runs.assembly import load_data, load_trained, refuse_changed_data, titles_of
from rgcn.runs.folder import RunFolder
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import count
from rgcn.system.progress import Budget

SHIPPED = "the model that comes with rgcn"
TRAINED = ("run.json", "model.json", "series.json")  # what has one of these is no graph
KINDS = ("iri", "literal", "blank")
PLAIN = "name"
# What a table means as an IRI: a colon alone is no sign of one there ("12:30", "section:libs").
_IRI_IN_TABLE = re.compile(r"([a-z][a-z0-9+.-]*://|urn:)\S+", re.IGNORECASE)
CALIBRATION_FILE = "calibration.json"
CALIBRATION_VERSION = 6


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model, the graph it knows, and the names people use for what is in it."""

    path: Path  # folder of the run, or of a saved model; of a graph, where that is or what it is called
    name: str  # the last part of it
    model: Estimator
    titles: Titles
    about: dict[str, Any] = field(default_factory=dict)  # what run.json says; empty for a model saved outside a run
    result: dict[str, Any] | None = None  # the run's figures, once it is finished
    data: DataConfig | None = None  # how its graph was read, where that is known
    new_nodes: tuple[int, ...] = ()  # added after training (`unseen.with_new_triples`)
    untrained: KnowledgeGraph | None = None  # a graph as it was read, over which nothing was trained

    @property
    def graph(self) -> KnowledgeGraph:
        return self.model.graph_

    @property
    def task(self) -> Task:
        return self.model.task_()

    @property
    def dataset(self) -> str:
        """What its data are called, without the folders they lie in."""
        return (self.graph.name if self.data is None else self.data.title) or "unnamed"

    @property
    def classes(self) -> list[str]:
        """The classes among which it chooses; none where its answers are no choice."""
        return [name for kind in self.task.kinds for name in kind.classes(self.model)]

    def answers(self, kind: str | type[AnswerKind]) -> bool:
        """Whether it answers this kind of questions: "classes", "links", or one from another package."""
        return kind_of(kind) in self.task.kinds

    def must_answer(self, kind: str | type[AnswerKind]) -> AnswerKind:
        """The kind; DataError with a word on what would answer it where this model does not."""
        wanted = kind_of(kind)
        if wanted not in self.task.kinds:
            raise DataError(f"{self.path}: {cannot_answer(self.task.kinds, wanted)}")
        return wanted

    def kind_about(self, named: str) -> AnswerKind:
        """The kind of a question that names "nodes" or "triples"; DataError where the model answers none of them."""
        known = map(kind_of, ANSWER_KINDS.names())
        found = next(kind for kind in (*self.task.kinds, *known) if kind.about == named)
        return self.must_answer(type(found))

    @property
    def title(self) -> str:
        """What the model is called."""
        return str(self.model.model.title) if self.untrained is None else SHIPPED

    @property
    def source(self) -> dict[str, str]:
        """What was opened, for programs."""
        return {"run": str(self.path)} if self.untrained is None else {"graph": str(self.path), "model": SHIPPED}

    @property
    def folder(self) -> Path | None:
        """Where to keep what belongs to the model. Not beside a graph: that place is the user's."""
        return self.path if self.untrained is None else None

    @property
    def words(self) -> str:
        """Which model answers, where nobody has trained it."""
        graph = self.untrained
        if graph is None:
            return f"{self.title} of {self.path}"
        labels = 0 if graph.labels is None or not self.classes else len(graph.labels.of("train")[0])
        told = count(len(graph), "triple") + (f", {count(labels, 'label')}" if labels else "")
        return f"{SHIPPED}, over {self.path} ({told}); nothing was trained"

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
        """A node for people and programs: name (`askable`), title, description, kind."""
        name = self.graph.nodes[node]
        return {
            "name": askable(name),
            "title": self.titles.of(node),
            "description": self.titles.description(node),
            "kind": self._kind(node, name),
        }

    def _kind(self, node: int, name: str) -> str:
        """A kind of RDF term; "name" for what is none, a plain name from a table."""
        kind = KINDS[self.graph.kind(node)]
        if kind != "iri":
            return kind
        is_iri = _IRI_IN_TABLE.fullmatch(name) if self.graph.node_kinds is None else ":" in name
        return kind if is_iri else PLAIN

    def describe_relation(self, relation: int) -> dict[str, str]:
        return {"name": askable(self.graph.relations[relation]), "title": self.titles.relation(relation)}

    def describe_class(self, number: int) -> dict[str, str]:
        assert self.graph.labels is not None
        return {"name": askable(self.graph.labels.names[number]), "title": self.titles.class_(number)}

    # -- probabilities -----------------------------------------------------------------------------------

    @cached_property
    def calibration(self) -> Calibration:
        """How scores become probabilities; fitted when it is first asked for, and kept beside the model."""
        return calibration_of(self.model, self.folder)

    def calibrate(self, bars: bool | None = False, patient: bool = False) -> None:
        """Fit `calibration` now, unless it is kept.

        bars     whether to draw a progress bar; None: where standard error is a terminal
        patient  take as long as it needs, also where one is kept for which there was not time for everything
        """
        if patient or "calibration" not in self.__dict__:
            budget = replace(PATIENT if patient else QUICK, bars=bars)
            self.__dict__["calibration"] = calibration_of(self.model, self.folder, budget)


def open_model(
    source: str | Path | KnowledgeGraph,
    *,
    mirror: Path | None = None,
    device: str = "auto",
    accept_changed_data: bool = False,
    classes: bool = False,
    **reading: Any,
) -> OpenModel:
    """Open a trained model, or any graph with the model that comes with rgcn, which nobody needs to train.

    source   folder of a run or a saved model (`open_trained`), else a file or folder of triples, else a data set's
             name (`path_or_dataset`); or a graph itself
    classes  of a graph: ask for classes of nodes, as its labels have them, instead of links
    reading  of a graph's files: how they are read, as `rgcn.config.DataConfig` has it: labels, format, columns, ...

    >>> opened = open_model("world")
    >>> opened.task.name, opened.words
    ('link-prediction', 'the model that comes with rgcn, over world (33,290 triples); nothing was trained')
    """
    place = None if isinstance(source, KnowledgeGraph) else path_or_dataset(source)
    is_trained = isinstance(place, Path) and any((place / name).is_file() for name in TRAINED)
    if reading and place is not None and (is_trained or not isinstance(place, Path)):
        what = f"{place} has a trained model and its own" if is_trained else f"{source} is a data set"
        raise ConfigError(f"{', '.join(reading)} say how a graph is read, and {what}")
    data: DataConfig | None = None
    if isinstance(source, KnowledgeGraph):
        graph, path = source, source.name or "graph"
    elif isinstance(place, Path):
        if is_trained:
            return open_trained(place, mirror=mirror, device=device, accept_changed_data=accept_changed_data)
        given = {key: str(value) if isinstance(value, Path) else value for key, value in reading.items()}
        data, path = validated(DataConfig, {"path": str(place), **given}, f"how {place} is read"), str(place)
        try:
            graph = load_data(data)
        except DataError as error:
            if not place.is_dir():
                raise
            raise DataError(f"{place} is no run (it has no run.json), and as a graph: {error}") from error
    else:
        assert place is not None
        data, path = DataConfig(dataset=place.name), place.name
        graph = load_data(data, mirror)
    if classes and (missing := ClassKind().missing(graph)):
        raise DataError(f"{path} has {missing}; or ask about links (--subject and --relation, say)")
    try:
        model = (LinkClassifier if classes else LinkPredictor).pretrained(graph, device)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    titles = titles_of(model.graph_, None if data is None else data.dataset, mirror)
    return OpenModel(Path(path), Path(path).resolve().name, model, titles, data=data, untrained=graph)


def open_trained(
    folder: Path, *, mirror: Path | None = None, device: str = "auto", accept_changed_data: bool = False
) -> OpenModel:
    """Open a run, finished or as far as it has come, or a folder that `save` wrote.

    A model answers from the copy of the graph that was saved with it. Where the data it was trained on can still be
    read and are no longer the same, its answers are about a graph that is gone: refused, unless `accept_changed_data`.

    >>> import rgcn, tempfile
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c")], name="small")
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.LinkPredictor("distmult", embedding=4, epochs=1).fit(kg).save(folder)
    >>> opened = open_trained(Path(folder))
    >>> opened.task.name, opened.node("B"), opened.describe(2)["title"]
    ('link-prediction', 1, 'c')
    """
    if (folder / "model.json").is_file() and not RunFolder(folder).exists():
        model = load_model(folder, device=device)
        return OpenModel(folder, folder.resolve().name, model, titles_of(model.graph_, None, mirror))
    run = RunFolder(folder)
    run.check()
    if not accept_changed_data:
        refuse_changed_data(run)
    config = run.config()
    model = load_trained(run, mirror, device)
    titles = titles_of(model.graph_, config.data.dataset, mirror)
    return OpenModel(folder, folder.resolve().name, model, titles, run.about(), run.result(), config.data)


def kept_calibration(model: Estimator, folder: Path | None) -> tuple[Calibration | None, Path, str]:
    """(what is kept of it while weights and graph are the same, where, and what tells that they are)."""
    same = model.fingerprint_
    key, found = f"{CALIBRATION_VERSION} {same}", None
    path = cache_folder() / "calibrations" / f"{same}.json" if folder is None else folder / CALIBRATION_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = Calibration.from_dict(values) if values.get("of") == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none there, or a damaged one
        pass
    if found is not None and found.curve is not None and len(found.curve.offset) != 2 * model.graph_.num_relations:
        found = None
    return found, path, key


def calibration_of(model: Estimator, folder: Path | None, budget: Budget = QUICK) -> Calibration:
    """The calibration of a model: from its folder, or fitted and kept there where there is one that can be written.

    One without a folder of its own, such as the model that comes with rgcn, has it in the user's cache folder. It is
    used again while weights and graph are the same, so that repeated questions agree. One for which there was not time
    for everything is fitted again where the budget has no limit.
    """
    found, path, key = kept_calibration(model, folder)
    if found is None or (found.is_cut and math.isinf(budget.seconds)):
        found = model.calibrate(budget)
        if folder is None or folder.is_dir():  # a folder that is gone is not made again
            with suppress(OSError):  # one that may only be read is none the worse
                write_atomically(path, json.dumps({"of": key, **found.as_dict()}, indent=2) + "\n")
    model.calibration_ = found
    return found


def with_new_triples(opened: OpenModel, path: str | Path, features: str | Path | None = None) -> OpenModel:
    """The same model over its graph and the triples of a file, whose unknown nodes it computes from their neighbors.

    path      triples of new nodes, among each other and with known ones, in any format `rgcn.read` reads; their
              relations must be known. Of data with splits the training triples are taken
    features  a table of the new nodes' features, for a model that reads features

    The calibration is that of the known nodes; nothing was calibrated on the new ones. Where the model cannot answer
    for new nodes, it says why.
    """
    why_not = opened.model.cannot_extend()
    if why_not is not None:
        raise DataError(f"{opened.path} cannot answer for new nodes: {why_not}")
    graph = _with_features(joined(opened.graph, read(path), str(path)), opened.graph.num_nodes, features)
    larger = replace(
        opened,
        model=extended(opened.model, graph),
        titles=opened.titles.over(graph),
        new_nodes=tuple(range(opened.graph.num_nodes, graph.num_nodes)),
    )
    larger.__dict__["calibration"] = larger.model.calibration_ = opened.calibration  # of the same trained numbers
    return larger


def joined(known: KnowledgeGraph, new: KnowledgeGraph, source: str) -> KnowledgeGraph:
    """A known graph and new triples, which are added to what is trained on; new nodes are numbered after the known.

    Of data with splits only the training triples are told: the others are for asking. What is known already is not told
    a second time.

    >>> known = KnowledgeGraph.from_triples([("a", "r", "b")])
    >>> joined(known, KnowledgeGraph.from_triples([("c", "r", "a"), ("a", "r", "b")]), "new.tsv").named()
    [('a', 'r', 'b'), ('c', 'r', 'a')]
    """
    told = new.split_triples("train")
    if not len(told):
        raise DataError(f"{source}: no triples in it")
    nodes = dict(zip(known.nodes, range(known.num_nodes), strict=True))
    node_ids = np.full(new.num_nodes, -1, dtype=np.int64)
    for node in dict.fromkeys(told[:, [0, 2]].ravel().tolist()):
        node_ids[node] = _node_id(new, node, nodes)
    relations = relation_ids(known.relations, new.relations, np.unique(told[:, 1]), source)
    triples = np.stack([node_ids[told[:, 0]], relations[told[:, 1]], node_ids[told[:, 2]]], axis=1)
    triples = triples[np.sort(np.unique(triples, axis=0, return_index=True)[1])]  # each once, in their order
    sizes = {"num_nodes": len(nodes), "num_relations": known.num_relations}
    index = KnownTriples.of(torch.tensor(known.split_triples("train")), **sizes)
    triples = triples[~index.contains(torch.from_numpy(triples)).numpy()]
    if not len(triples):
        raise DataError(f"{source}: nothing new in it; the model knows all of its triples")
    kinds = None
    if known.node_kinds is not None or new.node_kinds is not None:
        kinds = np.zeros(len(nodes), dtype=np.uint8)
        if new.node_kinds is not None:
            kinds[node_ids[node_ids >= 0]] = new.node_kinds[node_ids >= 0]
        kinds[: known.num_nodes] = 0 if known.node_kinds is None else known.node_kinds
    return grown_graph(known, nodes, triples, node_kinds=kinds)


def _node_id(new: KnowledgeGraph, node: int, nodes: dict[str, int]) -> int:
    """A known node's id, or the next one. A blank node is never one of another file's."""
    name = new.nodes[node]
    if new.kind(node) is NodeKind.BLANK:
        while name in nodes:
            name += "'"
    elif name not in nodes:
        name = plain_name(name, "node")
    return nodes.setdefault(name, len(nodes))


def _with_features(graph: KnowledgeGraph, first_new: int, path: str | Path | None) -> KnowledgeGraph:
    """Known features as they are, new ones from the table."""
    new, features = graph.nodes[first_new:], graph.features
    if not new or features is None:
        return graph
    if path is None:
        raise DataError(
            f"the model reads features, and {some_names(new)} {'have' if len(new) > 1 else 'has'} none: give a table "
            "of them with --with-features (name, then numbers)"
        )
    given = with_features(replace(graph, features=None), path).features
    assert given is not None
    without = [name for node, name in enumerate(new, first_new) if not given[node].any()]
    if without:
        warnings.warn(f"{path}: no features, or only zeros, for {some_names(without)}", stacklevel=2)
    if given.shape[1] != features.shape[1]:
        raise DataError(f"{path}: {given.shape[1]} features a node, where the model reads {features.shape[1]}")
    return replace(graph, features=np.concatenate([features[:first_new], given[first_new:]]))
