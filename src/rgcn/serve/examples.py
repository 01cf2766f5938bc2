"""Examples for the OpenAPI document, taken from a served model: what is shown there works when it is tried."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import rgcn
from rgcn.predict.opened import CLASSIFIES
from rgcn.serve.about import details, example_nodes, example_relation, line
from rgcn.serve.refusals import Refusal
from rgcn.serve.served import LinkAsked, Served, TripleAsked

FEW = 2


class Example(NamedTuple):
    """Parameters, body and answer of one request; None where there is none, or none that works."""

    query: dict[str, Any]
    body: Any = None
    answer: Any = None


class Shown:
    """The names that a model's examples are about."""

    def __init__(self, served: Served) -> None:
        self.served, graph = served, served.graph
        self._node, *others = example_nodes(served)
        self._relation = example_relation(served, self._node) or 0
        self.node = graph.nodes[self._node]
        self.relation = graph.relations[self._relation] if graph.num_relations else "a relation"
        self._object = self._an_object(others[0] if others else self._node)
        self.object = graph.nodes[self._object]
        self.classifies = served.opened.task == CLASSIFIES
        labels = graph.labels
        class_ = labels.names[0] if labels is not None and len(labels.names) else "a class"
        self.words = {
            "q": served.opened.titles.of(self._node)[:4],
            "node": self.node,
            "class": class_,
            "subject": self.node,
            "relation": self.relation,
            "object": self.object,
        }

    def _an_object(self, otherwise: int) -> int:
        """Something that the example node is linked to by the example relation."""
        triples = self.served.graph.triples
        linked = triples[(triples[:, 0] == self._node) & (triples[:, 1] == self._relation), 2]
        return int(linked[0]) if len(linked) else otherwise

    def of(self, endpoint: str) -> Example:
        """The example of an endpoint, by the end of its path and its method: "GET links", "POST score"."""
        served, answer = self.served, json.loads
        triple = {"subject": self.node, "relation": self.relation, "object": self.object}
        ends = {"subject": self.node, "relation": self.relation}
        if endpoint == "GET search":
            query = self.words["q"]
            return Example({"q": query}, None, answer(served.searched(query, served.names.find(query, FEW))))
        if endpoint == "GET neighbors":
            return Example({"node": self.node}, None, answer(served.neighbors(self._node, FEW, 0)))
        if endpoint == "GET explain":
            return Example({"node": self.node} if self.classifies else triple)
        if endpoint == "GET links":
            return Example({**ends, "k": FEW}, None, None if self.classifies else self._links(FEW))
        if endpoint == "POST links":
            found = None if self.classifies else {"answers": [self._links(FEW)]}
            return Example({}, {"queries": [ends], "k": FEW}, found)
        if endpoint == "POST score":
            return Example({}, {"triples": [triple]}, None if self.classifies else self._scores())
        if endpoint == "GET class":
            found = answer(served.class_of(self._node)) if self.classifies else None
            return Example({"node": self.node}, None, found)
        if endpoint == "POST classes":
            found = {"predictions": [answer(served.class_of(self._node))]} if self.classifies else None
            return Example({}, {"nodes": [self.node]}, found)
        return Example({}, None, self._about(endpoint))

    def _links(self, k: int) -> Any:
        return json.loads(self.served.answer_links([LinkAsked(self._node, self._relation, True, k)], "mark")[0])

    def _scores(self) -> Any:
        found = self.served.answer_scores([TripleAsked(self._node, self._relation, self._object)])
        return json.loads(self.served.scored(found))

    def _about(self, endpoint: str) -> Any:
        if endpoint == "GET health":
            return {"status": "ok", "version": rgcn.__version__, "uptime_s": 12.5, "models": [self.served.name]}
        if endpoint == "GET models":
            return {"models": [line(self.served)]}
        if endpoint == "GET card":
            return f"# {self.served.name}\n"
        whole = details(self.served)
        return {**whole, **{key: whole[key][:FEW] for key in ("relations", "classes")}}

    def refused(self, status: int) -> Any:
        """What an error of this status may look like."""
        wrong = self.node[:2] + self.node[3:] if len(self.node) > 3 else self.node + "x"
        not_here = "this server does not answer to 'example.org': use localhost, or start it with --allow-host"
        cases = {
            400: Refusal("bad_request", "the query is not UTF-8: encode names as UTF-8 before percent-encoding"),
            401: Refusal("unauthorized", "a token is needed: send the header Authorization: Bearer TOKEN"),
            403: Refusal("wrong_host", f"{not_here} example.org"),
            404: Refusal("unknown_node", f"unknown node {wrong!r}. Did you mean {self.node!r}?", [self.node]),
            408: Refusal("too_slow", "the body did not arrive within 10 seconds: send it faster, or less of it"),
            409: Refusal("wrong_task", f"the model {self.served.name!r} does not do this: ask another model"),
            413: Refusal("too_large", "the body is larger than 1,048,576 bytes: ask in several requests"),
            415: Refusal("wrong_content_type", "send the body as Content-Type: application/json; it was none"),
            422: Refusal("invalid", "unknown parameter 'nod'. Did you mean 'node'?", ["node"]),
            503: Refusal("too_busy", "the model is busy and 512 requests wait already: try again in a moment"),
        }
        return json.loads(cases[status].body())
