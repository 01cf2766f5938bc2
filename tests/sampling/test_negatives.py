"""Compare negatives with their definition; test batches that are prepared in advance."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.sampling import negatives
from rgcn.sampling.edges import prefetched
from rgcn.sampling.known_triples import KnownTriples
from rgcn.sampling.negatives import corrupt, share

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))]


def seeded(seed: int, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def some_triples(count: int, nodes: int, relations: int = 3, seed: int = 0) -> Tensor:
    columns = [torch.randint(high, (count,), generator=seeded(seed)) for high in (nodes, relations, nodes)]
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("device", DEVICES)
def test_a_negative_differs_from_its_positive_in_the_chosen_side_only(device: str) -> None:
    positives = some_triples(50, 20).to(device)
    found = corrupt(positives, 20, rate=4, generator=seeded(1, device))
    triples = found.triples(positives)
    assert triples.shape == (200, 3)
    assert triples.device.type == device
    assert found.positive.tolist() == [i for i in range(50) for _ in range(4)]
    for i, (s, r, o) in enumerate(triples.tolist()):
        ps, pr, po = positives[i // 4].tolist()
        node, head = int(found.node[i]), bool(found.is_subject[i])
        assert (s, r, o) == ((node, pr, po) if head else (ps, pr, node))


@pytest.mark.parametrize(("count", "chunk"), [(6, 2), (7, 3), (5, 100), (1, 1)])
def test_shared_negatives_are_the_same_for_a_chunk(count: int, chunk: int) -> None:
    positives = some_triples(count, 20)
    found = share(positives, 20, rate=4, chunk=chunk, generator=seeded(1))
    written = found.triples(positives).view(2, count, 4, 3)
    assert len(found) == 2 * count * 4 == len(found.node) == len(found.positive)
    for p, (s, r, o) in enumerate(positives.tolist()):
        for k in range(4):
            of_chunk = found.shared[:, p // min(chunk, count), k].tolist()
            assert written[:, p, k].tolist() == [[s, r, of_chunk[0]], [of_chunk[1], r, o]]
    moved = found.with_nodes(found.drawn_nodes + 100)
    assert torch.equal(moved.node, found.node + 100)
    assert torch.equal(found.shared, share(positives, 20, rate=4, chunk=chunk, generator=seeded(1)).shared)


def test_sides_and_nodes_have_their_probabilities() -> None:
    positives = some_triples(2000, 5)
    found = corrupt(positives, 5, rate=10, head_probability=0.3, generator=seeded(2))
    assert found.is_subject.double().mean().item() == pytest.approx(0.3, abs=0.015)
    for side in (found.node[found.is_subject], found.node[~found.is_subject]):
        share = torch.bincount(side, minlength=5) / side.numel()
        assert (share - 0.2).abs().max().item() < 0.02
    assert corrupt(positives, 5, head_probability=1.0, generator=seeded(0)).is_subject.all()
    assert not corrupt(positives, 5, head_probability=0.0, generator=seeded(0)).is_subject.any()


def test_a_seed_gives_the_same_negatives() -> None:
    positives = some_triples(30, 9)
    first, second = (corrupt(positives, 9, generator=seeded(3)).triples(positives) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("at_hand", [("cpu",), ()])
def test_filtered_negatives_are_never_known(at_hand: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negatives, "SYNCHRONOUS_DEVICES", at_hand)
    positives = some_triples(150, 10, relations=2)
    known = KnownTriples.of(positives, num_nodes=10, num_relations=2)
    unfiltered = corrupt(positives, 10, generator=seeded(4))
    assert known.contains(unfiltered.triples(positives)).any()
    filtered = corrupt(positives, 10, generator=seeded(4), known=known, rounds=500)
    assert not known.contains(filtered.triples(positives)).any()
    # Negatives that are not known triples stay unchanged.
    fine = ~known.contains(unfiltered.triples(positives))
    assert torch.equal(filtered.node[fine], unfiltered.node[fine])
    assert torch.equal(filtered.is_subject, unfiltered.is_subject)


@pytest.mark.parametrize("at_hand", [("cpu",), ()])
def test_filtering_ends_if_every_triple_is_known(at_hand: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(negatives, "SYNCHRONOUS_DEVICES", at_hand)
    everything = torch.cartesian_prod(torch.arange(3), torch.arange(1), torch.arange(3))
    found = corrupt(everything, 3, generator=seeded(0), known=KnownTriples.of(everything, num_nodes=3, num_relations=1))
    assert len(found) == 90
    one_node = torch.zeros(1, 3, dtype=torch.int64)
    found = corrupt(one_node, 1, generator=seeded(0), known=KnownTriples.of(one_node, num_nodes=1, num_relations=1))
    assert not found.triples(one_node).any()


def test_no_positives_have_no_negatives() -> None:
    empty = torch.zeros(0, 3, dtype=torch.int64)
    assert len(corrupt(empty, 4, generator=seeded(0), known=KnownTriples.of(empty, num_nodes=4, num_relations=1))) == 0


@pytest.mark.parametrize("options", [{"rate": 0}, {"head_probability": 1.5}, {"num_nodes": 0}])
def test_impossible_settings_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        corrupt(some_triples(3, 4), **{"num_nodes": 4, **options})  # type: ignore[arg-type]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("filtered", [False, True])
def test_sampling_does_not_synchronize_with_the_gpu(filtered: bool) -> None:
    positives = some_triples(100, 10).cuda()
    known = KnownTriples.of(positives, num_nodes=10, num_relations=3) if filtered else None
    generator = seeded(0, "cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        corrupt(positives, 10, generator=generator, known=known).triples(positives)
    finally:
        torch.cuda.set_sync_debug_mode("default")


# -- prefetching ------------------------------------------------------------------------------------------


def prefetching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("rgcn-prefetch")]


def test_items_come_in_order_and_the_thread_ends() -> None:
    assert list(prefetched(range(100), depth=3)) == list(range(100))
    assert not prefetching()


def test_a_function_is_called_again_and_again() -> None:
    counter = itertools.count()
    batches = prefetched(lambda: np.full(3, next(counter)))
    assert [next(batches)[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    batches.close()  # type: ignore[attr-defined]
    assert not prefetching()


def test_preparation_runs_ahead_but_not_further_than_asked() -> None:
    made = []

    def source() -> Iterator[int]:
        for n in range(100):
            made.append(n)
            yield n

    batches = prefetched(source(), depth=2)
    assert next(batches) == 0
    deadline = time.monotonic() + 5
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.02)
    assert made == [0, 1, 2, 3]  # one consumed, two waiting, one in hand
    del batches
    gc.collect()
    assert not prefetching()


def test_an_early_end_of_the_loop_ends_the_thread() -> None:
    def loop() -> None:
        for item in prefetched(itertools.count()):
            if item == 3:
                break

    loop()
    gc.collect()
    assert not prefetching()


def test_an_exception_is_raised_in_place_of_its_item() -> None:
    def source() -> Iterator[int]:
        yield 1
        yield 2
        raise DataError("the third is bad")

    batches = prefetched(source())
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(DataError, match="the third is bad"):
        next(batches)
    assert list(batches) == []
    assert not prefetching()


def test_an_iterator_that_is_not_read_starts_no_thread() -> None:
    prefetched(range(3))
    assert not prefetching()
    assert list(prefetched(range(3), depth=0)) == [0, 1, 2]
