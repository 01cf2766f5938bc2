"""One command in several processes: started by torchrun's agent, printed by rank 0, ended as one."""

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
from rgcn.system.formatting import shown
from rgcn.system.threads import limit_threads, quiet_distributed, threads_each

SAVE_S = 3600  # for the ranks to save a checkpoint after a signal
EXIT_CODES: dict[type[BaseException], int] = {KeyboardInterrupt: 128 + signal.SIGINT, SystemExit: 2}  # 1 otherwise


def launch(number: int, folder: Path | None = None, more: Sequence[str] = ()) -> NoReturn:
    """Run the command of this process in several, and end as they do.

    number  of processes
    folder  of the run, which can be resumed where a rank is lost
    more    arguments to add to the command
    """
    limit_threads(threads_each(number))
    quiet_distributed()
    logging.disable(logging.CRITICAL)  # a failure is reported in one sentence instead
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    options = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    command = ["-m", "rgcn", *options, *more, *sys.argv[1 + len(options) :]]
    with TemporaryDirectory(prefix="rgcn-") as logs:
        config = LaunchConfig(
            *(1, 1, number),  # least and most machines, processes of each
            run_id=f"{RUN_ID_PREFIX}{uuid4().hex}",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            logs_specs=DefaultLogsSpecs(log_dir=logs),
        )
        config.shutdown_timeout = SAVE_S  # older PyTorch does not look at it, and waits 30 s
        try:
            elastic_launch(config, sys.executable)(*command)
        except ChildFailedError as error:
            rank, failure = error.get_first_failure()
            reported = [each for each in error.failures.values() if Path(each.error_file).is_file()]
            code = (*reported, failure)[0].exitcode
            if not reported:
                how = f"is gone (killed by signal {-code})" if code < 0 else f"ended with exit code {code}"
                resumable = folder is not None and (folder / "run.json").exists()
                advice = f"; {RESUME_ADVICE.format(folder)}" if resumable else ""
                print(f"rgcn: process {rank} of {number} {how}: the others stop{advice}", file=sys.stderr)
            sys.exit(code if code > 0 else 128 - code)
        except SignalException as error:
            sys.exit(128 + int(error.sigval))
    sys.exit(0)


@contextmanager
def only_rank_0_prints() -> Iterator[None]:
    """Discard what other ranks print, which is the same."""
    # Whether these are numbers is checked by `is_rank`, where an error becomes a sentence.
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0":
        yield
        return
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def end(error: BaseException, sentence: str) -> NoReturn:
    """Report the error that ends this process, unless another rank reports it, and end it with its exit code."""
    code = error.exit_code if isinstance(error, StoppedError) else EXIT_CODES.get(type(error), 1)
    session = current().session
    if session is None:
        print(f"rgcn: {shown(sentence)}", file=sys.stderr)
        sys.exit(code)
    session.report_error(error, sentence)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # to leave the group would wait for ranks that are gone, or in a collective
