"""The next batches are made while the present one trains."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def prefetched(source: Iterable[T] | Callable[[], T], depth: int = 2) -> Iterator[T]:
    """The items of an iterable, in order, prepared up to `depth` ahead in a background thread.

    A function without arguments is called again and again, without end. An exception in the source is raised where its
    item would have come. The thread ends with the source, or as soon as the iterator is closed or forgotten.

    What the source has drawn at random runs ahead of what was consumed: let each item carry the state to resume from.

    >>> list(prefetched(n * n for n in range(4)))
    [0, 1, 4, 9]
    """
    if depth < 1:
        raise ValueError(f"prefetching needs a depth of at least 1, not {depth}")
    return _prepared(source if callable(source) else iter(source).__next__, depth)


def _prepared(make: Callable[[], T], depth: int) -> Iterator[T]:
    pool = ThreadPoolExecutor(1, thread_name_prefix="rgcn-prefetch")
    try:
        ready = deque(pool.submit(make) for _ in range(depth + 1))  # one of them in the making
        while True:
            try:
                item = ready.popleft().result()
            except StopIteration:
                return
            ready.append(pool.submit(make))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)
