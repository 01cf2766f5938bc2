"""`rgcn serve`: models over HTTP."""

import os
import sys
import threading
import webbrowser
from pathlib import Path

import typer

from rgcn import serve
from rgcn.cli.options import ServeOptions
from rgcn.cli.output import busy
from rgcn.data.registry import path_or_dataset
from rgcn.runs.folder import RunFolder
from rgcn.serve.address import Address, bound_socket, read_token


def serve_models(options: ServeOptions) -> None:
    """Load models and serve them until a signal stops the server."""
    for run in options.runs:
        place = path_or_dataset(run)
        if isinstance(place, Path) and (place / "series.json").is_file():
            RunFolder(place).check()
    address = Address(options.host, options.port, read_token(options.token_file), tuple(options.allow_host or ()))
    address.check()
    new_nodes = options.new_nodes()
    # Before PyTorch and the models are loaded, so that mistyped names and a port in use are reported at once.
    listening = bound_socket(address)
    with busy("loading", options.quiet) as on_stage:
        arguments = {**options.open_arguments(), "classes": options.classes or options.has_labels}
        models = serve.load_models(options.runs, new_nodes=new_nodes, on_stage=on_stage, **arguments)

    def on_ready(url: str) -> None:
        for served in models:
            summary = serve.model_summary(served)
            typer.echo(f"{served.name}: {summary.model} for {summary.task} on {summary.dataset}, {summary.headline}")
        token = "; clients need the token" if address.token else ""
        typer.echo(f"{url}  (page; API under {url}/api{token}). Ctrl-C stops the server.")
        sys.stdout.flush()
        if options.open_browser:
            threading.Timer(0.5, webbrowser.open, (url,)).start()

    serve.serve(models, address, options, threads=options.threads, listening=listening, on_ready=on_ready)
    if not options.quiet:
        typer.echo("stopped", err=True)
    # An explanation whose client has disconnected may still be running: the process does not wait for it.
    if any(thread.name.startswith("rgcn-") and thread.is_alive() for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
