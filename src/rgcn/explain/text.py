"""An explanation as plain text."""

from __future__ import annotations

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
    against, neighbors = explanation.against[:SHOWN_AGAINST], explanation.neighbors[:SHOWN_NEIGHBORS]
    loudest = max((edge.share for edge in (*explanation.edges, *explanation.against)), default=1.0)
    loudest_neighbor = max((one.share for one in neighbors), default=1.0)
    parts = {
        "What speaks for it:": [_line(edge, loudest) for edge in explanation.edges],
        "What speaks against it:": [_line(edge, loudest) for edge in against],
        "Neighbors that mattered:": [_line(one, loudest_neighbor) for one in neighbors],
        "Paths:": [f"  {path.text}" for path in explanation.paths[:SHOWN_PATHS]],
        "Does it hold?": [f"  {sentence}." for sentence in _sentences(explanation)],
    }
    written = ["\n".join([heading, *lines]) for heading, lines in parts.items() if lines]
    return "\n\n".join(["\n".join([explanation.title, *_answer(explanation)]), *written]) + "\n"


def _answer(explanation: Explanation) -> list[str]:
    lines = [f"{explanation.sure.capitalize()}."]
    asked = explanation.question
    if asked["kind"] == "class" and asked["predicted"] != asked["class"]:
        lines.append(f"The model itself says {asked['predicted']['title']}.")
    found = f"{explanation.considered:,} triples could have a say; by {METHOD_WORDS[explanation.method]}:"
    return [*lines, *remarks(explanation), found if explanation.considered else _nothing_reaches(explanation)]


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


def _line(one: ExplainedEdge | ExplainedNeighbor, loudest: float) -> str:
    """A share, its bar (hollow where it speaks against the answer), and what it belongs to."""
    words = one.node["title"] if isinstance(one, ExplainedNeighbor) else one.text
    note = "   (the triple itself)" if isinstance(one, ExplainedEdge) and one.itself else ""
    length = max(1, round(WIDEST_BAR * min(one.share / loudest, 1.0))) if loudest else 1
    bar = ("░" if one.importance < 0 else "█") * length
    return f"  {100 * one.share:4.1f} %  {bar:<{WIDEST_BAR}}  {words}{note}"


def _sentences(explanation: Explanation) -> list[str]:
    said = explanation.fidelity.words.rstrip(".").split(". ")
    if explanation.own_share is not None and explanation.considered:
        whose = "node itself brings" if len(explanation.asked) == 1 else "two nodes themselves bring"
        said.append(f"The {whose} {percent(explanation.own_share)} of what counts, the triples the rest")
    return said
