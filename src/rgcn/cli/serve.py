"""`rgcn serve`: trained models over HTTP, with a page to look around in them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from rgcn.cli.options import AcceptChangedData, Device, Mirror, Quiet

if TYPE_CHECKING:
    from rgcn.serve import Address, Served

LIMITS = "Limits"


def serve(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of saved models.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but this machine's own needs a token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token that whoever asks must send (else RGCN_TOKEN).")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name to answer to, behind a proxy say. May be repeated.")
    ] = None,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    mirror: Mirror = None,
    device: Device = None,
    accept_changed_data: AcceptChangedData = False,
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Threads one computation uses; by default as PyTorch chooses."),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(min=0.1, max=3600, help="Seconds until an unanswered request gets 503.", rich_help_panel=LIMITS),
    ] = 30.0,
    max_body: Annotated[
        int, typer.Option(min=1024, max=1 << 30, help="Bytes of a request's body.", rich_help_panel=LIMITS)
    ] = 1 << 20,
    max_items: Annotated[
        int, typer.Option(min=1, max=100_000, help="Questions in one request.", rich_help_panel=LIMITS)
    ] = 1000,
    max_k: Annotated[
        int, typer.Option(min=1, max=100_000, help="Answers to one question, rows of a page.", rich_help_panel=LIMITS)
    ] = 1000,
    max_links: Annotated[
        int,
        typer.Option(min=1, max=10_000_000, help="Links in one answer, of all its questions.", rich_help_panel=LIMITS),
    ] = 20_000,
    max_waiting: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Requests that may wait for the model.", rich_help_panel=LIMITS)
    ] = 512,
    max_questions: Annotated[
        int,
        typer.Option(
            min=1, max=100_000_000, help="Questions of all requests together that may wait.", rich_help_panel=LIMITS
        ),
    ] = 20_000,
    max_explaining: Annotated[
        int, typer.Option(min=1, max=10_000, help="Requests that may wait for an explanation.", rich_help_panel=LIMITS)
    ] = 16,
    max_connections: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Connections open at once.", rich_help_panel=LIMITS)
    ] = 1000,
    slow_client: Annotated[
        float,
        typer.Option(
            min=0.1, max=3600, help="Seconds a client may take to send a request or to read.", rich_help_panel=LIMITS
        ),
    ] = 10.0,
    idle: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds an unused connection stays open.", rich_help_panel=LIMITS)
    ] = 30.0,
    grace: Annotated[
        float,
        typer.Option(min=0, max=3600, help="Seconds to finish requests when asked to stop.", rich_help_panel=LIMITS),
    ] = 10.0,
    quiet: Quiet = False,
) -> None:
    """Serve trained models over HTTP: an API, and a page to look around and ask why.

    Ctrl-C or SIGTERM stops it after what is under way; a second one stops at once. Docs: docs/serving.md.
    """
    from rgcn.runs import RunFolder

    for run in runs:  # before PyTorch is loaded: a mistyped name is answered at once
        if not (run / "model.json").is_file():
            RunFolder(run).check()
    from rgcn.serve.address import Address, bound_socket, read_token

    address = Address(host, port, read_token(token_file), tuple(allow_host or ()))
    address.check()
    listening = bound_socket(address)  # before loading, which takes long: a port in use is said at once
    from rgcn.serve import Limits, load_models
    from rgcn.serve import serve as run_server

    limits = Limits(
        body=max_body,
        items=max_items,
        k=max_k,
        links=max_links,
        seconds=timeout,
        waiting=max_waiting,
        questions=max_questions,
        explaining=max_explaining,
        connections=max_connections,
        slow=slow_client,
        idle=idle,
        stopping=grace,
    )
    with _loading(len(runs), quiet) as on_step:
        models = load_models(
            runs, mirror=mirror, device=device or "auto", accept_changed_data=accept_changed_data, on_step=on_step
        )

    def ready(url: str) -> None:
        _say(url, models, address)
        if open_browser:
            import webbrowser

            threading.Timer(0.5, webbrowser.open, (url,)).start()

    run_server(models, address, limits, threads=threads, listening=listening, on_ready=ready)
    if not quiet:
        typer.echo("stopped", err=True)
    _end()


@contextmanager
def _loading(runs: int, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Says what is being loaded: a bar where stderr is a terminal, else a line each."""
    from rgcn.progress import progress

    with progress("loading", None, show=False if quiet else None) as meter:
        drawn = not quiet and sys.stderr.isatty()

        def on_step(what: str) -> None:
            if drawn:
                meter.describe(escape(what))
            elif not quiet:
                typer.echo(what, err=True)

        yield on_step


def _say(url: str, models: list[Served], address: Address) -> None:
    from rgcn.serve.graph_endpoints import line

    for served in models:
        about = line(served)
        typer.echo(f"{served.name}: {about.model} for {about.task} on {about.dataset}, {about.headline}")
    asks = "; it asks for the token" if address.token else ""
    typer.echo(f"{url}  (page; API under {url}/api{asks}). Ctrl-C stops it.")
    sys.stdout.flush()


def _end() -> None:
    """An explanation nobody waits for any more may still be computed: the process does not wait for it either."""
    if any(thread.name.startswith("rgcn-") and thread.is_alive() for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
