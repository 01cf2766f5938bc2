"""How well true triples rank among all others: the rank of each among all triples that differ from it in one node.

A triple (s, r, o) asks two questions, (s, r, ?) and (?, r, o); its rank under each is the place of its own score among
the scores of all N nodes. Counting does it, nothing is sorted:

    optimistic   1 + #(scores greater)
    pessimistic  1 + #(scores greater) + #(other scores equal)
    realistic    their mean: the expected place if ties were broken at random

"Filtered" leaves out other answers known to be true. They are not masked in the scores: what they contributed is
counted apart and subtracted, so that one pass gives raw and filtered ranks, under every treatment of ties. What is
reported of them: mean reciprocal rank, hits at k, mean rank; and how often a triple would be among the best k of itself
and a few others drawn at random, which follows from the same counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.kernels import reference
from rgcn.kernels.dispatch import kernels_for
from rgcn.kernels.sparse import expanded_ranges
from rgcn.nn.scorer import Questions, Scorer
from rgcn.placement import NodePartition, Placement
from rgcn.sampling.known_triples import KnownAnswers, KnownTriples, lower_bound

Ties = Literal["realistic", "optimistic", "pessimistic"]
Direction = Literal["object", "subject"]
HITS_AT = (1, 3, 10)
AMONG_DRAWN = 10  # hits at this place among drawn answers, as Teru et al. (2020) report it among 50

# On the CPU blocks of scores are best below 32 MiB, where the allocator hands the same warm memory out again. Where it
# holds too few rows of all nodes to be worth reading their vectors for, a block is of some nodes and of many rows.
CPU_BLOCK, ACCELERATOR_BLOCK, LARGEST_BLOCK, ENOUGH_ROWS, MOST_ROWS = 24 << 20, 256 << 20, 1 << 30, 64, 512


@dataclass(frozen=True, eq=False)
class RankCounts:
    """What the ranks in one direction are made of, int64 [n] each.

    greater, equal              nodes that score above the true one, and like it (itself among them)
    known_greater, known_equal  how many of these are other known answers; None without a filter
    known                       how many other known answers there are; None without a filter
    num_nodes                   nodes it is ranked among, itself among them
    """

    num_nodes: int
    greater: Tensor
    equal: Tensor
    known_greater: Tensor | None = None
    known_equal: Tensor | None = None
    known: Tensor | None = None

    def gathered(self, placement: Placement) -> RankCounts:
        """Those of all questions, from those that were answered here."""
        counts = self.greater, self.equal, self.known_greater, self.known_equal, self.known
        every = (None if part is None else placement.gather_answers(part) for part in counts)
        return RankCounts(self.num_nodes, *every)  # type: ignore[arg-type]

    def rank(self, ties: Ties = "realistic", filtered: bool = True) -> Tensor:
        """float64 [n], on the CPU: 1 is best."""
        above, like, _ = self._others(filtered)
        return 1.0 + above + _share_above(ties) * like

    def hits_of(self, drawn: int, ties: Ties = "realistic", filtered: bool = True, k: int = AMONG_DRAWN) -> Tensor:
        """float64 [n], on the CPU: how likely the true answer is among the best k of itself and `drawn` others.

        The others are drawn at random, with replacement, from the nodes that are no known answer. This is the mean over
        all n = drawn draws, exactly: of A above it and E like it the rank is 1 + A + E / 2 (ties at the middle), and
        with the shares a and e of either among all that may be drawn

            P(rank ≤ k) = Σ over A + E / 2 ≤ k - 1 of  n! / (A! E! (n - A - E)!) · a^A e^E (1 - a - e)^(n - A - E)

        >>> one, three = torch.tensor([1]), torch.tensor([3])  # itself alone scores as it does, three of nine above it
        >>> RankCounts(10, greater=three, equal=one).hits_of(2, filtered=False, k=1)  # (6/9)²
        tensor([0.4444], dtype=torch.float64)
        """
        if drawn < 1:
            raise ConfigError(f"ranks among drawn answers need at least one of them, not {drawn}")
        share, (above, like, all_others) = _share_above(ties), self._others(filtered)
        a, e = (part / all_others.clamp(min=1) for part in (above, like))
        rest = ((all_others - above - like) / all_others.clamp(min=1)).masked_fill(all_others == 0, 1.0)
        likely = torch.zeros_like(a)
        for better in range(min(k - 1, drawn) + 1):
            for equal in range(drawn - better + 1):
                if better + share * equal > k - 1:
                    break
                ways = float(math.comb(drawn, better) * math.comb(drawn - better, equal))
                likely += ways * a**better * e**equal * rest ** (drawn - better - equal)
        return likely.clamp(max=1.0)

    def _others(self, filtered: bool) -> tuple[Tensor, Tensor, Tensor]:
        """float64 [n] each, on the CPU: how many others score above the true one, how many like it, how many in all."""
        above, like, every = self.greater, self.equal - 1, torch.full_like(self.equal, self.num_nodes - 1)
        if filtered:
            if self.known_greater is None or self.known_equal is None or self.known is None:
                raise ConfigError("filtered ranks were asked for, but the triples were ranked without a filter")
            above, like, every = above - self.known_greater, like - self.known_equal, every - self.known
        return above.double().cpu(), like.double().cpu(), every.double().cpu()


def _share_above(ties: Ties) -> float:
    """The share of equal scores that counts as better."""
    shares = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}
    if ties not in shares:
        raise ConfigError(f"unknown treatment of ties {ties!r}; there are {', '.join(shares)}")
    return shares[ties]


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of triples int64 [n, 3] in both directions: `object` answers (s, r, ?), `subject` answers (?, r, o)."""

    triples: Tensor
    object: RankCounts
    subject: RankCounts

    def __len__(self) -> int:
        return len(self.triples)

    def rank(self, direction: Direction, ties: Ties = "realistic", filtered: bool = True) -> Tensor:
        """float64 [n] in the order of the triples."""
        if direction not in get_args(Direction):
            raise ConfigError(f"unknown direction {direction!r}; there are {', '.join(get_args(Direction))}")
        return (self.object if direction == "object" else self.subject).rank(ties, filtered)


@torch.no_grad()
def rank_triples(
    scorer: Scorer,
    triples: Tensor,
    filter: KnownTriples | None = None,
    *,
    memory_budget: int | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Ranks:
    """Rank triples int64 [n, 3] against all nodes, also those that training never saw, in both directions.

    scorer          what is ranked; its device is where the triples are
    filter          the triples that are known; what is left out of it is counted against the model. None ranks raw only
    memory_budget   bytes that float32 scores and what is computed from them may take at once (at least one row is
                    scored): blocks of queries, equal ones once, and where nodes are many of these too
    on_progress     called after each block with how many of the 2 n questions are answered

    >>> class ByAnswer(Scorer):  # one relation, scores that depend on the answer alone
    ...     num_nodes, device = 3, torch.device("cpu")
    ...
    ...     def scores(self, questions, candidates=None, out=None):
    ...         return torch.tensor([[0.1, 0.9, 0.5]]).expand(questions.size, 3)
    >>> train, test = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 0, 2]])
    >>> known = KnownTriples.of(train, test, num_nodes=3, num_relations=1)
    >>> ranks = rank_triples(ByAnswer(), test, known)
    >>> ranks.rank("object", filtered=False), ranks.rank("object")  # node 1 is known, and leaves the list
    (tensor([2.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    _check(triples, scorer.num_nodes, filter)
    placement, share = scorer.placement, scorer.placement.answer_share(len(triples))
    if share == slice(0, len(triples)):
        return _ranked(scorer, triples, filter, memory_budget, on_progress)
    mine = _ranked(scorer, triples[share], filter, memory_budget, on_progress)
    return Ranks(triples, *(side.gathered(placement) for side in (mine.object, mine.subject)))


def _ranked(
    scorer: Scorer,
    triples: Tensor,
    filter: KnownTriples | None,
    memory_budget: int | None,
    on_progress: Callable[[int], None] | None,
) -> Ranks:
    subject, relation, object_ = triples.unbind(1)
    known = None if filter is None else filter.to(triples.device)
    num_relations = int(relation.max()) + 1 if known is None else known.num_relations
    rank = _Ranker(scorer, num_relations, memory_budget, on_progress)
    itself = 0 if known is None else known.contains(triples).long()
    objects = rank(True, subject, relation, object_, None if known is None else known.objects, itself)
    subjects = rank(False, object_, relation, subject, None if known is None else known.subjects, itself)
    return Ranks(triples, objects, subjects)


def _check(triples: Tensor, num_nodes: int, filter: KnownTriples | None) -> None:
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != torch.int64:
        raise DataError(f"triples must be int64 [n, 3], not {triples.dtype} {list(triples.shape)}")
    if len(triples) == 0:
        raise DataError("there are no triples to rank")
    if filter is not None and filter.num_nodes != num_nodes:
        raise DataError(f"the filter is of {filter.num_nodes} nodes, the ranking of {num_nodes}")
    low, high = triples.min(0).values.tolist(), triples.max(0).values.tolist()
    if min(low) < 0 or max(high[0], high[2]) >= num_nodes:
        raise DataError(f"a triple to rank refers to a node outside 0..{num_nodes - 1}")
    if filter is not None and high[1] >= filter.num_relations:
        raise DataError(f"a triple to rank refers to a relation outside 0..{filter.num_relations - 1}")


class RankedQuestions(NamedTuple):
    """Questions with a true answer each: what is counted of it in some nodes adds up to what is counted in all.

    distinct    the questions, each once
    row         int64 [n]: which of them each true answer is to
    target      int64 [n]: the true answers
    begin, end  int64 [n]: the known answers to the same question are known[begin[i] : end[i]], ascending
    known       nodes
    """

    distinct: Questions
    row: Tensor
    target: Tensor
    begin: Tensor
    end: Tensor
    known: Tensor

    def among(self, partition: NodePartition | None) -> RankedQuestions:
        """The same among the local nodes, by their rows; a true answer that is not local is -1."""
        if partition is None:
            return self
        count, which = self.distinct.size, torch.arange(len(self.row), device=self.row.device)
        some = self.row.new_zeros(count).index_put_((self.row,), which)  # a true answer to each question
        of, place = expanded_ranges(self.begin[some], self.end[some])
        node = self.known[place].long()
        mine = torch.nonzero(partition.is_local(node)).squeeze(1)
        of, place = of[mine], partition.row(node[mine])
        place = place[torch.argsort(of * len(partition) + place)]
        number = torch.bincount(of, minlength=count)
        end = torch.cumsum(number, 0)
        target = torch.where(partition.is_local(self.target), partition.row(self.target), -1)
        return self._replace(target=target, begin=(end - number)[self.row], end=end[self.row], known=place)


def true_scores(scorer: Scorer, asked: RankedQuestions, nodes: range, width: int) -> Tensor:
    """[n]: the score of each true answer that is among the nodes, 0 of the others.

    They stand among others of the range, `width` in all: as many as `count_among` scores at once. A product of another
    size may round otherwise, and then what is equal would not be.
    """
    mine = torch.nonzero((asked.target >= nodes.start) & (asked.target < nodes.stop)).squeeze(1)
    target = asked.target[mine]
    own = torch.unique(target)
    others = torch.arange(nodes.start, min(nodes.start + width + len(own), nodes.stop), device=own.device)
    others = others[~torch.isin(others, own)][: max(0, width - len(own))]
    candidates = torch.sort(torch.cat([own, others])).values
    scores = _scored(scorer, asked.distinct, candidates)
    found = scores.new_zeros(len(asked.target))
    found[mine] = scores[asked.row[mine], torch.searchsorted(candidates, target)]
    return found


def count_among(scorer: Scorer, asked: RankedQuestions, own: Tensor, nodes: range, width: int) -> Tensor:
    """int64 [n, 5], of a range of nodes, `width` at a time: how many score above each true answer, whose score own [n]
    is, and how many like it (itself among them); how many of either are other known answers; how many scores are NaN.
    """
    counts = torch.zeros(len(own), 5, dtype=torch.int64, device=own.device)
    begin = lower_bound(asked.known, asked.begin, asked.end, nodes.start)
    for first in range(nodes.start, nodes.stop, width):
        last = min(first + width, nodes.stop)
        early = max(nodes.start, last - width)  # the last ones are scored among as many as all others, too
        scores = _scored(scorer, asked.distinct, torch.arange(early, last, device=own.device))[:, first - early :]
        end = lower_bound(asked.known, begin, asked.end, last)
        counts += _counted(scores, asked._replace(begin=begin, end=end), own, first)
        begin = end
    return counts


def _counted_in_blocks(scorer: Scorer, asked: RankedQuestions, width: int) -> Tensor:
    """`count_among` all nodes, each process among its local ones."""
    placement, local = scorer.placement, scorer.local(asked.distinct)
    among, every = asked.among(placement.partition), range(local.num_nodes)
    true = true_scores(local, among, every, width)
    placement.sum_over_nodes(true)
    counts = count_among(local, among, true, every, width)
    placement.sum_over_nodes(counts)
    return counts


def _counted(scores: Tensor, asked: RankedQuestions, own: Tensor, first: int) -> Tensor:
    kernels = kernels_for(scores)
    return kernels.count_ranks(scores.contiguous(), own, first, *asked[1:])  # type: ignore[no-any-return]


def _scored(scorer: Scorer, asked: Questions, candidates: Tensor | None = None) -> Tensor:
    scores = scorer.scores(asked, candidates)
    expected = [asked.size, scorer.num_nodes if candidates is None else len(candidates)]
    if list(scores.shape) != expected:
        raise DataError(f"a scorer returned {list(scores.shape)} where {expected} was asked for")
    return scores


@dataclass
class _Ranker:
    """Ranks in one direction a call: the query's node and relation are given, the target is asked for."""

    scorer: Scorer
    num_relations: int
    memory_budget: int | None
    on_progress: Callable[[int], None] | None
    answered: int = 0

    def __call__(
        self,
        for_objects: bool,
        node: Tensor,
        relation: Tensor,
        target: Tensor,
        answers: KnownAnswers | None = None,
        itself: Tensor | int = 0,
    ) -> RankCounts:
        """answers: what is known; itself int64 [n]: 1 where the target is among it"""
        key = node * self.num_relations + relation
        order = torch.argsort(key)  # equal queries side by side
        key, target = key[order], target[order]
        begin, end = answers.ranges(key) if answers is not None else (torch.zeros_like(key), torch.zeros_like(key))
        parts, known = [], begin.int() if answers is None else answers.node
        width, budget = self._block(key)
        for part in self._parts(begin, end, width, budget):
            queries, row = torch.unique_consecutive(key[part], return_inverse=True)
            questions = Questions(queries // self.num_relations, queries % self.num_relations, for_objects)
            asked = RankedQuestions(questions, row, target[part], begin[part], end[part], known)
            if width == self.scorer.num_nodes and self.scorer.placement.partition is None:
                scores = _scored(self.scorer, questions)
                parts.append(_counted(scores, asked, scores[row, asked.target], 0))
                del scores  # before the next block is scored, or two would be held at once
            else:
                parts.append(_counted_in_blocks(self.scorer, asked, width))
            self.answered += len(row)
            if self.on_progress is not None:
                self.on_progress(self.answered)
        counts = torch.empty(len(order), 6, dtype=torch.int64, device=key.device)
        counts[order] = torch.cat([torch.cat(parts), (end - begin)[:, None]], dim=1)
        if bool(counts[:, 4].any()):
            bad = int((counts[:, 4] > 0).sum())
            raise DataError(f"the scores of {bad} of {len(counts)} queries contain NaN: nothing can be ranked by them")
        found = counts.unbind(1)
        told = found[:2] if answers is None else (*found[:4], found[5] - itself)
        return RankCounts(self.scorer.num_nodes, *told)

    def _block(self, key: Tensor) -> tuple[int, int]:
        """(nodes that are scored at once, bytes that this may take): all nodes, or a block where they are many."""
        size, budget = self.scorer.num_nodes, self.memory_budget
        rows = min(ENOUGH_ROWS, len(key))
        if budget is None:
            budget = CPU_BLOCK if key.device.type == "cpu" else ACCELERATOR_BLOCK
            if not self.scorer.in_blocks:
                budget = max(budget, min(rows * size * 4, LARGEST_BLOCK))
        entries = max(budget // _bytes_each(key), 1)
        if not self.scorer.in_blocks or rows * size <= entries:
            return size, budget
        return min(size, entries // min(MOST_ROWS, len(key), math.isqrt(entries))), budget

    def _parts(self, begin: Tensor, end: Tensor, width: int, budget: int) -> Iterator[slice]:
        """Parts of the triples whose scores against so many nodes fit the budget; at least one triple each."""
        each = _bytes_each(begin)
        cost = torch.full_like(begin, each * width)
        if each > 4:
            cost += 40 * (end - begin)  # a few numbers for each known answer
        spent = torch.cumsum(cost, 0).cpu()
        first, before = 0, 0
        while first < len(spent):
            last = int(torch.searchsorted(spent, before + budget, right=True))
            last = max(last, first + 1)
            yield slice(first, last)
            first, before = last, int(spent[last - 1])


def _bytes_each(like: Tensor) -> int:
    """Bytes that a score takes until it is counted: compiled, in one pass; else with a copy, and two comparisons."""
    return 10 if kernels_for(like.new_empty(0, dtype=torch.float32)) is reference else 4


@dataclass(frozen=True)
class RankMetrics:
    """Means over `count` ranked queries.

    mrr        mean of 1 / rank
    hits       {k: share of ranks ≤ k}
    mean_rank  mean of rank
    hits_of    {n: mean chance to be among the best 10 of itself and n drawn answers (`RankCounts.hits_of`)}
    errors     {figure: its standard error}, where the triples are a sample of more
    """

    count: int
    mrr: float
    hits: dict[int, float]
    mean_rank: float
    hits_of: dict[int, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict[str, float]:
        """Flat, ready for JSON: mrr, hits@1, ..., hits@10_of_50 where it was asked for, mean_rank, count, mrr_error."""
        hits = {f"hits@{k}": value for k, value in self.hits.items()}
        hits |= {f"hits@{AMONG_DRAWN}_of_{drawn}": value for drawn, value in self.hits_of.items()}
        errors = {f"{name}_error": value for name, value in self.errors.items()}
        return {"mrr": self.mrr, **hits, "mean_rank": self.mean_rank, "count": self.count, **errors}


@dataclass(frozen=True)
class RankingReport:
    """Metrics over both directions together, each direction alone, and each relation that occurs (both directions)."""

    both: RankMetrics
    object: RankMetrics
    subject: RankMetrics
    by_relation: dict[int, RankMetrics]

    def as_dict(self, relations: Sequence[str]) -> dict[str, Any]:
        """Plain values, ready for JSON: those of both directions, `by_direction`, and `by_relation` by name."""
        return {
            **self.both.as_dict(),
            "by_direction": {"object": self.object.as_dict(), "subject": self.subject.as_dict()},
            "by_relation": {relations[r]: metrics.as_dict() for r, metrics in self.by_relation.items()},
        }


def rank_metrics(ranks: Tensor, hits_at: Sequence[int] = HITS_AT) -> RankMetrics:
    """Metrics of ranks [n], n ≥ 1. A k larger than the graph is harmless: every rank is a hit.

    >>> rank_metrics(torch.tensor([1.0, 2.0, 4.0, 4.0]), hits_at=(1, 3))
    RankMetrics(count=4, mrr=0.5, hits={1: 0.25, 3: 0.5}, mean_rank=2.75, hits_of={})
    """
    if ranks.numel() == 0:
        raise DataError("there are no ranks to take the mean of")
    return _by_group(ranks, torch.zeros_like(ranks, dtype=torch.int64), hits_at, {})[0]


def summarize(
    ranks: Ranks,
    *,
    ties: Ties = "realistic",
    filtered: bool = True,
    hits_at: Sequence[int] = HITS_AT,
    of: int | None = None,
    drawn_from: int | None = None,
) -> RankingReport:
    """The metrics of ranks under one treatment of ties, raw or filtered.

    of          also hits among so many drawn
    drawn_from  of how many triples these are a sample: figures of both directions come with their standard errors, the
                two ranks of a triple taken together, less as more of all were drawn
    """
    sides = ranks.object, ranks.subject
    every = torch.cat([side.rank(ties, filtered) for side in sides])
    drawn = {} if of is None else {of: torch.cat([side.hits_of(of, ties, filtered) for side in sides])}
    relation = ranks.triples[:, 1].cpu()

    def means(group: Tensor) -> dict[int, RankMetrics]:
        return _by_group(every, group, hits_at, drawn)

    by_side = means(torch.arange(2).repeat_interleave(len(ranks)))
    both = means(torch.zeros(len(every), dtype=torch.int64))[0]
    if drawn_from is not None and 1 < len(ranks) < drawn_from:
        figures = {"mrr": 1.0 / every, **{f"hits@{k}": (every <= k).double() for k in hits_at}, "mean_rank": every}
        scale = math.sqrt((1.0 - len(ranks) / drawn_from) / len(ranks))
        errors = {name: scale * float(each.view(2, -1).mean(0).std()) for name, each in figures.items()}
        both = replace(both, errors=errors)
    return RankingReport(both, by_side[0], by_side[1], means(torch.cat([relation, relation])))


def _by_group(ranks: Tensor, group: Tensor, hits_at: Sequence[int], drawn: dict[int, Tensor]) -> dict[int, RankMetrics]:
    """Metrics of the ranks of each group that occurs, by group number."""
    if any(k < 1 for k in hits_at):
        raise ConfigError(f"hits at k need k of at least 1, not {list(hits_at)}")
    ranks = ranks.double()
    groups, place, sizes = torch.unique(group, return_inverse=True, return_counts=True)
    columns = [1.0 / ranks, ranks, *[(ranks <= k).double() for k in hits_at], *drawn.values()]
    sums = torch.zeros(len(groups), len(columns), dtype=torch.float64).index_add_(0, place, torch.stack(columns, dim=1))
    means = (sums / sizes[:, None]).tolist()
    found = {}
    for number, size, (mrr, mean_rank, *shares) in zip(groups.tolist(), sizes.tolist(), means, strict=True):
        hits = dict(zip(hits_at, shares, strict=False))
        found[number] = RankMetrics(size, mrr, hits, mean_rank, dict(zip(drawn, shares[len(hits_at) :], strict=True)))
    return found
