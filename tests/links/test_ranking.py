"""Compare ranks with a definition in loops and with recorded results of PyKEEN; test edge cases."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.kernels import dispatch
from rgcn.links.ranking import (
    RankCounts,
    RankedQuestions,
    Ranks,
    count_ranks_among,
    rank_metrics,
    rank_triples,
    summarize,
    true_scores,
)
from rgcn.nn.decoders import DistMult
from rgcn.nn.scorer import Questions, VectorScorer
from rgcn.sampling.known_triples import KnownTriples
from tabled import TableScorer

TIES = ("optimistic", "pessimistic", "realistic")
Triple = tuple[int, int, int]


def rank_table(table: Tensor, triples: Tensor, filter: KnownTriples | None, **options: Any) -> Ranks:
    """Ranks under scores looked up in a table [subject, relation, object]."""
    return rank_triples(TableScorer(table), triples, filter, **options)


def naive_rank(scores: list[float], target: int, others: set[int], ties: str) -> float:
    """Rank by sorting the candidates and finding the positions of the score of the target."""
    candidates = [score for node, score in enumerate(scores) if node == target or node not in others]
    places = [i + 1 for i, score in enumerate(sorted(candidates, reverse=True)) if score == scores[target]]
    return {"optimistic": places[0], "pessimistic": places[-1], "realistic": (places[0] + places[-1]) / 2}[ties]


def naive_ranks(table: Tensor, triples: list[Triple], known: set[Triple], ties: str) -> tuple[list[float], list[float]]:
    by_object, by_subject = [], []
    for s, r, o in triples:
        objects = {b for a, q, b in known if (a, q) == (s, r)}
        subjects = {a for a, q, b in known if (q, b) == (r, o)}
        by_object.append(naive_rank(table[s, r].tolist(), o, objects, ties))
        by_subject.append(naive_rank(table[:, r, o].tolist(), s, subjects, ties))
    return by_object, by_subject


@st.composite
def cases(draw: st.DrawFn) -> tuple[Tensor, list[Triple], list[Triple], int]:
    """(scores with ties, triples to rank, known triples, memory budget), with duplicates in both lists."""
    nodes, relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    value = st.sampled_from([-float("inf"), -1.0, 0.0, 0.5, 2.0, float("inf")])
    size = nodes * relations * nodes
    values = draw(st.lists(value, min_size=size, max_size=size))
    triple = st.tuples(st.integers(0, nodes - 1), st.integers(0, relations - 1), st.integers(0, nodes - 1))
    triples = draw(st.lists(triple, min_size=1, max_size=12))
    known = draw(st.lists(triple, max_size=20))
    table = torch.tensor(values, dtype=draw(st.sampled_from([torch.float32, torch.float64])))
    return table.view(nodes, relations, nodes), triples, known, draw(st.sampled_from([1, 100, 10_000]))


@pytest.mark.parametrize("compiled", [True, False])
def test_ranks_equal_the_definition(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(dispatch, "_load", lambda name: None)

    @settings(max_examples=80, deadline=None)
    @given(cases())
    def check(case: tuple[Tensor, list[Triple], list[Triple], int]) -> None:
        table, triples, known, budget = case
        filter = KnownTriples.of(
            torch.tensor(known, dtype=torch.int64).view(-1, 3), num_nodes=len(table), num_relations=table.shape[1]
        )
        scorer = TableScorer(table)
        for scorer.has_cheap_candidates in (False, True):  # questions with all nodes, and with some of them at a time
            ranks = rank_triples(scorer, torch.tensor(triples), filter, memory_budget=budget)
            for ties in TIES:
                for filtered in (True, False):
                    expected = naive_ranks(table, triples, set(known) if filtered else set(), ties)
                    assert ranks.rank("object", ties, filtered).tolist() == expected[0]  # type: ignore[arg-type]
                    assert ranks.rank("subject", ties, filtered).tolist() == expected[1]  # type: ignore[arg-type]

    check()


@settings(max_examples=80, deadline=None)
@given(cases(), st.lists(st.integers(0, 6), max_size=3), st.integers(1, 4))
def test_counts_of_ranges_of_nodes_add_up(
    case: tuple[Tensor, list[Triple], list[Triple], int], cuts: list[int], width: int
) -> None:
    """Each process counts among its share of the nodes; scores of true answers are summed, then the counts."""
    table, triples, known, _ = case
    scorer, edges = TableScorer(table), sorted({0, len(table), *(min(cut, len(table)) for cut in cuts)})
    subject, relation, target = torch.tensor(triples).unbind(1)
    others = [sorted({b for a, q, b in known if (a, q) == (s, r)}) for s, r, _ in triples]
    end = torch.tensor([len(each) for each in others]).cumsum(0)
    begin, row = torch.cat([torch.zeros(1, dtype=torch.int64), end[:-1]]), torch.arange(len(triples))
    nodes = torch.tensor([node for each in others for node in each], dtype=torch.int32)
    questions = RankedQuestions(Questions(subject, relation), row, target, begin, end, nodes)
    shares = [range(low, high) for low, high in itertools.pairwise(edges)]
    own = sum((true_scores(scorer, questions, share, width) for share in shares), torch.zeros(()))
    assert torch.equal(own, table[subject, relation, target])
    counts = torch.stack([count_ranks_among(scorer, questions, own, share, width) for share in shares]).sum(0)
    for (s, r, o), there, (greater, equal, *of_known, has_nan) in zip(triples, others, counts.tolist(), strict=True):
        scores = table[s, r]
        rest = scores[[node for node in there if node != o]]
        assert [greater, equal, has_nan] == [int((scores > scores[o]).sum()), int((scores == scores[o]).sum()), 0]
        assert of_known == [int((rest > scores[o]).sum()), int((rest == scores[o]).sum())]


def test_a_block_of_nodes_gives_the_ranks_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use vectors of small integers, whose products are exact; every fifth node duplicates another one."""
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randint(-3, 4, (3000, 6), generator=generator).float()
    nodes[::5] = nodes[1::5]
    decoder = DistMult(3, 6, generator=generator)
    decoder.relation.data.round_()
    scorer = VectorScorer(decoder, nodes)
    triples = torch.stack([torch.randint(high, (700,), generator=generator) for high in (300, 3, 3000)], dim=1)
    filter = KnownTriples.of(triples, num_nodes=3000, num_relations=3)
    calls: list[tuple[int, int]] = []
    scores = scorer.scores

    def hear(questions: Questions, candidates: Tensor | None = None) -> Tensor:
        calls.append((questions.size, 3000 if candidates is None else len(candidates)))
        return scores(questions, candidates)

    monkeypatch.setattr(scorer, "scores", hear)
    whole = rank_triples(scorer, triples, filter)
    assert {columns for _, columns in calls} == {3000}
    calls.clear()
    blocks = rank_triples(scorer, triples, filter, memory_budget=300_000)
    assert {columns for _, columns in calls} == {75_000 // math.isqrt(75_000)}  # all of one width
    assert max(rows * columns for rows, columns in calls) <= 75_000
    for side in ("object", "subject"):
        assert torch.equal(getattr(whole, side).counts, getattr(blocks, side).counts)
        assert getattr(whole, side).counts.shape == (700, 5)


def naive_hits_of(scores: list[float], target: int, known: set[int], drawn: int, ties: str, k: int) -> float:
    """Enumerate all draws, and return the share in which the target is among the best k."""
    others = [score for node, score in enumerate(scores) if node != target and node not in known]
    draws = list(itertools.product(others, repeat=drawn)) if others else [()]
    ranks = [naive_rank([scores[target], *draw], 0, set(), ties) for draw in draws]
    return sum(rank <= k for rank in ranks) / len(ranks)


@settings(max_examples=60, deadline=None)
@given(cases(), st.integers(1, 3), st.integers(1, 3))
def test_hits_among_drawn_answers_are_the_mean_over_all_draws(case, drawn: int, k: int) -> None:
    table, triples, known, _ = case
    sizes = {"num_nodes": len(table), "num_relations": table.shape[1]}
    ranks = rank_table(table, torch.tensor(triples), KnownTriples.of(torch.tensor(known).view(-1, 3).long(), **sizes))
    for ties, filtered in itertools.product(TIES, (True, False)):
        there = set(known) if filtered else set()
        expected = [
            (
                naive_hits_of(table[s, r].tolist(), o, {b for a, q, b in there if (a, q) == (s, r)}, drawn, ties, k),
                naive_hits_of(table[:, r, o].tolist(), s, {a for a, q, b in there if (q, b) == (r, o)}, drawn, ties, k),
            )
            for s, r, o in triples
        ]
        for side, wanted in zip((ranks.object, ranks.subject), zip(*expected, strict=True), strict=True):
            assert side.sampled_hits(drawn, ties, filtered, k).tolist() == pytest.approx(wanted, abs=1e-12)


def test_hits_of_50_are_what_drawing_gives() -> None:
    """Draw 50 candidates for each triple many times, as the authors of the metric do; compare the mean."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(0, 60, (80, 1, 80), generator=generator).double()  # with ties
    triples, known = torch.tensor([[3, 0, 5], [7, 0, 9]]), torch.randint(0, 80, (40, 3), generator=generator)
    known[:, 1] = 0
    filter = KnownTriples.of(known, triples, num_nodes=80, num_relations=1)
    report = summarize(rank_table(table, triples, filter), num_candidates=50)
    shares = []
    for s, _, o in triples.tolist():
        others = torch.tensor([b for b in range(80) if not filter.contains(torch.tensor([s, 0, b]))])
        drawn = table[s, 0, others[torch.randint(0, len(others), (20_000, 50), generator=generator)]]
        rank = 1 + (drawn > table[s, 0, o]).sum(1) + 0.5 * (drawn == table[s, 0, o]).sum(1)
        shares.append(float((rank <= 10).double().mean()))
    assert report.object.as_dict()["hits@10_of_50"] == pytest.approx(sum(shares) / 2, abs=0.01)
    both = (report.object.sampled_hits[50] + report.subject.sampled_hits[50]) / 2
    assert report.both.sampled_hits[50] == pytest.approx(both)
    assert "hits@10_of_50" not in summarize(rank_table(table, triples, filter)).both.as_dict()


def test_hits_of_drawn_at_the_edges() -> None:
    alone = rank_table(torch.zeros(1, 1, 1), torch.tensor([[0, 0, 0]]), None)
    assert alone.object.sampled_hits(50, filtered=False).tolist() == [1.0]  # no candidates: the target is first
    with pytest.raises(ConfigError, match="at least one"):
        alone.object.sampled_hits(0, filtered=False)
    last = rank_table(torch.tensor([[[0.0, 1.0]]]).expand(2, 1, 2), torch.tensor([[0, 0, 0]]), None)
    assert last.object.sampled_hits(10_000, filtered=False).tolist() == [0.0]


def test_metrics_equal_pykeens() -> None:
    recorded = json.loads((Path(__file__).parent / "pykeen_fixture.json").read_text(encoding="utf-8"))
    table = torch.tensor(recorded["scores"], dtype=torch.float32)
    train, valid, test = (torch.tensor(recorded[split]) for split in ("train", "valid", "test"))
    filter = KnownTriples.of(train, valid, test, num_nodes=len(table), num_relations=table.shape[1])
    ranks = rank_table(table, test, filter)
    for setting, by_ties in recorded["expected"].items():
        for ties, by_side in by_ties.items():
            report = summarize(ranks, ties=ties, filtered=setting == "filtered", hits_at=(1, 3, 5, 10))
            for side, expected in by_side.items():
                ours = {metric: getattr(report, side).as_dict()[metric] for metric in expected}
                assert ours == pytest.approx(expected, rel=1e-6), (setting, ties, side)


# -- traps other implementations fell into ----------------------------------------------------------------


def test_a_validation_triple_missing_from_the_filter_is_counted_against_the_model() -> None:
    table = torch.tensor([[[0.0, 3.0, 2.0, 1.0]]]).expand(4, 1, 4)
    train, valid, test = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 0, 2]]), torch.tensor([[0, 0, 3]])
    size = {"num_nodes": 4, "num_relations": 1}
    whole = rank_table(table, test, KnownTriples.of(train, valid, test, **size))
    without = rank_table(table, test, KnownTriples.of(train, test, **size))
    assert whole.rank("object").item() == 1.0
    assert without.rank("object").item() == 2.0
    assert whole.rank("object", filtered=False).item() == 3.0


def test_nodes_that_training_never_saw_are_ranked_and_ranked_against() -> None:
    train, test = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 0, 3], [3, 0, 1]])  # 2 and 3 are unseen
    table = torch.zeros(4, 1, 4)
    table[:, :, 2] = 1.0
    ranks = rank_table(table, test, KnownTriples.of(train, test, num_nodes=4, num_relations=1))
    assert len(ranks) == 2
    assert summarize(ranks).both.count == 4
    # 2 is above 3; 0 ties with it; 1 is a known answer
    assert ranks.rank("object", "optimistic")[0].item() == 2.0
    assert ranks.rank("object", "pessimistic")[0].item() == 3.0


def test_a_model_that_gives_every_node_the_same_score_is_not_rewarded() -> None:
    test = torch.tensor([[0, 0, 1]])
    ranks = rank_table(torch.zeros(101, 1, 101), test, KnownTriples.of(test, num_nodes=101, num_relations=1))
    assert ranks.rank("object").item() == 51.0


def test_every_query_is_scored_once_and_no_block_exceeds_the_budget() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(30, 2, 30, generator=generator)
    triples = torch.randint(2, (200, 3), generator=generator)
    triples[:, 2] = torch.randint(30, (200,), generator=generator)
    scored_queries: list[tuple[int, int]] = []

    def hear(questions: Questions) -> None:
        assert questions.size * 30 * 4 <= 1000
        if questions.for_objects is True:
            scored_queries.extend(zip(questions.node.tolist(), questions.relation.tolist(), strict=True))

    filter = KnownTriples.of(triples, num_nodes=30, num_relations=2)
    small = rank_triples(TableScorer(table, hear), triples, filter, memory_budget=1000)
    assert set(scored_queries) == {(s, r) for s, r, _ in triples.tolist()}
    scored_queries.clear()
    monolithic = rank_table(table, triples, filter)
    assert torch.equal(small.rank("object"), monolithic.rank("object"))
    assert torch.equal(small.rank("subject"), monolithic.rank("subject"))

    calls: list[int] = []

    rank_triples(TableScorer(table, lambda questions: calls.append(questions.size)), triples, filter)
    assert calls[0] == 4  # 200 triples, but two subjects and two relations


# -- metrics ----------------------------------------------------------------------------------------------


@given(
    st.lists(st.integers(2, 60).map(lambda n: n / 2), min_size=1, max_size=30),
    st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True),
)
def test_metrics_equal_the_definition(ranks: list[float], hits_at: list[int]) -> None:
    metrics = rank_metrics(torch.tensor(ranks, dtype=torch.float64), hits_at)
    assert metrics.count == len(ranks)
    assert metrics.mrr == pytest.approx(sum(1 / rank for rank in ranks) / len(ranks), rel=1e-12)
    assert metrics.mean_rank == pytest.approx(sum(ranks) / len(ranks), rel=1e-12)
    for k in hits_at:
        assert metrics.hits[k] == pytest.approx(sum(rank <= k for rank in ranks) / len(ranks), rel=1e-12)


def test_the_report_splits_by_direction_and_relation() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(6, 4, 6, generator=generator)
    triples = torch.tensor([[0, 0, 1], [1, 0, 2], [3, 2, 4], [5, 2, 5], [2, 2, 0]])
    ranks = rank_table(table, triples, KnownTriples.of(triples, num_nodes=6, num_relations=4))
    report = summarize(ranks, hits_at=(1, 100))
    by_object, by_subject = ranks.rank("object"), ranks.rank("subject")
    assert report.object.mrr == pytest.approx((1 / by_object).mean().item(), rel=1e-12)
    assert report.subject.mrr == pytest.approx((1 / by_subject).mean().item(), rel=1e-12)
    assert report.both.mrr == pytest.approx((report.object.mrr + report.subject.mrr) / 2, rel=1e-12)
    assert list(report.by_relation) == [0, 2]  # relations without ranked triples are not reported
    assert report.by_relation[2].count == 6
    both = torch.cat([by_object[2:], by_subject[2:]])
    assert report.by_relation[2].mean_rank == pytest.approx(both.mean().item(), rel=1e-12)
    assert report.both.hits[100] == 1.0  # k larger than the graph
    assert json.loads(json.dumps(report.as_dict("abcd")))["hits@100"] == 1.0


# -- bad input --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("place", [1, 2])
def test_nan_scores_are_an_error(compiled: bool, place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(dispatch, "_load", lambda name: None)
    table = torch.zeros(3, 1, 3)
    table[0, 0, place] = float("nan")  # NaN for the target itself, or for another node
    with pytest.raises(DataError, match="1 of 2 queries contain NaN"):
        rank_table(table, torch.tensor([[0, 0, 1], [1, 0, 1]]), None)


def test_invalid_rankings_are_refused() -> None:
    table = torch.zeros(3, 2, 3)
    filter = KnownTriples.of(torch.tensor([[0, 0, 1]]), num_nodes=3, num_relations=2)
    with pytest.raises(DataError, match="no triples"):
        rank_table(table, torch.zeros(0, 3, dtype=torch.int64), filter)
    with pytest.raises(DataError, match="node outside"):
        rank_table(table, torch.tensor([[0, 0, 3]]), filter)
    with pytest.raises(DataError, match="relation outside"):
        rank_table(table, torch.tensor([[0, 2, 1]]), filter)
    with pytest.raises(DataError, match="int64"):
        rank_table(table, torch.tensor([[0, 0, 1]]).float(), filter)
    with pytest.raises(DataError, match="nodes"):
        rank_table(torch.zeros(4, 2, 4), torch.tensor([[0, 0, 1]]), filter)
    wrong = TableScorer(table)
    wrong.num_nodes = 4
    with pytest.raises(DataError, match="returned"):
        rank_triples(wrong, torch.tensor([[0, 0, 1]]))


def test_unknown_choices_are_named() -> None:
    ranks = rank_table(torch.zeros(2, 1, 2), torch.tensor([[0, 0, 1]]), None)
    with pytest.raises(ConfigError, match="without a filter"):
        ranks.rank("object")
    with pytest.raises(ConfigError, match="ties"):
        ranks.rank("object", "lucky", filtered=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="direction"):
        ranks.rank("tail", filtered=False)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="at least 1"):
        summarize(ranks, filtered=False, hits_at=(0,))
    with pytest.raises(DataError, match="no ranks"):
        rank_metrics(torch.zeros(0))


def test_half_precision_scores_can_be_ranked() -> None:
    table = torch.tensor([[[0.0, 1.0, 2.0]]], dtype=torch.bfloat16).expand(3, 1, 3)
    ranks = rank_table(table, torch.tensor([[0, 0, 1]]), None)
    assert ranks.rank("object", filtered=False).item() == 2.0


def test_several_threads_count_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(9000, 8, generator=generator)
    decoder = DistMult(3, 8, generator=generator)
    triples = torch.stack([torch.randint(high, (300,), generator=generator) for high in (9000, 3, 9000)], dim=1)
    filter = KnownTriples.of(triples, num_nodes=9000, num_relations=3)

    def ranks() -> Ranks:
        return rank_triples(VectorScorer(decoder, nodes), triples, filter)

    several, threads = ranks(), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = ranks()
    finally:
        torch.set_num_threads(threads)
    # The product itself may round differently on another number of threads; a rank then moves by a place or two.
    assert (several.rank("object") - one.rank("object")).abs().max() <= 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_ranks_on_a_gpu_are_those_on_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    table = torch.randint(5, (20, 3, 20), generator=generator).float()
    triples = torch.stack([torch.randint(high, (50,), generator=generator) for high in (20, 3, 20)], dim=1)
    filter = KnownTriples.of(triples, num_nodes=20, num_relations=3)
    here = rank_table(table, triples, filter)
    there = rank_table(table.cuda(), triples.cuda(), filter)
    assert torch.equal(here.rank("object"), there.rank("object"))
    assert torch.equal(here.rank("subject"), there.rank("subject"))


def test_metrics_of_a_sample_come_with_their_standard_errors() -> None:
    """Over many samples, the deviation of a metric is about the standard error that each sample reports."""
    generator, total, size = torch.Generator().manual_seed(0), 60, 20
    place = torch.randint(1, 30, (2, total), generator=generator)
    one = torch.ones(total, dtype=torch.int64)

    def report(which: Tensor, drawn_from: int | None) -> dict[str, float]:
        sides = [RankCounts(100, torch.stack([place[side][which] - 1, one[which]], dim=1)) for side in (0, 1)]
        triples = torch.zeros(len(which), 3, dtype=torch.int64)
        return summarize(Ranks(triples, *sides), filtered=False, population=drawn_from).both.as_dict()

    found = [report(torch.randperm(total, generator=generator)[:size], total) for _ in range(400)]
    for name in ("mrr", "hits@1", "hits@10", "mean_rank"):
        spread = torch.tensor([each[name] for each in found]).std().item()
        estimated = torch.tensor([each[f"{name}_error"] for each in found]).mean().item()
        assert estimated == pytest.approx(spread, rel=0.15)
    assert "mrr_error" not in report(torch.arange(total), total)
    assert "mrr_error" not in report(torch.arange(total), None)
