"""Test that an abandoned iterator ends wherever the garbage collector finds it."""

import threading

import pytest

from rgcn.sampling.edges import prefetched


@pytest.mark.skipif(not hasattr(threading, "_shutdown_locks_lock"), reason="threads of this Python end otherwise")
def test_it_is_closed_while_another_thread_starts():
    batches = prefetched(lambda: 1)
    assert next(batches) == 1

    def collect():
        with threading._shutdown_locks_lock:  # held by a thread that starts, which may be where memory is collected
            batches.close()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


def test_nothing_is_made_after_it_was_closed():
    made = []
    batches = prefetched(lambda: made.append(1))
    next(batches)
    batches.close()
    count = len(made)
    threading.Event().wait(0.05)
    assert len(made) == count
