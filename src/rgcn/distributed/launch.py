"""One command in several processes: started by torchrun's own launcher, speaking with one voice, ending as one."""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn
from uuid import uuid4

from rgcn.distributed.heartbeat import say
from rgcn.distributed.rendezvous import ADVICE, OUR_RUNS, last_words, told
from rgcn.errors import StoppedError
from rgcn.placement import current
from rgcn.system.environment import limit_threads, quiet_distributed
from rgcn.system.terminal import shown
from rgcn.system.threads import threads_each

SECONDS_TO_SAVE = 3600  # that processes have to save themselves in once they are told to stop


def launch(number: int, folder: Path | None = None, more: Sequence[str] = ()) -> NoReturn:
    """Run the command of this process in so many, and end as they do.

    folder  of the run, which can be resumed where one of them is lost
    more    words to add to the command
    """
    limit_threads(threads_each(number))
    quiet_distributed()
    logging.disable(logging.CRITICAL)  # whatever the launcher has to say, the processes, or we, say in a sentence
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    options = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    command = ["-m", "rgcn", *options, *more, *sys.argv[1 + len(options) :]]
    with TemporaryDirectory(prefix="rgcn-") as logs:
        settings: dict[str, Any] = {
            "min_nodes": 1,
            "max_nodes": 1,
            "nproc_per_node": number,
            "run_id": f"{OUR_RUNS}{uuid4().hex}",
            "rdzv_backend": "c10d",
            "rdzv_endpoint": "localhost:0",
            "local_addr": "localhost",
            "max_restarts": 0,
            "logs_specs": DefaultLogsSpecs(log_dir=logs),
        }
        if "shutdown_timeout" in {field.name for field in fields(LaunchConfig)}:  # older PyTorch: 30 s
            settings["shutdown_timeout"] = SECONDS_TO_SAVE
        try:
            elastic_launch(LaunchConfig(**settings), sys.executable)(*command)
        except ChildFailedError as error:
            rank, code = _cause({rank: failure.exitcode for rank, failure in error.failures.items()})
            if code < 0:
                resumable = folder is not None and (folder / "run.json").exists()
                advice = f"; {ADVICE.format(folder)}" if resumable else ""
                words = f"process {rank} of {number} is gone (killed by signal {-code}): the others stop{advice}"
                print(f"rgcn: {words}", file=sys.stderr)
            sys.exit(code if code > 0 else 128 - code)
        except SignalException as error:
            sys.exit(128 + int(error.sigval))
    sys.exit(0)


def _cause(codes: dict[int, int]) -> tuple[int, int]:
    """Which process ended the others, and its exit code: they end with an error, or by a signal to end.

    >>> _cause({0: 1, 1: -15, 2: -9})
    (2, -9)
    >>> _cause({0: -15, 1: 1})
    (1, 1)
    """
    to_end = {-signal.SIGTERM, -signal.SIGINT}
    return min(codes.items(), key=lambda each: (each[1] in to_end, each[1] >= 0, each[1] <= 128, each[0]))


def _silent() -> bool:
    # Whether these are numbers is for `invited` to say, where an error becomes a sentence.
    return os.environ.get("WORLD_SIZE", "1") != "1" and os.environ.get("RANK", "0") != "0"


@contextmanager
def one_voice() -> Iterator[None]:
    """Of several processes only the first is heard."""
    if not _silent():
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def end(error: BaseException, words: str, code: int = 1) -> NoReturn:
    """Say what ended this process, unless another of several does, and end it."""
    placement = current()
    if isinstance(error, StoppedError):
        code = error.exit_code
    said = last_words(error, words)
    if said and _silent():
        say(shown(said))
    elif said:
        print(f"rgcn: {said}", file=sys.stderr)
    if not placement.is_distributed:
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    if said is not None:
        told()
    os._exit(code)  # at once: to part properly from processes that are gone, or in a collective, would hang
