"""How many threads compute, and that those with nothing to do leave the cores to others.

PyTorch computes on OpenMP's threads. By default one that has run out of work keeps its core busy for a while, in case
more comes. Where cores are shared, with another training say, it keeps the very thread it waits for from its core.
OpenMP reads how to wait once, when PyTorch is loaded. What it costs and gains: docs/performance.md.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

# OpenMP's own variable, obeyed by GNU's runtime (in PyTorch's wheels for Linux) and by LLVM's (macOS, Windows). The
# others are theirs and win over it. Whoever set any has chosen.
WAITING = "OMP_WAIT_POLICY"
WAITING_CHOSEN = (WAITING, "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# How many threads libraries start; read, too, when they are loaded.
NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")

Block = TypeVar("Block")
Found = TypeVar("Found")

_asked: int | None = None  # by the whole process, as PyTorch's own number is


def wait_passively() -> None:
    """Let threads without work sleep, here and in child processes, unless the user chose how they wait.

    Where PyTorch is loaded already it is too late for this process, and a line in the log says what to do.
    """
    if any(name in os.environ for name in WAITING_CHOSEN):
        return
    os.environ[WAITING] = "PASSIVE"
    torch = sys.modules.get("torch")
    if torch is None or torch.get_num_threads() == 1:  # one thread waits for no other
        return
    import logging

    # Not a warning, which -W error makes an error: the order of imports is no reason to fail.
    logging.getLogger("rgcn").warning(
        "PyTorch was imported before rgcn, so its threads keep cores busy while waiting, slow where cores are shared: "
        "import rgcn first, or set %s=PASSIVE",
        WAITING,
    )


def use_threads(number: int) -> None:
    """Compute on so many threads from now on: PyTorch, our kernels, which ask it, and processes started from here."""
    global _asked
    _asked = number
    os.environ.update(dict.fromkeys(NUMBERS, str(number)))
    os.environ["MKL_DYNAMIC"] = "FALSE"  # else PyTorch, which asks MKL, takes no more than there are physical cores
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(number)


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
    from concurrent.futures import ThreadPoolExecutor

    threads = available_cores()
    waiting: deque[tuple[Block, Future[Found]]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for block in blocks:
            waiting.append((block, pool.submit(work, block)))
            if len(waiting) > threads:
                done, found = waiting.popleft()
                yield done, found.result()
        while waiting:
            done, found = waiting.popleft()
            yield done, found.result()


def thread_limits(threads: int) -> dict[str, str]:
    """What holds libraries to so many threads, or to fewer where the user asked for fewer.

    OMP_NUM_THREADS holds for the others too, as it does without us: set higher, MKL_NUM_THREADS would win in PyTorch.

    >>> thread_limits(1)["OMP_NUM_THREADS"]
    '1'
    """
    limit = _own_limit("OMP_NUM_THREADS", threads)
    return {name: str(_own_limit(name, limit)) for name in NUMBERS}


def _own_limit(name: str, most: int) -> int:
    first = os.environ.get(name, "").split(",")[0].strip()  # OpenMP takes a list, a number for each level of nesting
    return min(most, int(first)) if first.isdecimal() and int(first) > 0 else most
