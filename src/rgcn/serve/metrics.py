"""Figures for Prometheus: who asks what, how long it takes, how much waits. No label takes what a client sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, PlatformCollector, ProcessCollector

from rgcn.serve.batching import Lane
from rgcn.serve.served import Served

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"})
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096)
TIME_WORDS = "Time from a request's headers to the end of its answer."
BATCH_WORDS = "Questions answered together."


class ServerMetrics:
    """A registry of its own, so that two servers in one process do not count each other's requests."""

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        ProcessCollector(registry=own)
        PlatformCollector(registry=own)
        labels = ("endpoint", "method", "status")
        self._requests = Counter("rgcn_requests", "Requests answered.", labels, registry=own)
        self._seconds = Histogram("rgcn_request_seconds", TIME_WORDS, labels[:1], buckets=SECONDS, registry=own)
        lane = ("model", "kind")
        self._batches = Histogram("rgcn_batch_questions", BATCH_WORDS, lane, buckets=SIZES, registry=own)
        self.in_flight = 0
        self.watch("rgcn_in_flight", "Requests being answered.", lambda: self.in_flight)
        # Looking a child up by its labels takes a lock and builds a tuple of strings: remembered instead.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    def watch(self, name: str, words: str, value: Callable[[], int]) -> None:
        """A gauge that is read when somebody asks."""
        Gauge(name, words, registry=self.registry).set_function(value)

    def served(self, models: Iterable[Served]) -> None:
        info = Gauge("rgcn_model_info", "A served model.", ("model", "task", "dataset"), registry=self.registry)
        for model in models:
            dataset = str(model.opened.about.get("dataset") or model.graph.name)
            info.labels(model.name, model.opened.task.name, dataset).set(1)

    def request(self, endpoint: str, method: str, status: int, seconds: float) -> None:
        """One answered request; `endpoint` is a route's pattern, never the path that was asked for."""
        key = (endpoint, method if method in METHODS else "other", status)
        if key not in self._children:
            self._children[key] = (self._requests.labels(*map(str, key)), self._seconds.labels(endpoint))
        count, times = self._children[key]
        count.inc()
        times.observe(seconds)

    def batch(self, lane: Lane, size: int) -> None:
        """One call of the model; called in its thread."""
        self._batches.labels(*lane.key).observe(size)
