"""How many threads compute. How threads without work wait is said in `environment`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

# How many threads libraries start; most read it when they are loaded.
NUMBERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS")

Block = TypeVar("Block")
Found = TypeVar("Found")

_asked: int | None = None  # by the whole process, as PyTorch's own number is


def remember_threads(number: int) -> None:
    """Give each worker process this many threads from now on, instead of its share of the cores."""
    global _asked
    _asked = number


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
    limit = _own_limit("OMP_NUM_THREADS", threads)
    return {name: str(_own_limit(name, limit)) for name in NUMBERS}


def _own_limit(name: str, most: int) -> int:
    first = os.environ.get(name, "").split(",")[0].strip()  # OpenMP takes a list, a number for each level of nesting
    return min(most, int(first)) if first.isdecimal() and int(first) > 0 else most
