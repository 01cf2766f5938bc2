"""What to say of a question itself: it makes no sense, its answer is known, probably nothing is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from rgcn.answers.relation_rules import FINISHED, SENSELESS, UNLIKELY, rules_of
from rgcn.known import KnownTriples

if TYPE_CHECKING:
    from rgcn.graph.titles import Titles

SHOWN = 3  # known answers that are named
PROBABLE = 0.5  # that one of the answers shown is right: above, nobody is told that probably none is missing


def question_note(
    titles: Titles, node: int, relation: int, for_objects: bool, expected: int, probabilities: Iterable[float] = ()
) -> str | None:
    """A sentence for people; None where there is nothing to say.

    expected       as `LinkAnswers` has it
    probabilities  of the answers that are shown with the note; NaN for known ones
    """
    graph = titles.graph
    if expected == SENSELESS:
        end, what = "subject" if for_objects else "object", titles.relation(relation)
        return f"{what} is not a question for {titles.of(node)}: nothing like it is {end} of it"
    index = KnownTriples.of_graph(graph, "train")
    answers = index.objects if for_objects else index.subjects
    begin, end_ = (int(at) for at in answers.ranges(torch.tensor([node * graph.num_relations + relation])))
    if expected == FINISHED:
        known = [titles.of(one) for one in answers.node[begin : min(end_, begin + SHOWN)].tolist()]
        return f"known: {', '.join(known)}; nothing else is expected"
    place = relation if for_objects else relation + graph.num_relations
    shown_wrong = math.prod(1 - share for share in probabilities if not math.isnan(share))
    if shown_wrong < 1 - PROBABLE:
        return None
    if end_ > begin and rules_of(graph).chance_of_more(place, end_ - begin) < UNLIKELY:
        return f"{end_ - begin:,} known; probably nothing is missing here"
    return None
