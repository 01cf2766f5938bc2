"""Clients of an application in this process, and `rgcn serve` in its own process, for several tests."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partialmethod
from typing import Any, TypeVar

import pytest

httpx = pytest.importorskip("httpx", reason="httpx, which the tests ask with, is not installed")

Answer = TypeVar("Answer")
CLASSES, LINKS = "classes-of-world", "links-of-world"
RGCN = (sys.executable, "-c", "from rgcn.cli import main; main()")


class InProcess:
    """A synchronous client of an application without a network: httpx on its own event loop."""

    def __init__(self, app: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self.asking = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60)

    def do(self, work: Awaitable[Answer]) -> Answer:
        """Wait for something asynchronous."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(120)  # type: ignore[arg-type]

    def request(self, method: str, path: str, **settings: Any) -> httpx.Response:
        return self.do(self.asking.request(method, path, **settings))

    get = partialmethod(request, "GET")
    head = partialmethod(request, "HEAD")
    post = partialmethod(request, "POST")
    put = partialmethod(request, "PUT")

    def close(self) -> None:
        self.do(self.asking.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def asking(app: Any) -> Iterator[InProcess]:
    client = InProcess(app)
    try:
        yield client
    finally:
        client.close()


@dataclass
class LiveServer:
    """A running `rgcn serve`."""

    url: str
    port: int
    process: subprocess.Popen[str]
    models: tuple[str, ...]


@contextmanager
def running(*arguments: object, env: dict[str, str] | None = None) -> Iterator[LiveServer]:
    """Run `rgcn serve` in its own process on a free port; stop it at the end."""
    process = subprocess.Popen(
        [*RGCN, "serve", *map(str, arguments), "--port", "0", "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
    )
    try:
        yield _started(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def _started(process: subprocess.Popen[str]) -> LiveServer:
    assert process.stdout is not None
    assert process.stderr is not None
    models = []
    for line in process.stdout:
        address = re.match(r"(http://\S+:(\d+))\s", line)
        if address:
            return LiveServer(address[1], int(address[2]), process, tuple(models))
        models.append(line.split(":")[0])
    raise AssertionError(f"the server did not start: {process.stderr.read()}")
