"""`rgcn serve`: trained models over HTTP, with a page to look around in them."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser

import typer

from rgcn import serve as serving
from rgcn.cli.model_commands import ServeCommand
from rgcn.cli.printing import busy
from rgcn.runs.folder import RunFolder
from rgcn.serve.address import Address, bound_socket, read_token


def serve(asked: ServeCommand) -> None:
    for run in asked.runs:
        if not (run / "model.json").is_file():
            RunFolder(run).check()
    where = asked.address
    address = Address(where.host, where.port, read_token(where.token_file), tuple(where.allow_host or ()))
    address.check()
    # All of this before PyTorch and the models are loaded: a mistyped name and a port in use are said at once.
    listening = bound_socket(address)
    with busy("loading", asked.quiet) as on_step:
        models = serving.load_models(
            asked.runs,
            mirror=asked.mirror,
            device=asked.device or "auto",
            accept_changed_data=asked.accept_changed_data,
            on_step=on_step,
        )

    def ready(url: str) -> None:
        for served in models:
            about = serving.line(served)
            typer.echo(f"{served.name}: {about.model} for {about.task} on {about.dataset}, {about.headline}")
        asks = "; it asks for the token" if address.token else ""
        typer.echo(f"{url}  (page; API under {url}/api{asks}). Ctrl-C stops it.")
        sys.stdout.flush()
        if asked.open_browser:
            threading.Timer(0.5, webbrowser.open, (url,)).start()

    limits = serving.Limits(**vars(asked.limits))
    serving.serve(models, address, limits, threads=asked.threads, listening=listening, on_ready=ready)
    if not asked.quiet:
        typer.echo("stopped", err=True)
    # An explanation nobody waits for any more may still be computed: the process does not wait for it either.
    if any(thread.name.startswith("rgcn-") and thread.is_alive() for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
