"""`rgcn serve`: trained models over HTTP, with a page to look around in them."""

import os
import sys
import threading
import webbrowser
from pathlib import Path

import typer

from rgcn import serve as serving
from rgcn.cli.model_commands import LimitOptions, ServeCommand
from rgcn.cli.output import busy
from rgcn.data.registry import path_or_dataset
from rgcn.runs.folder import RunFolder
from rgcn.serve.address import Address, bound_socket, read_token


def serve(asked: ServeCommand) -> None:
    for run in asked.runs:
        place = path_or_dataset(run)
        if isinstance(place, Path) and (place / "series.json").is_file():
            RunFolder(place).check()
    address = Address(asked.host, asked.port, read_token(asked.token_file), tuple(asked.allow_host or ()))
    address.check()
    new = asked.new_nodes()
    # All of this before PyTorch and the models are loaded: a mistyped name and a port in use are said at once.
    listening = bound_socket(address)
    with busy("loading", asked.quiet) as on_step:
        how = {**asked.opening(), "classes": asked.classes or asked.has_labels}
        models = serving.load_models(asked.runs, new_nodes=new, on_step=on_step, **how)

    def ready(url: str) -> None:
        for served in models:
            about = serving.line(served)
            typer.echo(f"{served.name}: {about.model} for {about.task} on {about.dataset}, {about.headline}")
        asks = "; it asks for the token" if address.token else ""
        typer.echo(f"{url}  (page; API under {url}/api{asks}). Ctrl-C stops it.")
        sys.stdout.flush()
        if asked.open_browser:
            threading.Timer(0.5, webbrowser.open, (url,)).start()

    limits = serving.Limits(**{limit.name: getattr(asked, limit.name) for limit in LimitOptions.parameters()})
    serving.serve(models, address, limits, threads=asked.threads, listening=listening, on_ready=ready)
    if not asked.quiet:
        typer.echo("stopped", err=True)
    # An explanation nobody waits for any more may still be computed: the process does not wait for it either.
    if any(thread.name.startswith("rgcn-") and thread.is_alive() for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
