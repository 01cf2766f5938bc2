"""From run folders to a server that listens: loading, the socket, signals, the end."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType

import torch
import uvicorn

from rgcn.predict import open_model
from rgcn.serve.address import Address, bound_socket, url_of
from rgcn.serve.app import create_app
from rgcn.serve.limits import Limits
from rgcn.serve.protocol import protocol_for
from rgcn.serve.served import Served


def load_models(
    runs: Iterable[Path],
    *,
    mirror: Path | None = None,
    device: str = "auto",
    accept_changed_data: bool = False,
    on_step: Callable[[str], None] = lambda what: None,
) -> list[Served]:
    """Every run opened and made ready, each under the name of its folder (`distinct_names`)."""
    models: list[Served] = []
    folders = list(runs)
    for run, name in zip(folders, distinct_names([run.resolve().name for run in folders]), strict=True):
        on_step(f"{name}: loading from {run}")
        opened = open_model(run, mirror=mirror, device=device, accept_changed_data=accept_changed_data)
        models.append(Served(opened, name, lambda what, name=name: on_step(f"{name}: {what}")))  # type: ignore[misc]
    return models


def distinct_names(names: Sequence[str]) -> list[str]:
    """The names, repeated ones with the first number that is nobody's: no run gets the name of another's folder.

    >>> distinct_names(["world", "world", "world-2"])
    ['world', 'world-3', 'world-2']
    """
    taken, given, found = set(names), set[str](), []
    for name in names:
        own, number = name, 1
        while own in given or (number > 1 and own in taken):
            number += 1
            own = f"{name}-{number}"
        given.add(own)
        found.append(own)
    return found


class Server(uvicorn.Server):
    """uvicorn, which ends without raising the signal again: a server that was asked to stop and did has not failed."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            self.force_exit = True
            # Threads may be in the middle of a long computation: nothing they hold needs to be saved.
            os._exit(128 + sig)
        self.should_exit = True


def serve(
    models: Sequence[Served],
    address: Address,
    limits: Limits | None = None,
    *,
    threads: int | None = None,
    listening: socket.socket | None = None,
    on_ready: Callable[[str], None] = lambda url: None,
) -> None:
    """Answer until a signal asks to stop; then finish what is under way and return."""
    limits = limits or Limits()
    address.check()
    listening = listening or bound_socket(address)
    if threads is not None:
        torch.set_num_threads(threads)
    app = create_app(models, limits, token=address.token, hosts=address.hosts)
    config = uvicorn.Config(
        app,
        http=protocol_for(limits),
        ws="none",
        lifespan="on",
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(limits.idle),
        timeout_graceful_shutdown=int(limits.stopping),
    )
    address_in_words = url_of(address, listening)
    server = Server(config, lambda: on_ready(address_in_words))
    # The models' millions of names live as long as the process: looking through them for garbage stops the world for
    # a quarter of a second each time.
    gc.collect()
    gc.freeze()
    try:
        server.run(sockets=[listening])
    finally:
        gc.unfreeze()
        listening.close()
