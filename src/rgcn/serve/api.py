"""The endpoints: thin, each a look-up or a question to the model's thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Body, FastAPI, Path, Query
from fastapi.responses import PlainTextResponse

import rgcn
from rgcn.errors import close_matches
from rgcn.predict.opened import CLASSIFIES, PREDICTS_LINKS
from rgcn.serve import answers
from rgcn.serve.about import card, details, explain_methods, line
from rgcn.serve.asked import (
    ClassesBody,
    ClassQuery,
    ExplainQuery,
    LinkQuestion,
    LinksBody,
    LinksQuery,
    NeighborsQuery,
    ScoreBody,
    SearchQuery,
)
from rgcn.serve.batching import Batcher, Lane
from rgcn.serve.explanations import Explanations, WhyAsked
from rgcn.serve.limits import Limits
from rgcn.serve.refusals import Refusal, shortened
from rgcn.serve.route import Answer
from rgcn.serve.served import LinkAsked, Served, TripleAsked
from rgcn.serve.writing import as_json, listed

Model = Annotated[str, Path(description="A served model; `/api/models` lists them.")]
MARKDOWN = b"text/markdown; charset=utf-8"
RESOLVED_AT_ONCE = 100
Named = TypeVar("Named")
Resolved = TypeVar("Resolved")


class Api:
    """The served models and what can be asked of them."""

    def __init__(self, models: Iterable[Served], quick: Batcher, slow: Batcher, limits: Limits) -> None:
        self.models = {served.name: served for served in models}
        self.limits, self.quick, self.slow = limits, quick, slow
        self.explanations = Explanations(self.models)
        self._began = time.monotonic()
        self._resolving = asyncio.Lock()
        self._why = Lane(("any", "explain"), self.explanations.answer, most=1)
        self._list = as_json({"models": [line(served) for served in self.models.values()]})
        self._details = {name: as_json(details(served)) for name, served in self.models.items()}
        self._cards = {name: card(served).encode() for name, served in self.models.items()}
        self._methods = {name: explain_methods(served) for name, served in self.models.items()}

    def _model(self, name: str, task: str | None = None) -> Served:
        served = self.models.get(name)
        if served is None:
            near = close_matches(name[:100], self.models)
            there = ", ".join(map(repr, self.models))
            raise Refusal("unknown_model", f"unknown model {shortened(name)}: this server has {there}", near)
        if task is not None:
            served.must(task)
        return served

    async def _resolved(self, named: Sequence[Named], resolve: Callable[[Named], Resolved]) -> list[Resolved]:
        """Names of a long request to numbers: a few, then others have their turn, one such request at a time.

        Were all of them under way at once, each turn of the event loop would be a part of every one.
        """
        self.quick.check_room(len(named))
        found: list[Resolved] = []
        async with self._resolving:
            for at in range(0, len(named), RESOLVED_AT_ONCE):
                if at:
                    await asyncio.sleep(0)
                found += map(resolve, named[at : at + RESOLVED_AT_ONCE])
        return found

    # -- the server and its models -----------------------------------------------------------------------

    async def health(self) -> Answer:
        """Whether the server is up, since when, and with which models."""
        uptime = round(time.monotonic() - self._began, 1)
        status = {"status": "ok", "version": rgcn.__version__, "uptime_s": uptime, "models": list(self.models)}
        return Answer(as_json(status))

    async def list_models(self) -> Answer:
        """The served models, a line each."""
        return Answer(self._list)

    async def model_details(self, model: Model) -> Answer:
        """A model's figures, its relations and classes, and something to begin with."""
        return Answer(self._details[self._model(model).name])

    async def model_card(self, model: Model) -> Answer:
        """What the model is, what it is good for and how it was made, in Markdown."""
        return Answer(self._cards[self._model(model).name], MARKDOWN)

    # -- the graph ---------------------------------------------------------------------------------------

    async def search(self, model: Model, query: Annotated[SearchQuery, Query()]) -> Answer:
        """Nodes by a part of their name or title, best first."""
        served = self._model(model)
        if served.names.finds_quickly:
            nodes = served.names.find(query.q, query.limit)
        else:
            nodes = (await self.quick.ask(served.searches, [(query.q, query.limit)]))[0]
        return Answer(served.searched(query.q, nodes))

    async def neighbors(self, model: Model, query: Annotated[NeighborsQuery, Query()]) -> Answer:
        """The facts the graph has about a node: what it is the subject of first."""
        served = self._model(model)
        return Answer(served.neighbors(served.names.node(query.node), query.limit, query.offset))

    # -- classes -----------------------------------------------------------------------------------------

    async def predict_class(self, model: Model, query: Annotated[ClassQuery, Query()]) -> Answer:
        """The class a node most likely has, and how likely every other one is."""
        served = self._model(model, CLASSIFIES)
        return Answer(served.class_of(served.names.node(query.node)))

    async def predict_classes(self, model: Model, body: Annotated[ClassesBody, Body()]) -> Answer:
        """The classes of many nodes."""
        served = self._model(model, CLASSIFIES)
        found = await self.quick.ask(served.classes, await self._resolved(body.nodes, served.names.node))
        return Answer(b'{"predictions":' + listed(found) + b"}")

    # -- links -------------------------------------------------------------------------------------------

    async def predict_links(self, model: Model, query: Annotated[LinksQuery, Query()]) -> Answer:
        """The most likely missing end of a triple: of (subject, relation, ?) or (?, relation, object)."""
        served = self._model(model, PREDICTS_LINKS)
        lane = served.links(query.known, query.k)
        return Answer((await self.quick.ask(lane, [self._asked(served, query, query.k)]))[0])

    async def predict_many_links(self, model: Model, body: Annotated[LinksBody, Body()]) -> Answer:
        """The most likely missing ends of many triples."""
        served = self._model(model, PREDICTS_LINKS)
        rows = len(body.queries) * min(body.k, served.graph.num_nodes)
        if rows > self.limits.links:
            words = f"{len(body.queries):,} queries with k = {body.k:,} are {rows:,} links"
            raise Refusal(
                "invalid", f"{words}; one answer holds at most {self.limits.links:,}: ask in several requests"
            )
        asked = await self._resolved(body.queries, lambda query: self._asked(served, query, body.k))
        found = await self.quick.ask(served.links(body.known, body.k), asked)
        return Answer(b'{"answers":' + listed(found) + b"}")

    def _asked(self, served: Served, query: LinksQuery | LinkQuestion, k: int) -> LinkAsked:
        for_objects = query.subject is not None
        given = query.subject if for_objects else query.object
        assert given is not None
        return LinkAsked(served.names.node(given), served.names.relation(query.relation), for_objects, k)

    async def score(self, model: Model, body: Annotated[ScoreBody, Body()]) -> Answer:
        """How likely given triples are, and whether the graph has them."""
        served = self._model(model, PREDICTS_LINKS)
        names = served.names
        asked = await self._resolved(
            body.triples,
            lambda named: TripleAsked(
                names.node(named.subject), names.relation(named.relation), names.node(named.object)
            ),
        )
        return Answer(served.scored(list(await self.quick.ask(served.scores, asked))))

    # -- why ---------------------------------------------------------------------------------------------

    async def explain(self, model: Model, query: Annotated[ExplainQuery, Query()]) -> Answer:
        """The triples that decided a node's class or a triple's score, and how far that can be believed."""
        served = self._model(model)
        question = self._why_asked(served, query)
        if query.method not in self._methods[served.name]:
            words = f"the model {served.name!r} looks at no neighbors: there are no triples that decided its answers"
            raise Refusal("cannot_explain", words)
        made = self.explanations.made(question)
        return Answer(made or (await self.slow.ask(self._why, [question]))[0])

    def _why_asked(self, served: Served, query: ExplainQuery) -> WhyAsked:
        names, how = served.names, (served.name, query.method, query.edges)
        if query.node is not None:
            served.must(CLASSIFIES)
            class_ = None if query.class_ is None else names.class_(query.class_)
            return WhyAsked(*how, node=names.node(query.node), class_=class_)
        served.must(PREDICTS_LINKS)
        assert query.subject is not None
        assert query.relation is not None
        assert query.object is not None
        ends = names.node(query.subject), names.relation(query.relation), names.node(query.object)
        return WhyAsked(*how, subject=ends[0], relation=ends[1], object=ends[2])


REFUSED = {
    400: "The request is malformed.",
    401: "A token is needed, or this is not the one.",
    403: "The server does not answer to this host, or to another web site.",
    404: "A model, node, relation or class of this name is not there.",
    408: "The body took too long to arrive.",
    409: "The model is of the other task.",
    413: "The body is too large.",
    415: "The body is not sent as JSON.",
    422: "A parameter is missing, unknown or out of bounds, or names several things.",
    503: "Too many requests wait, or the answer took too long; try again after the seconds of Retry-After.",
}
EVERYWHERE = (400, 401, 403, 422)


def _refusals(*further: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of an endpoint, for OpenAPI."""
    statuses = sorted({*EVERYWHERE, *further})
    return {status: {"model": answers.Error, "description": REFUSED[status]} for status in statuses}


def add_routes(app: FastAPI, api: Api) -> None:
    """Every endpoint with the shape of its answer; those asked most often first, since routes are tried in order."""
    of_model, on_model, worked = _refusals(404), _refusals(404, 409), _refusals(404, 409, 503)
    posted = _refusals(404, 408, 409, 413, 415, 503)

    def get(path: str, handler: Callable[..., Any], answer: type, refused: dict[int | str, Any], tag: str) -> None:
        app.add_api_route(path, handler, methods=["GET"], response_model=answer, responses=refused, tags=[tag])

    def post(path: str, handler: Callable[..., Any], answer: type, tag: str) -> None:
        app.add_api_route(path, handler, methods=["POST"], response_model=answer, responses=posted, tags=[tag])

    one = "/api/models/{model}"
    get(one + "/links", api.predict_links, answers.LinkAnswer, worked, "links")
    get(one + "/search", api.search, answers.Found, _refusals(404, 503), "graph")
    get(one + "/class", api.predict_class, answers.ClassAnswer, on_model, "classes")
    get(one + "/neighbors", api.neighbors, answers.Neighbors, of_model, "graph")
    post(one + "/links", api.predict_many_links, answers.LinkAnswers, "links")
    post(one + "/score", api.score, answers.Scores, "links")
    post(one + "/classes", api.predict_classes, answers.ClassAnswers, "classes")
    get(one + "/explain", api.explain, answers.Explained, worked, "why")
    get("/api/health", api.health, answers.Health, _refusals(), "server")
    get("/api/models", api.list_models, answers.Models, _refusals(), "server")
    get(one, api.model_details, answers.ModelDetails, of_model, "server")
    markdown: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/markdown": {"schema": {"type": "string"}}}, "description": "Markdown."}
    }
    app.add_api_route(
        one + "/card",
        api.model_card,
        methods=["GET"],
        response_model=None,
        response_class=PlainTextResponse,
        responses={**of_model, **markdown},
        tags=["server"],
    )
