"""Threads and environment variables: how many threads compute, how they wait, and every variable that rgcn writes.

Some libraries take settings from environment variables alone, and most read them once, when they are loaded. Commands
and worker processes therefore set such variables for themselves and their child processes before they load PyTorch.
Importing rgcn and calling it from Python sets none, except for `wait_passively`, which users call for that purpose.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

# How many threads libraries start.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")
# How OpenMP's threads wait for work. GNU's runtime (in PyTorch's wheels for Linux) and LLVM's (macOS, Windows) both
# read the first variable, but each has one of its own that overrides it.
WAIT_POLICY_VARIABLE = "OMP_WAIT_POLICY"
WAIT_POLICY_VARIABLES = (WAIT_POLICY_VARIABLE, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# Set by commands and worker processes if the user has not set them.
DEFAULT_VARIABLES = {
    # Without it cuBLAS may change the order of its sums. `training.deterministic` on a GPU needs it.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    # Trackers report to the server that the user named, and do not send usage statistics elsewhere.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    # Give up an unreachable tracking server within a minute; by default MLflow tries for twenty.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}

Item = TypeVar("Item")
Result = TypeVar("Result")

_num_threads: int | None = None  # set by `use_threads` for the whole process


def threads_per_process(num_processes: int) -> int:
    """Return the threads of each of several processes: the number of `use_threads`, else their share of the cores."""
    return _num_threads or max(1, available_cores() // num_processes)


def available_cores() -> int:
    """Return the cores that this process may use; in a container these may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_threads(items: Iterable[Item], function: Callable[[Item], Result]) -> Iterator[tuple[Item, Result]]:
    """Yield each item with the function's result, in order, while other threads compute those of the next items.

    >>> list(map_in_threads("ab", str.upper))
    [('a', 'A'), ('b', 'B')]
    """
    num_threads, waiting = available_cores(), deque[tuple[Item, Future[Result]]]()
    with ThreadPoolExecutor(num_threads) as pool:
        for item in items:
            waiting.append((item, pool.submit(function, item)))
            if len(waiting) > num_threads:
                done, future = waiting.popleft()
                yield done, future.result()
        yield from ((done, future.result()) for done, future in waiting)


def thread_limits(num_threads: int) -> dict[str, str]:
    """Return the variables that limit libraries to a number of threads, or to fewer if the user has set fewer.

    OMP_NUM_THREADS limits the other libraries too, as it does without us: a larger MKL_NUM_THREADS would override it.

    >>> thread_limits(1)["OMP_NUM_THREADS"]
    '1'
    """

    def limit(name: str, at_most: int) -> int:
        # OpenMP takes a list with a number for each nesting level.
        first = os.environ.get(name, "").split(",")[0].strip()
        return min(at_most, int(first)) if first.isdecimal() and int(first) > 0 else at_most

    at_most = limit("OMP_NUM_THREADS", num_threads)
    return {name: str(limit(name, at_most)) for name in THREAD_VARIABLES}


def prepare_process() -> None:
    """Set the variables of a command or worker process, before it loads PyTorch."""
    for name, value in DEFAULT_VARIABLES.items():
        os.environ.setdefault(name, value)
    _set_wait_policy()


def wait_passively() -> None:
    """Let PyTorch's threads sleep while they have no work, in this process and its child processes.

    By default a thread without work keeps its core busy for a while. If other processes compute on the same cores, that
    makes all of them several times slower. The commands of rgcn always do this; in Python, call it before anything
    imports torch. It sets OMP_WAIT_POLICY=PASSIVE, unless that variable, GOMP_SPINCOUNT or KMP_BLOCKTIME is set.

    A thread cannot learn to sleep once torch is imported. A later call therefore lets torch compute on one thread here,
    which waits for no other. That is slower than an earlier call, but faster than threads that keep cores busy.

    >>> import rgcn
    >>> rgcn.system.threads.wait_passively()
    """
    was_set, torch = _set_wait_policy(), sys.modules.get("torch")
    if was_set or torch is None or torch.get_num_threads() == 1:  # a single thread does not wait for others
        return
    import logging

    torch.set_num_threads(1)
    # Logged and not warned, because -W error would turn a warning about the order of imports into a failure.
    logging.getLogger("rgcn").warning(
        "torch was imported before wait_passively() was called, so its threads cannot sleep and it now uses only one: "
        "to use all cores, call it before importing torch, or set %s=PASSIVE",
        WAIT_POLICY_VARIABLE,
    )


def _set_wait_policy() -> bool:
    """Set OMP_WAIT_POLICY unless the user has chosen how threads wait; return whether the user has."""
    was_set = any(name in os.environ for name in WAIT_POLICY_VARIABLES)
    if not was_set:
        os.environ[WAIT_POLICY_VARIABLE] = "PASSIVE"
    return was_set


def use_threads(num_threads: int) -> None:
    """Compute on this many threads, here and in each child process (`--threads`)."""
    global _num_threads
    _num_threads = num_threads  # worker processes get as many, instead of their share of the cores
    _set_thread_variables(dict.fromkeys(THREAD_VARIABLES, str(num_threads)))
    os.environ["MKL_DYNAMIC"] = "FALSE"  # otherwise MKL, which PyTorch asks, uses at most one thread per physical core


def limit_threads(num_threads: int) -> None:
    """Compute on at most this many threads, here and in each child process."""
    _set_thread_variables(thread_limits(num_threads))


def _set_thread_variables(values: dict[str, str]) -> None:
    os.environ.update(values)
    torch = sys.modules.get("torch")
    if torch is not None:  # it has already read the variables
        torch.set_num_threads(int(values["OMP_NUM_THREADS"]))


def silence_distributed_logs() -> None:
    """Keep PyTorch's stack traces of lost connections off the terminal; rgcn reports them in a sentence."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")
