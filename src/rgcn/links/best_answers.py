"""The best of the scores of many questions: what is known marked or left out, equal scores in the order of a hash.

Equal scores come in the order of a hash of the names, so that no order of the input's rows decides which comes first.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.links.relation_constraints import OPEN, Permitted, rules_of
from rgcn.nn.scorer import Questions
from rgcn.placement import LOCAL, Placement
from rgcn.sampling.known_triples import KnownTriples

Best = tuple[Tensor, Tensor, Tensor]  # node int64 [q, k], score float [q, k], known bool [q, k]; on the CPU

# A list is kept in order by moving its members; of more than these, sorting everything is cheaper.
LONGEST_LIST = 512
# Fewer comparisons than this are done before a second thread has woken up.
WORTH_A_THREAD = 4_000_000


class Marks(NamedTuple):
    """What is known of the answers to q questions: those of question i are known[known_begin[i] : known_end[i]]."""

    known: Tensor  # int64: nodes
    known_begin: Tensor
    known_end: Tensor
    out: Tensor  # bool [q, n]: which candidates rules leave out, unless they are known

    @classmethod
    def of(
        cls,
        graph: KnowledgeGraph,
        index: KnownTriples,
        questions: Questions,
        permitted: Permitted = Permitted(),  # noqa: B008 - it is immutable
        candidates: Tensor | None = None,
        hidden: Tensor | None = None,
    ) -> Marks:
        """Of questions that all ask for objects, or all for subjects.

        Args:
            graph: Its training triples and ontology say what rules forbid.
            index: What is known.
            questions: On the device where the marks are wanted; `for_objects` is one bool.
            permitted: Which rules hold.
            candidates: int64 [n], ascending: the nodes that the columns are; by default all nodes in order.
            hidden: int64 [q]: a known answer to each question that counts as a new one, or -1.
        """
        given, relation, for_objects = questions
        key, device, rules = given * index.num_relations + relation, given.device, rules_of(graph)
        same, other = (index.objects, index.subjects) if for_objects else (index.subjects, index.objects)
        begin, end = same.ranges(key)
        chosen: Tensor | slice = slice(None) if candidates is None else candidates
        if candidates is None:
            candidates = torch.arange(graph.num_nodes, device=device)
        out = torch.zeros(len(given), len(candidates), dtype=torch.bool, device=device)
        places = rules.answer_place(questions).tolist()
        if permitted.nodes != "any":
            for number, place in enumerate(places):
                out[number] = rules.outside(place, permitted.nodes).to(device)[chosen]
            if permitted.new:
                out[:, torch.isin(candidates, torch.tensor(permitted.new, device=device))] = False
            expected = rules.expectation(questions, index, permitted.new)
            out[(expected != OPEN).to(device)] = True
        if permitted.directions and len(candidates):
            found = (rules.one_way, rules.without_loops)
            one_way, without_loops = (torch.from_numpy(of).to(device)[relation] for of in found)
            turned_begin, turned_end = other.ranges(key)
            row, node = other.expand(turned_begin, torch.where(one_way, turned_end, turned_begin))
            own = torch.nonzero(without_loops).squeeze(1)
            mark(out, candidates, torch.cat([row, own]), torch.cat([node, given[own]]))
        row, node = same.expand(begin, end)
        if hidden is not None:
            # That its node has this answer told what rules expect of it: then only who can stand there counts.
            for number in torch.nonzero(hidden >= 0).flatten().tolist():
                out[number] = rules.outside(places[number], "seen").to(device)[chosen]
            heard = node != hidden[row]
            node, end = node[heard], begin + torch.bincount(row[heard], minlength=len(given))
        stop = torch.cumsum(end - begin, 0)
        return cls(node, stop - (end - begin), stop, out)

    def known_nodes(self) -> tuple[Tensor, Tensor]:
        """(question, node) of every known answer."""
        return torch.repeat_interleave(self.known_end - self.known_begin), self.known

    def take(self, row: int) -> Marks:
        """Those of one question."""
        begin, end = int(self.known_begin[row]), int(self.known_end[row])
        known = self.known[begin:end]
        return Marks(known, known.new_tensor([0]), known.new_tensor([end - begin]), self.out[row : row + 1])


def mark(table: Tensor, candidates: Tensor, row: Tensor, node: Tensor) -> Tensor:
    """Set bool [q, n] true at these nodes of these rows, where they are among the candidates int64 [n], ascending."""
    if len(candidates):
        column = torch.searchsorted(candidates, node).clamp_(max=len(candidates) - 1)
        there = candidates[column] == node
        table[row[there], column[there]] = True
    return table


def best_of(
    scores: Tensor,
    k: int,
    marks: Marks,
    drop: bool,
    names: Vocabulary,
    candidates: Tensor | None = None,
    rounding: float = 0.0,
) -> Best:
    """The k best columns of each row of scores [q, n], best first; -1, -inf and False where there are fewer.

    Args:
        scores: A row for each question.
        k: How many are wanted.
        marks: What is known of the answers to each row's question; what rules forbid is left out.
        drop: Whether known answers are left out; else they are marked.
        names: Of all nodes: equal scores come in the order of the names' hashes.
        candidates: int64 [n], ascending: the nodes that the columns are; by default all nodes in order.
        rounding: Of two scores that differ by less than this share of them, none is higher (`Scorer.rounding`).
    """
    k, size = min(k, scores.shape[1]), scores.shape[1]
    if candidates is None:
        candidates = torch.arange(size, device=scores.device)
    is_fast = scores.device.type == "cpu" and k < LONGEST_LIST and scores.dtype in (torch.float32, torch.float64)
    find = _compiled_best if is_fast and _compiled() is not None else _plainly
    one_more = find(scores, min(k + 1, size), marks, drop, candidates)  # as good as the last one?
    node, score, is_known = best = tuple(part[:, :k] for part in one_more)
    for row in torch.nonzero((~_falls(one_more[1], rounding) & torch.isfinite(one_more[1][:, 1:])).any(1)).flatten():
        every = _plainly(scores[row : row + 1], size, marks.take(int(row)), drop, candidates)
        level = torch.cumsum(_falls(every[1][0], rounding), 0)  # of the second score and all after it
        count = 1 + int((level <= (level[k - 2] if k > 1 else 0)).sum())
        node_of, score_of, known_of = (part[:, :count] for part in every)
        chosen = first_of((node_of, score_of, known_of), k, names, rounding)
        for part, found in zip(best, chosen, strict=True):
            part[row] = found[0]
    return node, score, is_known


def first_of(found: Best, k: int, names: Vocabulary, rounding: float = 0.0) -> Best:
    """The k best of nodes and scores [q, n] in any order, best first, equal ones by their names' hashes."""
    node, score, _ = found
    by_score = torch.argsort(score, dim=1, descending=True, stable=True)
    level = torch.cumsum(_falls(score.gather(1, by_score), rounding), 1)
    keys = names.keys(node.gather(1, by_score).clamp(min=0).flatten().numpy()).reshape(node.shape)
    order = np.lexsort((keys, np.pad(level.numpy(), ((0, 0), (1, 0)))))
    best = by_score.gather(1, torch.from_numpy(order[:, :k]))
    return tuple(part.gather(1, best) for part in found)  # type: ignore[return-value]


def _falls(score: Tensor, rounding: float) -> Tensor:
    """bool [..., n - 1]: whether each score but the first is lower than the one before it."""
    before, after = score[..., :-1], score[..., 1:]
    return before - after > rounding * before.abs().clamp(min=1.0)


def merged(best: Best, k: int, placement: Placement, names: Vocabulary) -> Best:
    """The k best of what each process found among its local nodes."""
    missing = k - best[0].shape[1]
    whole = [F.pad(part, (0, missing), value=fill) for part, fill in zip(best, (-1, -torch.inf, False), strict=True)]
    every = [placement.stack_over_nodes(part).cpu() for part in whole]
    node, score, is_known = (part.transpose(0, 1).flatten(1) for part in every)
    return first_of((node, score, is_known), k, names)


def level_of(scores: Tensor, marks: Marks, candidates: Tensor | None = None, placement: Placement = LOCAL) -> Tensor:
    """[q]: log Σ exp(score) over the answers to each question that are neither known nor forbidden; 0 without any.

    Models learn to tell the answers to one question apart: only less this are scores of several questions comparable.

    Args:
        scores: [q, n].
        marks: What is known of the answers.
        candidates: int64 [n], ascending: the nodes that the columns are; by default all nodes in order.
        placement: Of the scorer: where nodes are divided among processes, each has other candidates.
    """
    if candidates is None:
        candidates = torch.arange(scores.shape[1], device=scores.device)
    nothing = mark(marks.out.clone(), candidates, *marks.known_nodes())
    level = torch.logsumexp(scores.masked_fill(nothing, -torch.inf), dim=1)
    if placement.partition is not None:
        level = torch.logsumexp(placement.stack_over_nodes(level), dim=0)
    return torch.where(torch.isfinite(level), level, 0.0)


def _compiled_best(scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor) -> Best:
    """By numba, on the CPU; of equal scores the first column comes first."""
    compiled, size = _compiled(), len(scores)
    assert compiled is not None
    node, score, is_known = (torch.empty(size, k, dtype=kind) for kind in (torch.int64, scores.dtype, torch.bool))
    arrays: list[Any] = [tensor.contiguous().numpy() for tensor in (scores, candidates, *marks)]
    arrays += [drop, *[tensor.numpy() for tensor in (node, score, is_known)]]
    threads = torch.get_num_threads()
    if threads == 1 or scores.numel() < WORTH_A_THREAD:
        strange = compiled.best(0, size, *arrays)
    else:
        cuts = [size * i // threads for i in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            strange = sum(pool.map(lambda cut: compiled.best(*cut, *arrays), pairwise(cuts)))
    if strange:
        _refuse_strange()
    return node, score, is_known


def _plainly(scores: Tensor, k: int, marks: Marks, drop: bool, candidates: Tensor) -> Best:
    """In PyTorch, on any device; of equal scores the first column comes first."""
    if bool(scores.isnan().any()):
        _refuse_strange()
    known = mark(torch.zeros_like(marks.out), candidates, *marks.known_nodes())
    out = (scores == -torch.inf) | (known | marks.out if drop else marks.out & ~known)
    ordered = torch.sort(scores.masked_fill(out, -torch.inf), dim=1, descending=True, stable=True)
    column, score = ordered.indices[:, :k], ordered.values[:, :k]
    nothing = out.gather(1, column)
    node, is_known = candidates[column].masked_fill(nothing, -1), known.gather(1, column) & ~nothing
    return node.cpu(), score.cpu(), is_known.cpu()


def _refuse_strange() -> NoReturn:
    raise DataError("the scores contain NaN: nothing can be ranked by them; the training has probably diverged")


@cache
def _compiled() -> ModuleType | None:
    """The numba loop; None where numba does not run. Same answers, another speed."""
    try:
        from rgcn.links import top_k_loops
    except ImportError:
        return None
    return top_k_loops
