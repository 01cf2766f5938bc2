"""How much one request, one client and all of them together may take: against those who ask for too much."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Every bound of the server, with its default.

    body         bytes of a request's body
    items        questions in one request: nodes, queries or triples
    k            links in the answer to one question, and rows of a page of facts or of search results
    links        links in one answer, over all its questions
    name         characters of a name or of a search
    seconds      until a request that is not answered gets 503
    waiting      requests that may wait for the model before others get 503
    questions    of those requests together that may wait before further requests with many get 503
    explaining   requests that may wait for an explanation before others get 503
    connections  open at once; further ones get 503
    head         bytes of a request's first line and headers
    slow         seconds a client may take to send a request, or to read its answer
    idle         seconds a connection may stay open with nothing asked
    stopping     seconds that requests under way have to finish once the server is asked to stop
    """

    body: int = 1 << 20
    items: int = 1000
    k: int = 1000
    links: int = 20_000
    name: int = 2000
    seconds: float = 30.0
    waiting: int = 512
    questions: int = 20_000
    explaining: int = 16
    connections: int = 1000
    head: int = 32 << 10
    slow: float = 10.0
    idle: float = 30.0
    stopping: float = 10.0
