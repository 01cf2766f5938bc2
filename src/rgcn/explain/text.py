"""An explanation as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rgcn.explain.explanation import ExplainedEdge, ExplainedNeighbor, Explanation
from rgcn.explain.phrases import percent

WIDEST_BAR = 12
SHOWN_AGAINST, SHOWN_NEIGHBORS, SHOWN_PATHS = 3, 5, 5
METHOD_WORDS = {
    "integrated-gradients": "integrated gradients over the graph's edges",
    "edge-mask": "a learned mask over the graph's triples",
}


def text(explanation: Explanation) -> str:
    """Question, answer, triples with bars, neighbors, paths, and how well it holds."""
    most = max((edge.share for edge in (*explanation.edges, *explanation.against)), default=1.0)
    parts = [
        [explanation.title, *_answer(explanation)],
        _list("What speaks for it", _edges(explanation.edges, most)),
        _list("What speaks against it", _edges(explanation.against[:SHOWN_AGAINST], most)),
        _list("Neighbors that mattered", _neighbors(explanation.neighbors[:SHOWN_NEIGHBORS])),
        _list("Paths", (f"  {path.text}" for path in explanation.paths[:SHOWN_PATHS])),
        _list("Does it hold?", [f"  {sentence}." for sentence in _sentences(explanation)]),
    ]
    return "\n\n".join("\n".join(part) for part in parts if part) + "\n"


def _answer(explanation: Explanation) -> list[str]:
    lines = [f"{explanation.sure.capitalize()}."]
    asked = explanation.question
    if asked["kind"] == "class" and asked["predicted"] != asked["class"]:
        lines.append(f"The model itself says {asked['predicted']['title']}.")
    lines += remarks(explanation)
    if not explanation.considered:
        return [*lines, _nothing_reaches(explanation)]
    found = f"{explanation.considered:,} triples could have a say; by {METHOD_WORDS[explanation.method]}:"
    return [*lines, found]


def remarks(explanation: Explanation) -> list[str]:
    """Sentences on what the probability rests on, where that is not the score and its calibration alone."""
    said = []
    asked = explanation.question
    if explanation.ruled_out:
        relation = asked["relation"]["title"]
        same = asked["subject"] == asked["object"]
        turned = f"the graph has it the other way round, and {relation} goes one way"
        why = f"{relation} links no node to itself" if same else turned
        said.append(f"Ruled out by example: {why}, but for rare exceptions.")
        said.append(
            "Such triples share one probability, whatever their score."
            if explanation.fidelity.by_score
            else "Predictions leave it out."
        )
    if explanation.added and explanation.probability is not None:
        names = " and ".join(node["title"] for node in explanation.added)
        verb = "was" if len(explanation.added) == 1 else "were"
        said.append(f"{names} {verb} added after training: nothing was calibrated on nodes added later.")
    return said


def _nothing_reaches(explanation: Explanation) -> str:
    if explanation.own_share is None:
        return "No triple reaches it."
    one = len(explanation.asked) == 1
    whose = "the node itself" if one else "the nodes themselves"
    if explanation.own_share:
        return f"No triple reaches it: the answer comes from {whose}."
    alike = "any such node has" if one else "any such nodes have"
    return f"No triple reaches it, and the network does not hear {whose}: {alike} this answer."


def _edges(edges: Sequence[ExplainedEdge], most: float) -> Iterable[str]:
    for edge in edges:
        note = "   (the triple itself)" if edge.itself else ""
        yield _line(edge.share, most, edge.importance < 0, edge.text + note)


def _neighbors(neighbors: Sequence[ExplainedNeighbor]) -> Iterable[str]:
    most = max((neighbor.share for neighbor in neighbors), default=1.0)
    for neighbor in neighbors:
        yield _line(neighbor.share, most, neighbor.importance < 0, neighbor.node["title"])


def _line(share: float, most: float, against: bool, words: str) -> str:
    """A share, its bar (hollow where it speaks against the answer), and what it belongs to."""
    length = max(1, round(WIDEST_BAR * min(share / most, 1.0))) if most else 1
    bar = ("░" if against else "█") * length
    return f"  {100 * share:4.1f} %  {bar:<{WIDEST_BAR}}  {words}"


def _sentences(explanation: Explanation) -> list[str]:
    said = explanation.fidelity.words.rstrip(".").split(". ")
    if explanation.own_share is not None and explanation.considered:
        whose = "node itself brings" if len(explanation.asked) == 1 else "two nodes themselves bring"
        said.append(f"The {whose} {percent(explanation.own_share)} of what counts, the triples the rest")
    return said


def _list(heading: str, lines: Iterable[str]) -> list[str]:
    """Nothing where there are no lines."""
    written = list(lines)
    return [heading if heading.endswith("?") else f"{heading}:", *written] if written else []
