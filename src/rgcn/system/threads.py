"""How many threads compute, how they wait, and the environment variables that rgcn writes: all of them, and why.

Some libraries take a setting from the environment alone, and most read it once, when they are loaded. A command and a
worker process set such variables for themselves and for the processes they start, before they load PyTorch. Importing
rgcn and calling it from Python sets none; the one exception is `wait_passively`, which a user calls for that purpose.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

# How many threads libraries start; most read it when they are loaded.
NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
# How OpenMP's threads wait for work. The first is OpenMP's own variable, obeyed by GNU's runtime (in PyTorch's wheels
# for Linux) and by LLVM's (macOS, Windows). The others are theirs and win over it.
WAITING = "OMP_WAIT_POLICY"
WAITING_CHOSEN = (WAITING, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# What commands and worker processes set where the user has not.
DEFAULTS = {
    # Without it cuBLAS may sum in another order from call to call. `training.deterministic` on a GPU needs it.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # A command reports to the tracking server that the user named, and to nobody else.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # A tracking server that is gone is given up within a minute. MLflow by itself would try for twenty.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}

Block = TypeVar("Block")
Found = TypeVar("Found")

_asked: int | None = None  # by the whole process, as PyTorch's own number is


def threads_each(jobs: int) -> int:
    """Threads for each of several processes that share the cores: as many as were asked for, else their share."""
    return _asked or max(1, available_cores() // jobs)


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_order(blocks: Iterable[Block], work: Callable[[Block], Found]) -> Iterator[tuple[Block, Found]]:
    """Each block with what `work` makes of it; that of the next ones is made meanwhile, on other threads."""
    threads, waiting = available_cores(), deque[tuple[Block, Future[Found]]]()
    with ThreadPoolExecutor(threads) as pool:
        for block in blocks:
            waiting.append((block, pool.submit(work, block)))
            if len(waiting) > threads:
                done, found = waiting.popleft()
                yield done, found.result()
        yield from ((done, found.result()) for done, found in waiting)


def thread_limits(threads: int) -> dict[str, str]:
    """What holds libraries to so many threads, or to fewer where the user asked for fewer.

    OMP_NUM_THREADS holds for the others too, as it does without us: set higher, MKL_NUM_THREADS would win in PyTorch.

    >>> thread_limits(1)["OMP_NUM_THREADS"]
    '1'
    """

    def limit(name: str, most: int) -> int:
        first = os.environ.get(name, "").split(",")[0].strip()  # OpenMP takes a list, a number a level of nesting
        return min(most, int(first)) if first.isdecimal() and int(first) > 0 else most

    most = limit("OMP_NUM_THREADS", threads)
    return {name: str(limit(name, most)) for name in NUMBERS}


def prepare_process() -> None:
    """Set what libraries read when they are loaded; for commands and worker processes, before they load PyTorch."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
    _let_threads_sleep()


def wait_passively() -> None:
    """Let PyTorch's threads sleep while they have no work, in this process and in those it starts.

    By default a thread without work keeps its core busy for a while. Where other processes compute on the same cores,
    that makes all of them several times slower. The commands of rgcn always do this; in Python, call it before anything
    imports torch. It sets OMP_WAIT_POLICY=PASSIVE, unless that variable, GOMP_SPINCOUNT or KMP_BLOCKTIME is set.

    >>> import rgcn
    >>> rgcn.wait_passively()
    """
    chosen, torch = _let_threads_sleep(), sys.modules.get("torch")
    if chosen or torch is None or torch.get_num_threads() == 1:  # one thread waits for no other
        return
    import logging

    # Not a warning, which -W error makes an error: the order of imports is no reason to fail.
    logging.getLogger("rgcn").warning(
        "torch was imported before rgcn.wait_passively() was called, so its threads keep cores busy while they wait: "
        "call it before importing torch, or set %s=PASSIVE",
        WAITING,
    )


def _let_threads_sleep() -> bool:
    """Set OMP_WAIT_POLICY, unless it is already chosen how threads wait; True if it was."""
    chosen = any(name in os.environ for name in WAITING_CHOSEN)
    if not chosen:
        os.environ[WAITING] = "PASSIVE"
    return chosen


def use_threads(number: int) -> None:
    """Compute on this many threads, here and in each process that is started from here (`--threads`)."""
    global _asked
    _asked = number  # each worker process is given as many from now on, instead of its share of the cores
    _set_threads(dict.fromkeys(NUMBERS, str(number)))
    os.environ["MKL_DYNAMIC"] = "FALSE"  # else MKL takes no more than there are physical cores, and PyTorch asks it


def limit_threads(number: int) -> None:
    """Compute on at most this many threads, here and in each process that is started from here: its share of cores."""
    _set_threads(thread_limits(number))


def _set_threads(numbers: dict[str, str]) -> None:
    os.environ.update(numbers)
    torch = sys.modules.get("torch")
    if torch is not None:  # it has read them already
        torch.set_num_threads(int(numbers["OMP_NUM_THREADS"]))


def quiet_distributed() -> None:
    """Keep PyTorch's stack traces of lost connections off the terminal: rgcn says in a sentence what went wrong."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
