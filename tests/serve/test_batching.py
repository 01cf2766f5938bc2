"""Test batching: waiting requests form one batch; excess, late and abandoned requests are not computed."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rgcn.serve.batching import BatchingExecutor, RequestQueue
from rgcn.serve.schemas import RequestError

A, B = ("model", "a"), ("model", "b")


class Slow:
    """Answers when `go` is set, and records its batches."""

    def __init__(self):
        self.batches, self.go, self.begun = [], threading.Event(), threading.Event()

    def __call__(self, questions):
        self.batches.append(list(questions))
        self.begun.set()
        assert self.go.wait(20)
        return [question * 10 for question in questions]


def make_executor(**settings):
    return BatchingExecutor("test", **{"max_waiting": 1000, "timeout_s": 20, **settings})


async def begun(slow):
    await asyncio.get_running_loop().run_in_executor(None, slow.begun.wait, 20)


def test_requests_that_arrive_during_a_batch_form_the_next_one():
    slow = Slow()

    async def scenario():
        executor, queue = make_executor(), RequestQueue(A, slow)
        first = asyncio.create_task(executor.ask(queue, [0]))
        await begun(slow)
        rest = [asyncio.create_task(executor.ask(queue, [i])) for i in range(1, 31)]
        await asyncio.sleep(0)
        assert len(executor) == 31
        slow.go.set()
        answers = [(await task)[0] for task in (first, *rest)]
        assert len(executor) == 0
        return answers

    assert asyncio.run(scenario()) == [i * 10 for i in range(31)]
    assert [len(batch) for batch in slow.batches] == [1, 30]


def test_a_long_request_is_split_and_interleaved_with_short_ones():
    slow = Slow()

    async def scenario():
        executor, queue = make_executor(), RequestQueue(A, slow, max_batch=8)
        first = asyncio.create_task(executor.ask(queue, [0]))
        await begun(slow)
        long = asyncio.create_task(executor.ask(queue, list(range(100, 130))))
        short = [asyncio.create_task(executor.ask(queue, [i])) for i in range(1, 15)]
        await asyncio.sleep(0)
        slow.go.set()
        await first
        assert await long == [i * 10 for i in range(100, 130)]
        return [(await task)[0] for task in short]

    assert asyncio.run(scenario()) == [i * 10 for i in range(1, 15)]
    assert all(len(batch) <= 8 for batch in slow.batches)
    mixed = slow.batches[1]
    assert sum(question < 100 for question in mixed) == 6  # a quarter of the batch belongs to the long request
    assert sum(question >= 100 for question in mixed) == 2


def test_two_long_requests_take_turns():
    slow = Slow()

    async def scenario():
        executor, queue = make_executor(), RequestQueue(A, slow, max_batch=4)
        first = asyncio.create_task(executor.ask(queue, [0]))
        await begun(slow)
        both = [asyncio.create_task(executor.ask(queue, list(range(at, at + 10)))) for at in (100, 200)]
        await asyncio.sleep(0)
        slow.go.set()
        await first
        return [await task for task in both]

    assert asyncio.run(scenario()) == [[i * 10 for i in range(at, at + 10)] for at in (100, 200)]
    assert [batch[0] // 100 for batch in slow.batches[1:5]] == [1, 2, 1, 2]


def test_queues_take_turns():
    slow, num_batches = Slow(), []

    def other(questions):
        num_batches.append(len(slow.batches))
        return questions

    async def scenario():
        executor, queue, second = make_executor(), RequestQueue(A, slow, max_batch=2), RequestQueue(B, other)
        tasks = [asyncio.create_task(executor.ask(queue, [i])) for i in range(9)]
        await begun(slow)
        tasks.append(asyncio.create_task(executor.ask(second, [1])))
        await asyncio.sleep(0)
        slow.go.set()
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert num_batches[0] <= 2


def test_too_many_that_wait_are_refused():
    slow = Slow()

    async def scenario():
        executor, queue = make_executor(max_waiting=3), RequestQueue(A, slow)
        tasks = [asyncio.create_task(executor.ask(queue, [i])) for i in range(3)]
        await begun(slow)
        with pytest.raises(RequestError) as caught:
            await executor.ask(queue, [9])
        slow.go.set()
        await asyncio.gather(*tasks)
        assert await executor.ask(queue, [1]) == [10]
        return caught.value

    refusal = asyncio.run(scenario())
    assert (refusal.status, refusal.headers["Retry-After"]) == (503, "1")


def test_requests_that_time_out_are_dropped_and_not_computed():
    slow = Slow()

    async def scenario():
        executor, queue = make_executor(timeout_s=0.05), RequestQueue(A, slow, max_batch=1)
        tasks = [asyncio.create_task(executor.ask(queue, [i])) for i in range(3)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        slow.go.set()
        executor.timeout_s = 20
        assert await executor.ask(queue, [7]) == [70]
        return results, len(executor)

    results, left = asyncio.run(scenario())
    assert [result.code for result in results] == ["took_too_long"] * 3
    assert left == 0
    assert slow.batches == [[0], [7]]


def test_requests_that_cannot_be_answered_in_time_are_refused_at_once():
    slow = Slow()
    slow.go.set()

    async def scenario():
        executor, queue = make_executor(timeout_s=10), RequestQueue(A, slow, max_batch=4)
        await executor.ask(queue, list(range(8)))
        assert 0 < queue.seconds_each < 1
        queue.seconds_each = 0.5  # as if a question cost half a second
        with pytest.raises(RequestError) as caught:
            await executor.ask(queue, list(range(30)))
        queue.seconds_each = 0.1
        assert len(await executor.ask(queue, list(range(30)))) == 30
        return caught.value

    refusal = asyncio.run(scenario())
    assert refusal.message == "30 questions would take longer than the 10 seconds of a request: ask 10 at a time"
    assert slow.batches[:2] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_an_abandoned_request_leaves_the_queue_at_once_and_is_not_computed():
    slow = Slow()

    async def scenario():
        executor, queue = make_executor(), RequestQueue(A, slow, max_batch=4)
        tasks = [asyncio.create_task(executor.ask(queue, list(range(10)))) for _ in range(20)]
        await begun(slow)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        left = len(executor), executor.num_questions, len(executor._queues)
        honest = [asyncio.create_task(executor.ask(queue, [i])) for i in (7, 8)]
        await asyncio.sleep(0)
        slow.go.set()
        assert await asyncio.gather(*honest) == [[70], [80]]
        return left, (len(executor), executor.num_questions)

    assert asyncio.run(scenario()) == ((0, 0, 1), (0, 0))
    assert slow.batches == [[0, 1, 2, 3], [7, 8]]


def test_too_many_questions_that_wait_are_refused_but_not_single_ones():
    slow = Slow()

    async def scenario():
        executor, queue = make_executor(max_questions=10), RequestQueue(A, slow)
        tasks = [asyncio.create_task(executor.ask(queue, list(range(30))))]  # too many, but no other request waits
        await begun(slow)
        with pytest.raises(RequestError, match="30 questions wait already"):
            await executor.ask(queue, [1, 2])
        tasks.append(asyncio.create_task(executor.ask(queue, [5])))
        await asyncio.sleep(0)
        slow.go.set()
        answers = await asyncio.gather(*tasks)
        assert await executor.ask(queue, [1, 2]) == [10, 20]
        return answers[1]

    assert asyncio.run(scenario()) == [50]


def test_a_failure_reaches_only_the_requests_of_its_batch():
    def fails(questions):
        if 13 in questions:
            raise ValueError("thirteen")
        return questions

    async def scenario():
        executor, queue = make_executor(), RequestQueue(A, fails, max_batch=4)
        with pytest.raises(ValueError, match="thirteen"):
            await executor.ask(queue, [1, 2, 3, 4, 5, 13, 7, 8, 9, 10, 11, 12])
        assert await executor.ask(queue, [1]) == [1]
        return len(executor)

    assert asyncio.run(scenario()) == 0


def test_after_stopping_no_request_is_accepted():
    async def scenario():
        executor, queue = BatchingExecutor("ending", 10, 20), RequestQueue(A, lambda questions: questions)
        await executor.ask(queue, [1])
        [thread] = [thread for thread in threading.enumerate() if thread.name.startswith("ending")]
        executor.stop()
        with pytest.raises(RequestError):
            await executor.ask(queue, [1])
        thread.join(20)
        assert not thread.is_alive()

    asyncio.run(scenario())
