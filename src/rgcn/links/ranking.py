"""Rank true triples against all triples that differ from them in one node, and summarize the ranks as metrics.

A triple (s, r, o) asks two questions, (s, r, ?) and (?, r, o). Its rank under each question is the position of its own
score among the scores of all N nodes. Ranks are counted, nothing is sorted:

    optimistic   1 + #(scores greater)
    pessimistic  1 + #(scores greater) + #(other scores equal)
    realistic    their mean: the expected position if ties were broken at random

"Filtered" ranks ignore other answers that are known to be true. Known answers are not masked in the scores. They are
counted separately and subtracted, so one pass gives raw and filtered ranks for every treatment of ties. The metrics are
mean reciprocal rank, hits at k and mean rank, and hits at 10 among a few randomly drawn candidates, which follow from
the same counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from rgcn.errors import ConfigError, DataError
from rgcn.kernels import reference
from rgcn.kernels.dispatch import kernels_for
from rgcn.kernels.sparse import expanded_ranges
from rgcn.nn.scorer import Questions, Scorer
from rgcn.placement import NodePartition
from rgcn.sampling.known_triples import KnownAnswers, KnownTriples, lower_bound

Ties = Literal["realistic", "optimistic", "pessimistic"]
Direction = Literal["object", "subject"]
TIE_SHARES: dict[str, float] = {"realistic": 0.5, "optimistic": 0.0, "pessimistic": 1.0}  # ties that count as better
HITS_AT = (1, 3, 10)
SAMPLED_HITS_AT = 10  # Teru et al. (2020) report hits at 10 among 50 drawn candidates

# On the CPU, blocks of scores are fastest below 32 MiB, where the allocator reuses memory that is still in the cache.
CPU_BLOCK_BYTES, GPU_BLOCK_BYTES, MAX_BLOCK_BYTES = 24 << 20, 256 << 20, 1 << 30
# If a block has room for fewer than MIN_ROWS rows of all nodes, it takes some of the nodes and up to MAX_ROWS rows.
MIN_ROWS, MAX_ROWS = 64, 512


@dataclass(frozen=True, eq=False)
class RankCounts:
    """The counts from which the ranks in one direction follow.

    Args:
        num_nodes: Number of nodes that are ranked, including the true one.
        counts: int64 [n, 2 or 5]. Nodes that score above the true one; nodes that score the same, including itself.
            With a filter also how many of the former and of the latter are other known answers, and the number of
            other known answers.
    """

    num_nodes: int
    counts: Tensor

    def rank(self, ties: Ties = "realistic", filtered: bool = True) -> Tensor:
        """Return the ranks, float64 [n] on the CPU; 1 is best.

        Args:
            ties: How equal scores are ranked.
            filtered: Ignore other known answers.

        Raises:
            ConfigError: If `ties` is unknown, or if `filtered` and the triples were ranked without a filter.
        """
        greater, equal, _ = self._other_counts(filtered)
        return 1.0 + greater + _tie_share(ties) * equal

    def sampled_hits(
        self, num_candidates: int, ties: Ties = "realistic", filtered: bool = True, k: int = SAMPLED_HITS_AT
    ) -> Tensor:
        """Return the probability that the true answer is among the best k of itself and randomly drawn candidates.

        The candidates are drawn with replacement from the nodes that are not known answers. The result is the exact
        mean over all draws. With A candidates above and E equal to the true answer its rank is 1 + A + E / 2 (realistic
        ties). With a and e the shares of such nodes among all that may be drawn, and n candidates,

            P(rank ≤ k) = Σ over A + E / 2 ≤ k - 1 of  n! / (A! E! (n - A - E)!) · a^A e^E (1 - a - e)^(n - A - E)

        Args:
            num_candidates: How many candidates are drawn, n.
            ties: How equal scores are ranked.
            filtered: Draw no other known answers.
            k: The worst rank that is a hit.

        Returns:
            float64 [n] on the CPU.

        Raises:
            ConfigError: If `num_candidates` is below 1.

        >>> counts = RankCounts(10, torch.tensor([[3, 1]]))  # of nine other nodes three score higher, none the same
        >>> counts.sampled_hits(2, filtered=False, k=1)  # (6/9)²
        tensor([0.4444], dtype=torch.float64)
        """
        if num_candidates < 1:
            raise ConfigError(f"ranks among drawn candidates need at least one candidate, not {num_candidates}")
        tie_share, (greater, equal, total) = _tie_share(ties), self._other_counts(filtered)
        a, e = (part / total.clamp(min=1) for part in (greater, equal))
        rest = ((total - greater - equal) / total.clamp(min=1)).masked_fill(total == 0, 1.0)
        probability = torch.zeros_like(a)
        for above in range(min(k - 1, num_candidates) + 1):
            for tied in range(num_candidates - above + 1):
                if above + tie_share * tied > k - 1:
                    break
                ways = float(math.comb(num_candidates, above) * math.comb(num_candidates - above, tied))
                probability += ways * a**above * e**tied * rest ** (num_candidates - above - tied)
        return probability.clamp(max=1.0)

    def _other_counts(self, filtered: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Numbers of other nodes, float64 [n] on the CPU: those that score higher, those that score the same, all."""
        greater, equal, *known = self.counts.double().cpu().unbind(1)
        equal, total = equal - 1, torch.full_like(equal, self.num_nodes - 1)
        if not filtered:
            return greater, equal, total
        if not known:
            raise ConfigError("the triples were ranked without a filter: there are no filtered ranks")
        return greater - known[0], equal - known[1], total - known[2]


def _tie_share(ties: Ties) -> float:
    if ties not in TIE_SHARES:
        raise ConfigError(f"unknown treatment of ties {ties!r}; choose one of {', '.join(TIE_SHARES)}")
    return TIE_SHARES[ties]


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of triples int64 [n, 3] in both directions: `object` answers (s, r, ?), `subject` answers (?, r, o)."""

    triples: Tensor
    object: RankCounts
    subject: RankCounts

    def __len__(self) -> int:
        """Return the number of triples."""
        return len(self.triples)

    def rank(self, direction: Direction, ties: Ties = "realistic", filtered: bool = True) -> Tensor:
        """Return the ranks in one direction, float64 [n] in the order of the triples; arguments as `RankCounts.rank`.

        Raises:
            ConfigError: If the direction is neither "object" nor "subject".
        """
        if direction not in get_args(Direction):
            raise ConfigError(f"unknown direction {direction!r}; choose one of {', '.join(get_args(Direction))}")
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
    """Rank triples against all nodes in both directions, including nodes that do not occur in training.

    Args:
        scorer: The model to measure.
        triples: int64 [n, 3], on the device of the scorer.
        filter: All known triples. A true triple that is missing here counts against the model. None: raw ranks only.
        memory_budget: Bytes that scores and comparisons may take at once; at least one row is scored. Questions are
            scored in blocks, equal questions once, and a block may cover a part of the nodes.
        on_progress: Called after each block with the number of answered questions, of 2 n.

    Returns:
        The ranks of all triples, also if each process computes a share of them.

    Raises:
        DataError: If triples have a wrong shape or ids out of range, or a score is NaN.

    >>> class ByAnswer(Scorer):  # one relation, scores that depend on the answer only
    ...     num_nodes, device = 3, torch.device("cpu")
    ...
    ...     def scores(self, questions, candidates=None, out=None):
    ...         return torch.tensor([[0.1, 0.9, 0.5]]).expand(questions.size, 3)
    >>> train, test = torch.tensor([[0, 0, 1]]), torch.tensor([[0, 0, 2]])
    >>> known = KnownTriples.of(train, test, num_nodes=3, num_relations=1)
    >>> ranks = rank_triples(ByAnswer(), test, known)
    >>> ranks.rank("object", filtered=False), ranks.rank("object")  # node 1 is a known answer and is ignored
    (tensor([2.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
    """
    _check(triples, scorer.num_nodes, filter)
    share = scorer.placement.answer_share(len(triples))
    subject, relation, object_ = triples[share].unbind(1)
    nothing = partial(KnownTriples.of, triples[:0], num_nodes=scorer.num_nodes)
    known = nothing(num_relations=int(relation.max()) + 1) if filter is None else filter.to(triples.device)
    is_known, ranker = known.contains(triples[share]).long(), _Ranker(scorer, memory_budget, on_progress)
    counts = [
        ranker.count(Questions(subject, relation), object_, known.objects, is_known),
        ranker.count(Questions(object_, relation, False), subject, known.subjects, is_known),
    ]
    if share != slice(0, len(triples)):
        counts = list(map(scorer.placement.gather_answers, counts))
    columns = slice(2 if filter is None else 5)
    return Ranks(triples, *(RankCounts(scorer.num_nodes, side[:, columns]) for side in counts))


def _check(triples: Tensor, num_nodes: int, filter: KnownTriples | None) -> None:
    if triples.ndim != 2 or triples.shape[1] != 3 or triples.dtype != torch.int64:
        raise DataError(f"triples must be int64 [n, 3], not {triples.dtype} {list(triples.shape)}")
    if len(triples) == 0:
        raise DataError("there are no triples to rank")
    if filter is not None and filter.num_nodes != num_nodes:
        raise DataError(f"the filter has {filter.num_nodes} nodes, the model {num_nodes}; use one graph for both")
    low, high = triples.min(0).values.tolist(), triples.max(0).values.tolist()
    if min(low) < 0 or max(high[0], high[2]) >= num_nodes:
        raise DataError(f"a triple to rank refers to a node outside 0..{num_nodes - 1}")
    if filter is not None and high[1] >= filter.num_relations:
        raise DataError(f"a triple to rank refers to a relation outside 0..{filter.num_relations - 1}")


class RankedQuestions(NamedTuple):
    """Questions with true answers to rank. Counts over parts of the nodes add up to the counts over all nodes.

    Args:
        distinct: The questions, each once.
        row: int64 [n]: the question of each true answer, as its position in `distinct`.
        target: int64 [n]: the true answers; -1 for an answer that is not a local node.
        begin: int64 [n]: the known answers to question i are known[begin[i] : end[i]], ascending.
        end: int64 [n].
        known: Node ids.
    """

    distinct: Questions
    row: Tensor
    target: Tensor
    begin: Tensor
    end: Tensor
    known: Tensor

    def restrict(self, partition: NodePartition | None) -> RankedQuestions:
        """Return the same questions over the local nodes, which are replaced by their row numbers."""
        if partition is None:
            return self
        count, index = self.distinct.size, torch.arange(len(self.row), device=self.row.device)
        representative = self.row.new_zeros(count).index_put_((self.row,), index)  # one true answer per question
        question, position = expanded_ranges(self.begin[representative], self.end[representative])
        node = self.known[position].long()
        local = torch.nonzero(partition.is_local(node)).squeeze(1)
        question, known = question[local], partition.row(node[local])
        known = known[torch.argsort(question * len(partition) + known)]
        counts = torch.bincount(question, minlength=count)
        end = torch.cumsum(counts, 0)
        target = torch.where(partition.is_local(self.target), partition.row(self.target), -1)
        return self._replace(target=target, begin=(end - counts)[self.row], end=end[self.row], known=known)


def true_scores(scorer: Scorer, questions: RankedQuestions, nodes: range, width: int) -> Tensor:
    """Return the scores of the true answers among some nodes, [n]; 0 for answers outside this range.

    The true answers are scored together with other nodes, `width` in all, as in `count_ranks_among`. A matrix product
    of another size may round differently, and equal scores would no longer compare equal.

    Args:
        scorer: Computes the scores.
        questions: Questions and true answers.
        nodes: The range of nodes.
        width: Number of candidates in one product.
    """
    local = torch.nonzero((questions.target >= nodes.start) & (questions.target < nodes.stop)).squeeze(1)
    target = questions.target[local]
    true = torch.unique(target)
    others = torch.arange(nodes.start, min(nodes.start + width + len(true), nodes.stop), device=true.device)
    others = others[~torch.isin(others, true)][: max(0, width - len(true))]
    candidates = torch.sort(torch.cat([true, others])).values
    scores = _checked_scores(scorer, questions.distinct, candidates)
    result = scores.new_zeros(len(questions.target))
    result[local] = scores[questions.row[local], torch.searchsorted(candidates, target)]
    return result


def count_ranks_among(
    scorer: Scorer, questions: RankedQuestions, true_score: Tensor, nodes: range, width: int
) -> Tensor:
    """Compare the true answers with a range of nodes, `width` nodes at a time.

    Args:
        scorer: Computes the scores.
        questions: Questions and true answers.
        true_score: [n]: the scores of the true answers.
        nodes: The range of nodes.
        width: Number of candidates in one product.

    Returns:
        int64 [n, 5]: nodes with a greater score, nodes with an equal score (including the true answer), other known
        answers among the former and among the latter, scores that are NaN.
    """
    counts = torch.zeros(len(true_score), 5, dtype=torch.int64, device=true_score.device)
    begin = lower_bound(questions.known, questions.begin, questions.end, nodes.start)
    for first in range(nodes.start, nodes.stop, width):
        last = min(first + width, nodes.stop)
        start = max(nodes.start, last - width)  # the last block has the same width as all others
        candidates = torch.arange(start, last, device=true_score.device)
        scores = _checked_scores(scorer, questions.distinct, candidates)[:, first - start :]
        end = lower_bound(questions.known, begin, questions.end, last)
        inside = questions._replace(begin=begin, end=end)
        counts += kernels_for(scores).count_ranks(scores.contiguous(), true_score, first, *inside[1:])
        begin = end
    return counts


def _count_ranks_in_blocks(scorer: Scorer, questions: RankedQuestions, width: int) -> Tensor:
    """`count_ranks_among` all nodes: each process counts over its local nodes, and the counts are summed."""
    placement, local = scorer.placement, scorer.local(questions.distinct)
    restrict, nodes = questions.restrict(placement.partition), range(local.num_nodes)
    true_score = true_scores(local, restrict, nodes, width)
    placement.sum_over_nodes(true_score)
    counts = count_ranks_among(local, restrict, true_score, nodes, width)
    placement.sum_over_nodes(counts)
    return counts


def _checked_scores(scorer: Scorer, questions: Questions, candidates: Tensor | None = None) -> Tensor:
    scores = scorer.scores(questions, candidates)
    expected = [questions.size, scorer.num_nodes if candidates is None else len(candidates)]
    if list(scores.shape) != expected:
        raise DataError(f"{type(scorer).__name__}.scores returned {list(scores.shape)} instead of {expected}")
    return scores


@dataclass
class _Ranker:
    """Ranks true answers in one direction per call."""

    scorer: Scorer
    memory_budget: int | None
    on_progress: Callable[[int], None] | None
    num_answered: int = 0

    def count(self, questions: Questions, target: Tensor, answers: KnownAnswers, is_known: Tensor) -> Tensor:
        """Return `RankCounts.counts` of true answers [n] to n questions; `is_known` is 1 where they are known."""
        num_relations = answers.num_relations
        key = questions.node * num_relations + questions.relation
        order = torch.argsort(key)  # sorting makes equal questions adjacent
        key, target = key[order], target[order]
        (begin, end), parts = answers.ranges(key), []
        width, budget = self._block_size(key)
        for part in self._blocks(begin, end, width, budget):
            keys, row = torch.unique_consecutive(key[part], return_inverse=True)
            distinct = Questions(keys // num_relations, keys % num_relations, questions.for_objects)
            ranked = RankedQuestions(distinct, row, target[part], begin[part], end[part], answers.node)
            if width == self.scorer.num_nodes and self.scorer.placement.partition is None:
                scores = _checked_scores(self.scorer, distinct)
                true_score = scores[row, ranked.target]
                parts.append(kernels_for(scores).count_ranks(scores.contiguous(), true_score, 0, *ranked[1:]))
                del scores  # before the next block is scored, so that only one block is in memory
            else:
                parts.append(_count_ranks_in_blocks(self.scorer, ranked, width))
            self.num_answered += len(row)
            if self.on_progress is not None:
                self.on_progress(self.num_answered)
        counts = torch.empty(len(order), 6, dtype=torch.int64, device=key.device)
        counts[order] = torch.cat([torch.cat(parts), (end - begin)[:, None]], dim=1)
        if num_nan := int((counts[:, 4] > 0).sum()):
            raise DataError(
                f"the scores of {num_nan} of {len(counts)} queries contain NaN and cannot be ranked: the training has "
                "probably diverged, train again with a lower learning rate"
            )
        counts[:, 4] = counts[:, 5] - is_known
        return counts[:, :5]

    def _block_size(self, key: Tensor) -> tuple[int, int]:
        """(number of nodes scored at once, bytes that this may take)."""
        num_nodes, budget = self.scorer.num_nodes, self.memory_budget
        rows = min(MIN_ROWS, len(key))
        if budget is None:
            budget = CPU_BLOCK_BYTES if key.device.type == "cpu" else GPU_BLOCK_BYTES
            if not self.scorer.has_cheap_candidates:
                budget = max(budget, min(rows * num_nodes * 4, MAX_BLOCK_BYTES))
        entries = max(budget // _bytes_per_score(key), 1)
        if not self.scorer.has_cheap_candidates or rows * num_nodes <= entries:
            return num_nodes, budget
        return min(num_nodes, entries // min(MAX_ROWS, len(key), math.isqrt(entries))), budget

    def _blocks(self, begin: Tensor, end: Tensor, width: int, budget: int) -> Iterator[slice]:
        """Slices of the triples whose scores against `width` nodes fit the budget; at least one triple each."""
        bytes_per_score = _bytes_per_score(begin)
        cost = torch.full_like(begin, bytes_per_score * width)
        if bytes_per_score > 4:
            cost += 40 * (end - begin)  # the reference kernel also writes out the known answers
        total = torch.cumsum(cost, 0).cpu()
        first, before = 0, 0
        while first < len(total):
            last = max(int(torch.searchsorted(total, before + budget, right=True)), first + 1)
            yield slice(first, last)
            first, before = last, int(total[last - 1])


def _bytes_per_score(like: Tensor) -> int:
    """Bytes per score: the reference kernel makes a copy and two comparisons, compiled kernels only read the scores."""
    return 10 if kernels_for(like.new_empty(0, dtype=torch.float32)) is reference else 4


@dataclass(frozen=True)
class RankMetrics:
    """Means over `count` ranked questions.

    Args:
        count: Number of ranks.
        mrr: Mean of 1 / rank.
        hits: {k: share of ranks ≤ k}.
        mean_rank: Mean rank.
        sampled_hits: {n: mean of `RankCounts.sampled_hits` with n drawn candidates}.
        errors: {metric: its standard error}, if the triples are a sample.
    """

    count: int
    mrr: float
    hits: dict[int, float]
    mean_rank: float
    sampled_hits: dict[int, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict, repr=False)

    def as_dict(self) -> dict[str, float]:
        """Return a flat dictionary for JSON: mrr, hits@1, ..., hits@10_of_50, mean_rank, count, mrr_error, ..."""
        hits = {f"hits@{k}": value for k, value in self.hits.items()}
        hits |= {f"hits@{SAMPLED_HITS_AT}_of_{count}": value for count, value in self.sampled_hits.items()}
        errors = {f"{name}_error": value for name, value in self.errors.items()}
        return {"mrr": self.mrr, **hits, "mean_rank": self.mean_rank, "count": self.count, **errors}


@dataclass(frozen=True)
class RankingReport:
    """Metrics over both directions, over each direction, and over each relation that occurs (both directions)."""

    both: RankMetrics
    object: RankMetrics
    subject: RankMetrics
    by_relation: dict[int, RankMetrics]

    def as_dict(self, relations: Sequence[str]) -> dict[str, Any]:
        """Return plain values for JSON: the metrics of both directions, `by_direction`, and `by_relation` by name."""
        return {
            **self.both.as_dict(),
            "by_direction": {"object": self.object.as_dict(), "subject": self.subject.as_dict()},
            "by_relation": {relations[r]: metrics.as_dict() for r, metrics in self.by_relation.items()},
        }


def rank_metrics(ranks: Tensor, hits_at: Sequence[int] = HITS_AT) -> RankMetrics:
    """Return the metrics of ranks [n], n ≥ 1. A k above the number of nodes is allowed: every rank is a hit.

    Raises:
        DataError: If there are no ranks.

    >>> rank_metrics(torch.tensor([1.0, 2.0, 4.0, 4.0]), hits_at=(1, 3))
    RankMetrics(count=4, mrr=0.5, hits={1: 0.25, 3: 0.5}, mean_rank=2.75, sampled_hits={})
    """
    if ranks.numel() == 0:
        raise DataError("there are no ranks to average")
    return _metrics_by_group(ranks, torch.zeros_like(ranks, dtype=torch.int64), hits_at, {})[0]


def summarize(
    ranks: Ranks,
    *,
    ties: Ties = "realistic",
    filtered: bool = True,
    hits_at: Sequence[int] = HITS_AT,
    num_candidates: int | None = None,
    population: int | None = None,
) -> RankingReport:
    """Return the metrics of ranks.

    Args:
        ranks: From `rank_triples`.
        ties: How equal scores are ranked.
        filtered: Ignore other known answers.
        hits_at: The k of hits at k.
        num_candidates: Also report hits at 10 among this many drawn candidates.
        population: Number of triples from which the ranked ones were sampled. The metrics of both directions then have
            standard errors, which account for the two ranks of a triple and for sampling without replacement.
    """
    sides = ranks.object, ranks.subject
    all_ranks = torch.cat([side.rank(ties, filtered) for side in sides])
    sampled = {}
    if num_candidates is not None:
        sampled[num_candidates] = torch.cat([side.sampled_hits(num_candidates, ties, filtered) for side in sides])
    relation = ranks.triples[:, 1].cpu()

    def metrics(group: Tensor) -> dict[int, RankMetrics]:
        return _metrics_by_group(all_ranks, group, hits_at, sampled)

    by_side = metrics(torch.arange(2).repeat_interleave(len(ranks)))
    both = metrics(torch.zeros(len(all_ranks), dtype=torch.int64))[0]
    if population is not None and 1 < len(ranks) < population:
        hits = {f"hits@{k}": (all_ranks <= k).double() for k in hits_at}
        values = {"mrr": 1.0 / all_ranks, **hits, "mean_rank": all_ranks}
        scale = math.sqrt((1.0 - len(ranks) / population) / len(ranks))
        errors = {name: scale * float(value.view(2, -1).mean(0).std()) for name, value in values.items()}
        both = replace(both, errors=errors)
    return RankingReport(both, by_side[0], by_side[1], metrics(torch.cat([relation, relation])))


def _metrics_by_group(
    ranks: Tensor, group: Tensor, hits_at: Sequence[int], sampled: dict[int, Tensor]
) -> dict[int, RankMetrics]:
    """Return {group: metrics of its ranks}."""
    if any(k < 1 for k in hits_at):
        raise ConfigError(f"hits at k need k of at least 1, not {list(hits_at)}")
    ranks = ranks.double()
    groups, index, sizes = torch.unique(group, return_inverse=True, return_counts=True)
    columns = [1.0 / ranks, ranks, *[(ranks <= k).double() for k in hits_at], *sampled.values()]
    sums = torch.zeros(len(groups), len(columns), dtype=torch.float64).index_add_(0, index, torch.stack(columns, dim=1))
    means = (sums / sizes[:, None]).tolist()
    result = {}
    for number, size, (mrr, mean_rank, *shares) in zip(groups.tolist(), sizes.tolist(), means, strict=True):
        hits, sampled_hits = dict(zip(hits_at, shares, strict=False)), zip(sampled, shares[len(hits_at) :], strict=True)
        result[number] = RankMetrics(size, mrr, hits, mean_rank, dict(sampled_hits))
    return result
