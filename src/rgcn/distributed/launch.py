"""Run one command in several processes: torchrun's agent starts them, rank 0 prints, and all end together."""

import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn
from uuid import uuid4

from rgcn.distributed.rendezvous import RESUME_ADVICE, RUN_ID_PREFIX
from rgcn.errors import StoppedError
from rgcn.placement import current
from rgcn.system.formatting import visible_text
from rgcn.system.threads import limit_threads, silence_distributed_logs, threads_per_process

SAVE_S = 3600  # how long ranks may take to save a checkpoint after a signal
EXIT_CODES: dict[type[BaseException], int] = {KeyboardInterrupt: 128 + signal.SIGINT, SystemExit: 2}  # 1 otherwise


def launch(number: int, folder: Path | None = None, more: Sequence[str] = ()) -> NoReturn:
    """Run the command line of this process in several processes, and exit with their exit code.

    Args:
        number: How many processes to start.
        folder: The folder of the run, which can be resumed if a rank is lost.
        more: Arguments to add to the command line.
    """
    limit_threads(threads_per_process(number))
    silence_distributed_logs()
    logging.disable(logging.CRITICAL)  # we report a failure in one sentence instead
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    options = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    command = ["-m", "rgcn", *options, *more, *sys.argv[1 + len(options) :]]
    with TemporaryDirectory(prefix="rgcn-") as logs:
        config = LaunchConfig(
            *(1, 1, number),  # minimum and maximum of machines, processes per machine
            run_id=f"{RUN_ID_PREFIX}{uuid4().hex}",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        config.shutdown_timeout = SAVE_S  # older versions of PyTorch ignore it, and wait 30 s
        try:
            elastic_launch(config, sys.executable)(*command)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            reported = [each for each in error.failures.values() if Path(each.error_file).is_file()]
            code = (*reported, failure)[0].exitcode
            if not reported:
                outcome = f"is gone (killed by signal {-code})" if code < 0 else f"ended with exit code {code}"
                resumable = folder is not None and (folder / "run.json").exists()
                advice = f"; {RESUME_ADVICE.format(folder)}" if resumable else ""
                print(f"rgcn: process {rank} of {number} {outcome}: the others stop{advice}", file=sys.stderr)
            sys.exit(code if code > 0 else 128 - code)
        except SignalException as error:
            sys.exit(128 + int(error.sigval))
    sys.exit(0)


@contextmanager
def print_on_rank_0_only() -> Iterator[None]:
    """Discard the output of other ranks, which would be the same."""
    # `is_rank` checks these variables, at a place where errors are reported.
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0":
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def end(error: BaseException, sentence: str) -> NoReturn:
    """Report the error that ends this process, unless another rank does, and exit with the code for this error."""
    code = error.exit_code if isinstance(error, StoppedError) else EXIT_CODES.get(type(error), 1)
    session = current().session
    if session is None:
        print(f"rgcn: {visible_text(sentence)}", file=sys.stderr)
        sys.exit(code)
    session.report_error(error, sentence)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # leaving the group would wait for ranks that have ended or wait in a collective
