"""What every model can be asked: who it is, nodes by a part of their name, and their facts."""

from functools import lru_cache, partial
from itertools import starmap
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import asdict, replace
from numpy.typing import NDArray
from pydantic import Field
from starlette.responses import Response

from rgcn.errors import RgcnError
from rgcn.explain import methods_of
from rgcn.graph import SPLITS, KnowledgeGraph
from rgcn.nn.universal_network import shipped_card
from rgcn.pages.run_report import model_card
from rgcn.runs.folder import RunFolder
from rgcn.sampling.known_triples import AT_ONCE
from rgcn.serve.batching import Desk, Lane
from rgcn.serve.schemas import AnswerShape, AtMost, Class, Count, Node, NodeName, Number, QuestionShape, Relation, Split
from rgcn.serve.served_model import Endpoints, Example, OnStep, Served, Shown, endpoint

FEW, REMEMBERED = 2, 64


class SearchQuery(QuestionShape):
    q: Annotated[str, AtMost("name")] = Field(description="A part of a name or title. An empty one finds nothing.")
    limit: Count = Field(10, description="How many nodes at most.")


class NeighborsQuery(QuestionShape):
    node: NodeName
    limit: Count = Field(50, description="How many facts at most.")
    offset: Annotated[int, Field(ge=0, le=10**9), Number] = Field(0, description="How many facts to leave out first.")


class RelationWithCount(Relation):
    count: Annotated[int, Meta(description="Triples of this relation in the graph.")]


class ClassWithCount(Class):
    count: Annotated[int, Meta(description="Nodes labelled with this class.")]


class GraphCounts(AnswerShape):
    nodes: int
    relations: int
    triples: int
    classes: int


class ModelLine(AnswerShape):
    """A served model in a line."""

    name: str
    task: str
    answers: Annotated[list[str], Meta(description="Kinds of questions it answers: `classes`, `links`.")]
    model: str
    dataset: str
    counts: GraphCounts
    headline: Annotated[str, Meta(description="The figure it is judged by, in words.")]


class ModelExamples(AnswerShape):
    """Something to begin with."""

    nodes: list[Node]
    relation: str | None


Calibrated = Annotated[dict[str, Any], Meta(description="How scores become probabilities, and how well that works.")]


class ModelDetails(ModelLine):
    """Everything about a model that a page or a program needs to begin."""

    seed: int | None
    created: str | None
    metrics: dict[str, dict[str, Any]]
    relations: list[RelationWithCount]
    classes: list[ClassWithCount]
    calibration: Calibrated
    explain_methods: Annotated[list[str], Meta(description="Empty where the model looks at no neighbors.")]
    examples: ModelExamples


class NodeWithDegree(Node):
    """A node, and the number of triples it takes part in."""

    degree: int


class Found(AnswerShape):
    query: str
    nodes: list[NodeWithDegree]


class Fact(AnswerShape):
    """A triple seen from a node."""

    relation: Relation
    node: Annotated[Node, Meta(description="The other end.")]
    outgoing: Annotated[bool, Meta(description="Whether the node asked about is the subject.")]
    split: Annotated[Split | None, Meta(description="What the triple was used for, where the graph has splits.")]


class Neighbors(AnswerShape):
    node: Node
    degree: Annotated[int, Meta(description="Triples the node takes part in.")]
    total: Annotated[int, Meta(description="Facts there are to page through.")]
    facts: list[Fact]


class GraphEndpoints(Endpoints):
    """/search, /neighbors, /card and the model itself. Details and card are made once, when the model is loaded."""

    tag = "graph"

    def __init__(self, served: Served, on_step: OnStep) -> None:
        super().__init__(served, on_step)
        self.searches = Lane((served.name, "search"), partial(starmap, served.names.find), 8)
        self._facts, self._details = Facts(served.graph), details(served)
        self._card = Response(card(served), media_type="text/markdown")

    @endpoint("GET", "")
    async def model_details(self, desk: Desk) -> ModelDetails:
        """A model's figures, its relations and classes, and something to begin with."""
        return replace(self._details, calibration=self.served.calibration.as_dict())

    @endpoint("GET", "card")
    async def model_card(self, desk: Desk) -> Response:
        """What the model is, what it is good for and how it was made, in Markdown."""
        return self._card

    @endpoint("GET", "search")
    async def search(self, desk: Desk, query: SearchQuery) -> Found:
        """Nodes by a part of their name or title, best first."""
        if self.served.names.finds_quickly:
            return self._found(query.q, self.served.names.find(query.q, query.limit))
        return self._found(query.q, (await desk.ask(self.searches, [(query.q, query.limit)]))[0])

    @endpoint("GET", "neighbors")
    async def neighbors(self, desk: Desk, query: NeighborsQuery) -> Neighbors:
        """The facts the graph has about a node: what it is the subject of first."""
        return self._around(self.served.names.node(query.node), query.limit, query.offset)

    def examples(self, shown: Shown) -> dict[str, Example]:
        about, query, node = self._details, shown.words["q"], shown.words["node"]
        few = replace(about, relations=about.relations[:FEW], classes=about.classes[:FEW])
        return {
            "GET ": ({}, few),
            "GET card": ({}, f"# {self.served.name}\n"),
            "GET search": ({"q": query}, self._found(query, self.served.names.find(query, FEW))),
            "GET neighbors": ({"node": node}, self._around(shown.nodes[0], FEW, 0)),
        }

    def _found(self, query: str, nodes: list[int]) -> Found:
        found = zip(map(self.served.node, nodes), self._facts.degree(nodes), strict=True)
        return Found(query, [NodeWithDegree(**asdict(node), degree=degree) for node, degree in found])

    def _around(self, number: int, limit: int, offset: int) -> Neighbors:
        node, relations, known = self.served.node, self.served.relations, self._facts
        page = known.page(number, limit, offset)
        facts = [Fact(relations[relation], node(other), outgoing, split) for relation, other, outgoing, split in page]
        return Neighbors(node(number), known.degree([number])[0], known.total(number), facts)


class Facts:
    """Every node's triples, outgoing ones first, then by relation: a page is a slice."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.graph = graph
        _ = graph._incidence  # made now where it is not stored: nobody waits for it later
        self._of = lru_cache(REMEMBERED)(self._sorted)
        parts = (graph.triples_at(slice(first, first + AT_ONCE)) for first in range(0, len(graph), AT_ONCE))
        loops = [np.empty(0, np.int64), *(part[part[:, 0] == part[:, 2], 0] for part in parts)]
        nodes, counts = np.unique(np.concatenate(loops), return_counts=True)
        self._loops = dict(zip(nodes.tolist(), counts.tolist(), strict=True))

    def degree(self, nodes: list[int]) -> list[int]:
        """Triples that each takes part in; one with itself counts once."""
        touching = self.graph.num_touching(np.array(nodes, dtype=np.int64)).tolist()
        return [count - self._loops.get(node, 0) for node, count in zip(nodes, touching, strict=True)]

    def total(self, node: int) -> int:
        return int(self.graph.num_touching(np.array([node]))[0])

    def _sorted(self, node: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(rows in the graph's triples, which of them are outgoing)."""
        touching = np.unique(self.graph.touching_one(node))
        subject, relation, object_ = self.graph.triples_at(touching).T
        out, inward = np.flatnonzero(subject == node), np.flatnonzero(object_ == node)
        order = [some[np.argsort(relation[some], kind="stable")] for some in (out, inward)]
        return touching[np.concatenate(order)], np.repeat([True, False], [len(out), len(inward)])

    def page(self, node: int, limit: int, offset: int) -> list[tuple[int, int, bool, Any]]:
        """Some of a node's facts: (relation, the other end, outgoing, split) each."""
        (rows, outgoing), asked, splits = self._of(node), slice(offset, offset + limit), self.graph.triple_splits
        rows = rows[asked]
        used = [None] * len(rows) if splits is None else [SPLITS[split] for split in splits[rows].tolist()]
        triples = zip(self.graph.triples_at(rows).tolist(), outgoing[asked].tolist(), used, strict=True)
        return [(r, o if out else s, out, split) for (s, r, o), out, split in triples]


def line(served: Served) -> ModelLine:
    """The model in the list of models."""
    graph, opened = served.graph, served.opened
    counts = GraphCounts(graph.num_nodes, graph.num_relations, graph.num_triples, len(opened.classes))
    metric, metrics = opened.task.headline, (opened.result or {}).get("metrics") or {}
    figures = ((split, (metrics.get(split) or {}).get(metric.name)) for split in ("test", "valid"))
    words = (f"{split} {metric.title} {metric.words(value)}" for split, value in figures if value is not None)
    kinds = [kind.name for kind in opened.task.kinds]
    about = (served.name, opened.task.name, kinds, opened.title, opened.dataset, counts)
    return ModelLine(*about, next(words, "not measured" if opened.untrained is None else "nothing was trained"))


def details(served: Served) -> ModelDetails:
    """The line, and everything to begin with."""
    graph, opened, shown = served.graph, served.opened, served.shown
    labels = graph.labels if opened.classes else None
    relations = graph.relation_counts.tolist()
    classes = [] if labels is None else np.bincount(labels.classes, minlength=labels.num_classes).tolist()
    return ModelDetails(
        **asdict(line(served)),
        seed=opened.about.get("seed", opened.model.seed),
        created=opened.about.get("created"),
        metrics=(opened.result or {}).get("metrics") or {},
        relations=[RelationWithCount(r.name, r.title, n) for r, n in zip(served.relations, relations, strict=True)],
        classes=[ClassWithCount(c.name, c.title, n) for c, n in zip(served.classes, classes, strict=False)],
        calibration=served.calibration.as_dict(),
        explain_methods=list(methods_of(opened)),
        examples=ModelExamples(list(map(served.node, shown.nodes)), shown.words.get("relation")),
    )


def card(served: Served) -> str:
    """The model card in Markdown; a few words where there was no run to make one of."""
    about, graph = line(served), served.graph
    counts = f"{graph.num_nodes:,} nodes, {graph.num_relations:,} relations, {graph.num_triples:,} triples"
    words = f"A {about.model} model for {about.task}, saved outside a run, over {about.dataset} ({counts})."
    if served.opened.untrained is not None:
        card = shipped_card()
        limits = "".join(f"\n- {limit}" for limit in card.get("limits", ()))
        learned = f"It learned from other graphs: {', '.join(card.get('learned_from', ()))}."
        words = f"For {about.task}: {about.model}, over {about.dataset}; nothing was trained. It knows {counts}. "
        words += f"{learned}\n{limits}"
    try:
        if served.opened.about:
            return model_card(RunFolder(served.opened.path), served.opened.model)
    except RgcnError:  # its words would name a folder of this machine
        words = "No card could be made: the run's folder is damaged or gone."
    return f"# {served.name}\n\n{words}\n"
