"""Open a model to query it by names: a trained model, or the pretrained model over any graph."""

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

from rgcn.config import DataConfig, validate_section
from rgcn.data import read
from rgcn.data.attributes import with_features
from rgcn.data.registry import cache_folder, path_or_dataset
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph, NodeKind
from rgcn.graph.titles import NameLookup, Titles, addressable_name
from rgcn.graph.vocabulary import match_relations, plain_name, quote_names
from rgcn.links.calibration import Calibration
from rgcn.links.calibration_fitting import DEFAULT_BUDGET, UNLIMITED_BUDGET
from rgcn.models.answer_kind import AnswerKind, ClassKind, kind_of, wrong_question_message
from rgcn.models.estimator import Estimator
from rgcn.models.growth import extended, grown_graph
from rgcn.models.link_classifier import LinkClassifier
from rgcn.models.link_predictor import LinkPredictor
from rgcn.models.storage import load_model
from rgcn.models.task import Task
from rgcn.nn.scorer import Scorer
from rgcn.plugins import ANSWER_KINDS
from rgcn.runs.assembly import check_data_unchanged, load_data, load_trained, titles_of
from rgcn.runs.folder import RunFolder
from rgcn.sampling.known_triples import KnownTriples
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import format_count
from rgcn.system.progress import Budget

PRETRAINED = "the pretrained model"
MODEL_FILES = ("run.json", "model.json", "series.json")  # a folder with one of these files is not a graph
KINDS = ("iri", "literal", "blank")
# Matches IRIs in a table, where a colon alone does not make an IRI ("12:30", "section:libs").
_IRI_IN_TABLE = re.compile(r"([a-z][a-z0-9+.-]*://|urn:)\S+", re.IGNORECASE)
CALIBRATION_FILE = "calibration.json"
CALIBRATION_VERSION = 6


@dataclass(frozen=True, eq=False)
class OpenModel:
    """A model with its graph and names for users.

    Args:
        path: Folder of the run or of the saved model; path or name of the graph of a pretrained model.
        name: Last part of the path.
        model: The model.
        titles: Titles of nodes, relations and classes.
        about: Content of run.json; empty for a model that was saved outside a run.
        result: Metrics of a finished run.
        data: How the graph was read, if that is known.
        new_nodes: Nodes that were added after training (`with_new_triples`).
        zero_shot_graph: The graph as it was read, for a pretrained model that is used without training.
    """

    path: Path
    name: str
    model: Estimator
    titles: Titles
    about: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    data: DataConfig | None = None
    new_nodes: tuple[int, ...] = ()
    zero_shot_graph: KnowledgeGraph | None = None

    @property
    def task(self) -> Task:
        """The task of the model."""
        return self.model.task_info

    @property
    def dataset(self) -> str:
        """The name of the data, without folders."""
        return (self.graph.name if self.data is None else self.data.title) or "unnamed"

    @property
    def classes(self) -> list[str]:
        """The names of the classes that it predicts; empty for other models."""
        return [name for kind in self.task.kinds for name in kind.classes(self.model)]

    def answers(self, kind: str | type[AnswerKind]) -> bool:
        """Return whether it answers a kind of questions: "classes", "links", or one of another package."""
        return kind_of(kind) in self.task.kinds

    def require_kind(self, kind: str | type[AnswerKind]) -> AnswerKind:
        """Return a kind of questions.

        Raises:
            DataError: If the model does not answer it; the message names models that do.
        """
        wanted = kind_of(kind)
        if wanted not in self.task.kinds:
            raise DataError(f"{self.path}: {wrong_question_message(self.task.kinds, wanted)}")
        return wanted

    def require_kind_for(self, named: str) -> AnswerKind:
        """Return the kind of questions about "nodes" or "triples".

        Raises:
            DataError: If the model answers no such questions.
        """
        known = map(kind_of, ANSWER_KINDS.names())
        found = next(kind for kind in (*self.task.kinds, *known) if kind.topic == named)
        return self.require_kind(type(found))

    @property
    def title(self) -> str:
        """The title of the model."""
        return str(self.model.model.title) if self.zero_shot_graph is None else PRETRAINED

    @property
    def source(self) -> dict[str, str]:
        """What was opened, for JSON."""
        path = str(self.path)
        return {"run": path} if self.zero_shot_graph is None else {"graph": path, "model": PRETRAINED}

    @property
    def folder(self) -> Path | None:
        """The folder for files that belong to the model; None for a pretrained model, which does not own the folder."""
        return self.path if self.zero_shot_graph is None else None

    @property
    def words(self) -> str:
        """A sentence for users: which model answers."""
        graph = self.zero_shot_graph
        if graph is None:
            return f"{self.title} of {self.path}"
        labels = 0 if graph.labels is None or not self.classes else len(graph.labels.of("train")[0])
        size = format_count(len(graph), "triple") + (f", {format_count(labels, 'label')}" if labels else "")
        return f"{PRETRAINED}, over {self.path} ({size}); nothing was trained"

    # -- the interface `AnsweringModel` --------------------------------------------------------------------

    @property
    def graph_(self) -> KnowledgeGraph:
        """The graph whose triples and labels are known."""
        return self.model.graph_

    graph = graph_

    @property
    def calibration_(self) -> Calibration:
        """How scores become probabilities."""
        return self.calibration

    @property
    def fingerprint_(self) -> str:
        """A hash of weights and graph."""
        return self.model.fingerprint_

    def scorer(self) -> Scorer:
        """Return the scorer of the model."""
        return self.model.scorer()

    def logits(self, nodes: Iterable[str | int]) -> Tensor:
        """Return the class scores of nodes, [n, C]."""
        return self.model.logits(nodes)

    # -- names -------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> NameLookup:
        """Finds nodes, relations and classes by what users type."""
        return NameLookup(self.titles)

    def node(self, text: str) -> int:
        """Return the id of the node that a text names."""
        return self.names.node(text)

    def relation(self, text: str) -> int:
        """Return the id of the relation that a text names."""
        return self.names.relation(text)

    def class_(self, text: str) -> int:
        """Return the id of the class that a text names."""
        return self.names.class_(text)

    def describe(self, node: int) -> dict[str, Any]:
        """Return name (`addressable_name`), title, description and kind of a node.

        The kind is that of the RDF term, or "name" for a plain name from a table.
        """
        name, kind = self.graph.nodes[node], KINDS[self.graph.kind(node)]
        is_iri = _IRI_IN_TABLE.fullmatch(name) if self.graph.node_kinds is None else ":" in name
        return {
            "name": addressable_name(name),
            "title": self.titles.of(node),
            "description": self.titles.description(node),
            "kind": kind if kind != "iri" or is_iri else "name",
        }

    def describe_relation(self, relation: int) -> dict[str, str]:
        """Return name and title of a relation."""
        return {"name": addressable_name(self.graph.relations[relation]), "title": self.titles.relation(relation)}

    def describe_class(self, number: int) -> dict[str, str]:
        """Return name and title of a class."""
        assert self.graph.labels is not None
        return {"name": addressable_name(self.graph.labels.names[number]), "title": self.titles.class_(number)}

    # -- probabilities -----------------------------------------------------------------------------------

    @cached_property
    def calibration(self) -> Calibration:
        """How scores become probabilities; fitted on first use, and stored with the model."""
        return load_or_fit_calibration(self.model, self.folder)

    def calibrate(self, bars: bool | None = False, patient: bool = False) -> None:
        """Fit `calibration` now, unless it is stored.

        Args:
            bars: Draw a progress bar; None: if standard error is a terminal.
            patient: Take as long as needed, and fit again if a stored calibration was cut short.
        """
        if patient or "calibration" not in self.__dict__:
            budget = replace(UNLIMITED_BUDGET if patient else DEFAULT_BUDGET, show_progress=bars)
            self.__dict__["calibration"] = load_or_fit_calibration(self.model, self.folder, budget)


def open_model(
    source: str | Path | KnowledgeGraph,
    *,
    mirror: Path | None = None,
    device: str = "auto",
    accept_changed_data: bool = False,
    classes: bool = False,
    **reading: Any,
) -> OpenModel:
    """Open a trained model, or any graph with the pretrained model.

    Args:
        source: Folder of a run or of a saved model, file or folder of triples, name of a data set, or a graph.
        mirror: Folder with copies of data sets.
        device: Where to compute.
        accept_changed_data: Open a run although its data have changed since.
        classes: For a graph: predict the classes of its labels instead of links.
        reading: For the files of a graph: how they are read, as in `rgcn.config.DataConfig`: labels, format, ...

    Returns:
        The opened model.

    Raises:
        ConfigError: If options for reading are given with a trained model or a data set.
        DataError: If the source cannot be read.

    >>> opened = open_model("world")
    >>> opened.task.name, opened.words
    ('link-prediction', 'the pretrained model, over world (33,290 triples); nothing was trained')
    """
    place = None if isinstance(source, KnowledgeGraph) else path_or_dataset(source)
    is_trained = isinstance(place, Path) and any((place / name).is_file() for name in MODEL_FILES)
    if reading and place is not None and (is_trained or not isinstance(place, Path)):
        what = f"{place} is a trained model, which keeps its graph" if is_trained else f"{source} is a data set"
        raise ConfigError(f"{', '.join(reading)} say how a file is read, and {what}: leave them out")
    data: DataConfig | None = None
    if isinstance(source, KnowledgeGraph):
        graph, path = source, source.name or "graph"
    elif isinstance(place, Path):
        if is_trained:
            return open_trained(place, mirror=mirror, device=device, accept_changed_data=accept_changed_data)
        options = {key: str(value) if isinstance(value, Path) else value for key, value in reading.items()}
        data, path = validate_section(DataConfig, {"path": str(place), **options}, f"how {place} is read"), str(place)
        try:
            graph = load_data(data)
        except DataError as error:
            if not place.is_dir():
                raise
            raise DataError(f"{place} is not a run (no run.json), and cannot be read as a graph: {error}") from error
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
    return OpenModel(Path(path), Path(path).resolve().name, model, titles, data=data, zero_shot_graph=graph)


def open_trained(
    folder: Path, *, mirror: Path | None = None, device: str = "auto", accept_changed_data: bool = False
) -> OpenModel:
    """Open a run, finished or not, or a folder that `save` wrote.

    The model answers from the copy of the graph that was saved with it.

    Args:
        folder: The folder.
        mirror: Folder with copies of data sets.
        device: Where to compute.
        accept_changed_data: Open a run although the data it was trained on have changed since. By default this is
            refused, because its answers are about the old data.

    Raises:
        DataError: If there is no model, or its data have changed.

    >>> import rgcn, tempfile
    >>> kg = rgcn.KnowledgeGraph.from_triples([("a", "knows", "b"), ("b", "knows", "c")], name="small")
    >>> folder = tempfile.mkdtemp()
    >>> rgcn.LinkPredictor("distmult", embedding=4, steps=1).fit(kg).save(folder)
    >>> opened = open_trained(Path(folder))
    >>> opened.task.name, opened.node("B"), opened.describe(2)["title"]
    ('link-prediction', 1, 'c')
    """
    run, name = RunFolder(folder), folder.resolve().name
    if (folder / "model.json").is_file() and not run.exists():
        model = load_model(folder, device=device)
        return OpenModel(folder, name, model, titles_of(model.graph_, None, mirror))
    run.check()
    if not accept_changed_data:
        check_data_unchanged(run)
    config = run.config()
    model = load_trained(run, mirror, device)
    titles = titles_of(model.graph_, config.data.dataset, mirror)
    return OpenModel(folder, name, model, titles, run.about(), run.result(), config.data)


def load_calibration(model: Estimator, folder: Path | None) -> tuple[Calibration | None, Path, str]:
    """Return (stored calibration or None, its file, its key); it is valid for the same weights and graph only."""
    fingerprint = model.fingerprint_
    key, found = f"{CALIBRATION_VERSION} {fingerprint}", None
    path = cache_folder() / "calibrations" / f"{fingerprint}.json" if folder is None else folder / CALIBRATION_FILE
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        found = Calibration.from_dict(values) if values.get("of") == key else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # the file is missing or damaged
        pass
    if found is not None and found.curve is not None and len(found.curve.offset) != 2 * model.graph_.num_relations:
        found = None
    return found, path, key


def load_or_fit_calibration(model: Estimator, folder: Path | None, budget: Budget = DEFAULT_BUDGET) -> Calibration:
    """Return the calibration of a model: the stored one, or a new one, which is stored if the folder is writable.

    A stored calibration is valid for the same weights and graph, so that repeated questions give the same answers.

    Args:
        model: The model.
        folder: Its folder; None for the cache folder of the user.
        budget: Time for a new calibration. Without a limit, a calibration that was cut short is fitted again.
    """
    found, path, key = load_calibration(model, folder)
    if found is None or (found.is_cut and math.isinf(budget.seconds)):
        found = model.calibrate(budget)
        if folder is None or folder.is_dir():  # a folder that was removed is not created again
            with suppress(OSError):  # the folder may be read-only
                write_atomically(path, json.dumps({"of": key, **found.as_dict()}, indent=2) + "\n")
    model.calibration_ = found
    return found


def with_new_triples(opened: OpenModel, path: str | Path, features: str | Path | None = None) -> OpenModel:
    """Return the model over its graph and new triples; unknown nodes are computed from their neighbors.

    The calibration stays that of the known nodes.

    Args:
        opened: The model.
        path: Triples of new nodes, among each other and with known ones, in any format of `rgcn.read`. Their relations
            must be known. Of data with splits the training triples are used.
        features: Table of the features of new nodes, for a model that reads features.

    Raises:
        DataError: If the model cannot answer for new nodes, or the file has no new triples.
    """
    why_not = opened.model.hooks_.why_not_extensible()
    if why_not is not None:
        raise DataError(f"{opened.path} cannot answer for new nodes: {why_not}")
    graph = _with_features(merge_new_triples(opened.graph, read(path), str(path)), opened.graph.num_nodes, features)
    larger = replace(
        opened,
        model=extended(opened.model, graph),
        titles=opened.titles.extend_to(graph),
        new_nodes=tuple(range(opened.graph.num_nodes, graph.num_nodes)),
    )
    larger.__dict__["calibration"] = larger.model.calibration_ = opened.calibration  # the trained weights are the same
    return larger


def merge_new_triples(known: KnowledgeGraph, new: KnowledgeGraph, source: str) -> KnowledgeGraph:
    """Return a graph with new training triples; new nodes are numbered after the known ones.

    Of a new graph with splits only the training triples are used. Known triples are not repeated.

    Args:
        known: The graph.
        new: The graph with new triples.
        source: Name of the new triples, for messages.

    Raises:
        DataError: If there are no new triples.

    >>> known = KnowledgeGraph.from_triples([("a", "r", "b")])
    >>> merge_new_triples(known, KnowledgeGraph.from_triples([("c", "r", "a"), ("a", "r", "b")]), "new.tsv").named()
    [('a', 'r', 'b'), ('c', 'r', 'a')]
    """
    rows = new.split_triples("train")
    if not len(rows):
        raise DataError(f"{source}: no triples in it")
    nodes = dict(zip(known.nodes, range(known.num_nodes), strict=True))
    node_ids = np.full(new.num_nodes, -1, dtype=np.int64)
    for node in dict.fromkeys(rows[:, [0, 2]].ravel().tolist()):
        name = new.nodes[node]
        if new.kind(node) is NodeKind.BLANK:
            while name in nodes:  # a blank node is never the same as one of another file
                name += "'"
        elif name not in nodes:
            name = plain_name(name, "node")
        node_ids[node] = nodes.setdefault(name, len(nodes))
    relations = match_relations(known.relations, new.relations, np.unique(rows[:, 1]), source)
    triples = np.stack([node_ids[rows[:, 0]], relations[rows[:, 1]], node_ids[rows[:, 2]]], axis=1)
    triples = triples[np.sort(np.unique(triples, axis=0, return_index=True)[1])]  # each once, in the order of the file
    sizes = {"num_nodes": len(nodes), "num_relations": known.num_relations}
    index = KnownTriples.of(torch.tensor(known.split_triples("train")), **sizes)
    triples = triples[~index.contains(torch.from_numpy(triples)).numpy()]
    if not len(triples):
        raise DataError(f"{source}: no new triples: the graph of the model has all of them")
    kinds = None
    if known.node_kinds is not None or new.node_kinds is not None:
        kinds = np.zeros(len(nodes), dtype=np.uint8)
        if new.node_kinds is not None:
            kinds[node_ids[node_ids >= 0]] = new.node_kinds[node_ids >= 0]
        kinds[: known.num_nodes] = 0 if known.node_kinds is None else known.node_kinds
    return grown_graph(known, nodes, triples, node_kinds=kinds)


def _with_features(graph: KnowledgeGraph, first_new: int, path: str | Path | None) -> KnowledgeGraph:
    """Return the graph with the features of new nodes from a table."""
    new, features = graph.nodes[first_new:], graph.features
    if not new or features is None:
        return graph
    if path is None:
        raise DataError(
            f"the model reads features, and {quote_names(new)} {'have' if len(new) > 1 else 'has'} none: give a table "
            "of them with --with-features (name, then numbers)"
        )
    read_features = with_features(replace(graph, features=None), path).features
    assert read_features is not None
    without = [name for node, name in enumerate(new, first_new) if not read_features[node].any()]
    if without:
        warnings.warn(f"{path}: no features, or only zeros, for {quote_names(without)}", stacklevel=2)
    if read_features.shape[1] != features.shape[1]:
        raise DataError(f"{path}: {read_features.shape[1]} features a node, where the model reads {features.shape[1]}")
    return replace(graph, features=np.concatenate([features[:first_new], read_features[first_new:]]))
