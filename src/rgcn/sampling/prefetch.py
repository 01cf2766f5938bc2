"""The next batches are made while the present one trains."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

# How long an early end waits for the batch in preparation; the thread is a daemon and holds up no exit after that.
LONGEST_WAIT_S = 10.0


class _End:
    """Put in the queue after the last item; carries the source's exception, if that is what ended it."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


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
    return _consume(source, depth)


def _consume(source: Iterable[T] | Callable[[], T], depth: int) -> Iterator[T]:
    ready: queue.Queue[T | _End] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_produce, args=(source, ready, stop), name="rgcn-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        stop.set()
        _make_room(ready)  # a producer that waits for room finds it, sees `stop`, and ends
        thread.join(LONGEST_WAIT_S)


def _produce(source: Iterable[T] | Callable[[], T], ready: queue.Queue[T | _End], stop: threading.Event) -> None:
    end = _End()
    try:
        for item in _calls(source) if callable(source) else source:
            if stop.is_set():
                return
            ready.put(item)
            if stop.is_set():
                return
    except BaseException as error:  # whatever it is, the consumer must hear of it rather than wait for ever
        end = _End(error)
    if not stop.is_set():
        ready.put(end)


def _calls(make: Callable[[], T]) -> Iterator[T]:
    while True:
        yield make()


def _make_room(ready: queue.Queue[T | _End]) -> None:
    # Only this thread takes items out, so what is not empty stays so until `get`.
    while not ready.empty():
        ready.get()
