"""Small models of `world`, in this process and behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `serve` is not installed")

from servers import CLASSES, LINKS, InProcess, LiveServer, asking, running

import rgcn
from rgcn.runs import load_configuration, train
from rgcn.serve import create_app, load_models
from rgcn.serve.address import LOOPBACK_NAMES


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> dict[str, Path]:
    """Folders of a short node classification and a short link prediction on `world`, by their names."""
    here, kg = tmp_path_factory.mktemp("served"), rgcn.load("world")
    settings = {
        CLASSES: ("rgcn/nc-world", ["training.epochs=20"]),
        LINKS: ("rgcn/lp-world", ["training.steps=10", "model.embedding=32", "training.evaluate_every=10"]),
    }
    for name, (configuration, changes) in settings.items():
        train(load_configuration(configuration, changes), kg, here / name)
    return {name: here / name for name in settings}


@pytest.fixture(scope="session")
def models(runs):
    """Both runs, loaded."""
    return load_models(runs.values(), device="cpu")


@pytest.fixture(scope="session")
def app(models):
    """Return the application as `rgcn serve` creates it."""
    return create_app(models, hosts=LOOPBACK_NAMES)


@pytest.fixture(scope="session")
def client(app) -> Iterator[InProcess]:
    """Return a client of the application in this process."""
    with asking(app) as found:
        yield found


@pytest.fixture(scope="session")
def live_server(runs) -> Iterator[LiveServer]:
    """Start a real server with both runs; it has `url`, `port` and `models`."""
    with running(*runs.values()) as server:
        yield server
