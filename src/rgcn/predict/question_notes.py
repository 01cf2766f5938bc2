"""What to say of a question itself: it makes no sense, its answer is known, probably nothing is missing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch

from rgcn.graph.titles import Titles
from rgcn.links.relation_constraints import FINISHED, SENSELESS, UNLIKELY, rules_of
from rgcn.links.top_k import LinkAnswers
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import KnownTriples

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


def notes_of(
    titles: Titles, questions: Questions, answers: LinkAnswers, brief: bool = False, shown: Sequence[int] | None = None
) -> Iterator[str | None]:
    """What is to be said of each question and its answers.

    brief  only where there is no answer, or too many known ones
    shown  how many answers to each question are shown; by default all
    """
    asked = zip(questions.node.tolist(), questions.relation.tolist(), questions.asks_objects().tolist(), strict=True)
    shares = [[]] * len(answers) if answers.probability is None else answers.probability.tolist()
    numbers = shown or [answers.node.shape[1]] * len(answers)
    each = zip(asked, answers.expected.tolist(), answers.not_shown.tolist(), shares, numbers, strict=True)
    for question, expected, not_shown, probabilities, number in each:
        note = question_note(titles, *question, expected, probabilities[:number]) if expected or not brief else None
        left_out = f"{not_shown:,} more known answers are not shown" if not_shown else None
        yield "; ".join(filter(None, (note, left_out))) or None


def question_words(titles: Titles, questions: Questions) -> Iterator[str]:
    """'Peru —borders→ ?', or '? —borders→ Peru'."""
    each = zip(questions.node.tolist(), questions.relation.tolist(), questions.asks_objects().tolist(), strict=True)
    for node, relation, for_objects in each:
        ends = (titles.of(node), "?") if for_objects else ("?", titles.of(node))
        yield f" —{titles.relation(relation)}→ ".join(ends)
