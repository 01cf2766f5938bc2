"""How much one request, one client and all of them together may take: against those who ask for too much."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Every bound of the server, with its default."""

    body: int = 1 << 20  # bytes of a request's body
    items: int = 1000  # questions in one request: nodes, queries or triples
    k: int = 1000  # links in the answer to one question, and rows of a page of facts or of search results
    links: int = 20_000  # links in one answer, over all its questions
    name: int = 2000  # characters of a name or of a search
    seconds: float = 30.0  # until a request that is not answered gets 503
    waiting: int = 512  # requests that may wait for the model before others get 503
    questions: int = 20_000  # of those requests together that may wait before further requests with many get 503
    explaining: int = 16  # requests that may wait for an explanation before others get 503
    connections: int = 1000  # open at once; further ones get 503
    head: int = 32 << 10  # bytes of a request's first line and headers
    slow: float = 10.0  # seconds a client may take to send a request, or to read its answer
    idle: float = 30.0  # seconds a connection may stay open with nothing asked
    stopping: float = 10.0  # seconds that requests under way have to finish once the server is asked to stop
