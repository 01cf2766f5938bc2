"""What to say of a question itself: it makes no sense, its answer is known, probably nothing is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from rgcn.answers.relation_rules import FINISHED, SENSELESS, UNLIKELY, rules_of
from rgcn.known import KnownTriples
from rgcn.scoring import Questions

if TYPE_CHECKING:
    from rgcn.graph.titles import Titles

SHOWN = 3  # known answers that are named


def question_note(titles: Titles, node: int, relation: int, for_objects: bool, expected: int) -> str | None:
    """A sentence for people; None where there is nothing to say. `expected`: as `LinkAnswers` has it."""
    graph, what, name = titles.graph, titles.relation(relation), titles.of(node)
    if expected == SENSELESS:
        end = "subject" if for_objects else "object"
        return f"{what} is not a question for {name}: nothing like it is {end} of it (--any-node asks all the same)"
    index = KnownTriples.of_graph(graph, "train")
    answers = index.objects if for_objects else index.subjects
    begin, end_ = (int(at) for at in answers.ranges(torch.tensor([node * graph.num_relations + relation])))
    known = [titles.of(one) for one in answers.node[begin : min(end_, begin + SHOWN)].tolist()]
    if expected == FINISHED:
        return f"known: {', '.join(known)}; nothing else is expected"
    question = Questions(torch.tensor([node]), torch.tensor([relation]), for_objects)
    chance = float(rules_of(graph).further(question, index)[0])
    if known and chance < UNLIKELY:
        return f"{end_ - begin:,} known; probably nothing is missing here"
    return None
