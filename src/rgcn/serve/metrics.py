"""Figures for Prometheus: who asks what, how long it takes, how much waits. No label takes what a client sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from rgcn.serve.batching import Lane
from rgcn.serve.served import Served

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096)


class Metrics:
    """A registry of its own, so that two servers in one process do not count each other's requests."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._requests = Counter(
            "rgcn_requests", "Requests answered.", ("endpoint", "method", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "rgcn_request_seconds",
            "Time from a request's headers to the end of its answer.",
            ("endpoint",),
            buckets=SECONDS,
            registry=self.registry,
        )
        self._batches = Histogram(
            "rgcn_batch_questions",
            "Questions answered together.",
            ("model", "kind"),
            buckets=SIZES,
            registry=self.registry,
        )
        self._in_flight = Gauge("rgcn_in_flight", "Requests being answered.", registry=self.registry)
        self.in_flight = 0
        self._in_flight.set_function(lambda: float(self.in_flight))
        # Looking a child up by its labels takes a lock and builds a tuple of strings: remembered instead.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._batch_children: dict[object, Histogram] = {}

    def watch(self, name: str, words: str, value: Callable[[], float]) -> None:
        """A gauge that is read when somebody asks."""
        Gauge(name, words, registry=self.registry).set_function(value)

    def served(self, models: Iterable[Served]) -> None:
        """Which models there are."""
        info = Gauge("rgcn_model_info", "A served model.", ("model", "task", "dataset"), registry=self.registry)
        for model in models:
            dataset = str(model.opened.about.get("dataset") or model.graph.name)
            info.labels(model.name, model.opened.task.name, dataset).set(1)

    def request(self, endpoint: str, method: str, status: int, seconds: float) -> None:
        """One answered request; `endpoint` is a route's pattern, never the path that was asked for."""
        key = (endpoint, method if method in METHODS else "other", status)
        children = self._children.get(key)
        if children is None:
            children = (self._requests.labels(key[0], key[1], str(status)), self._seconds.labels(endpoint))
            self._children[key] = children
        children[0].inc()
        children[1].observe(seconds)

    def batch(self, lane: Lane, size: int) -> None:
        """One call of the model; called in its thread."""
        child = self._batch_children.get(lane.key)
        if child is None:
            child = self._batch_children[lane.key] = self._batches.labels(*lane.key)
        child.observe(size)

    def text(self) -> bytes:
        return generate_latest(self.registry)


CONTENT_TYPE = CONTENT_TYPE_LATEST
