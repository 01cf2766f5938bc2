"""Test the importance of paths, and that no message is counted twice."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from explained_models import class_question, classifier, link_question, predictor, readers

from rgcn.explain.attribution import Attribution, paths_between, paths_from
from rgcn.graph import KnowledgeGraph

ALL = 10**6


def drawn(question, seed=0):
    """Draw positive random importances; self-loops have none."""
    rng, subgraph = np.random.default_rng(seed), question.subgraph
    edges = tuple(
        np.where(place.numpy() < len(subgraph), rng.uniform(1, 2, len(place)), 0.0) for place in subgraph.edge_triples
    )
    return Attribution(subgraph, edges, None)


def doubled():
    """m has two triples with v, so a message from u is passed on by two edges."""
    rows = [("v", "knows", "m"), ("m", "likes", "v"), ("u", "knows", "m"), ("m", "likes", "w"), ("v", "likes", "w")]
    return KnowledgeGraph.from_triples(rows, labels={"v": "x", "u": "y"})


@pytest.mark.parametrize("graph", [doubled(), readers()])
def test_walks_by_one_message_add_up_to_its_importance(graph):
    queried = 0
    found = drawn(class_question(classifier(graph=graph, epochs=1), queried))
    subgraph = found.subgraph
    sent = defaultdict(float)
    (source, target), place = subgraph.edge_ends[-2], subgraph.edge_triples[-2].numpy()
    for edge, triple in enumerate(place.tolist()):
        # A message from the queried node would go out and back; one that reaches it is passed on by its self-loop only.
        if triple < len(subgraph) and source[edge] != queried and target[edge] != queried:
            sent[triple] += found.edges[-2][edge]
    walked = defaultdict(float)
    for path in paths_from(found, ALL):
        assert path.start == queried
        walked[path.triples[-1]] += path.importance
    assert walked.keys() == sent.keys()
    for triple, importance in sent.items():
        assert walked[triple] == pytest.approx(importance)


def test_a_message_is_divided_by_the_importance_of_its_outgoing_edges():
    graph = doubled()
    found = drawn(class_question(classifier(graph=graph, epochs=1), graph.nodes["v"]))
    subgraph = found.subgraph
    triple = {tuple(names): place for place, names in enumerate(graph.named(subgraph.triples))}
    u_to_m = triple["u", "knows", "m"]
    (outer,) = np.flatnonzero(
        (subgraph.edge_triples[-2].numpy() == u_to_m) & (subgraph.edge_ends[-2][0] == graph.nodes["u"])
    )
    onward = {}
    for way in (("v", "knows", "m"), ("m", "likes", "v")):
        (edge,) = np.flatnonzero(
            (subgraph.edge_triples[-1].numpy() == triple[way]) & (subgraph.edge_ends[-1][1] == graph.nodes["v"])
        )
        onward[triple[way]] = found.edges[-1][edge]
    worth = {path.triples: path.importance for path in paths_from(found, ALL)}
    for way, importance in onward.items():
        share = importance / sum(onward.values())
        assert worth[way, u_to_m] == pytest.approx(found.edges[-2][outer] * share)
    assert len(set(onward.values())) == 2


def test_the_strength_of_a_path_is_that_of_its_weakest_triple():
    rows = [("s", "r", "o"), ("o", "q", "s"), ("s", "r", "m"), ("o", "r", "m"), ("n", "q", "s"), ("n", "r", "o")]
    graph = KnowledgeGraph.from_triples(rows)
    subject, object_ = graph.nodes["s"], graph.nodes["o"]
    question = link_question(predictor(graph=graph, epochs=1), subject, graph.relations["r"], object_)
    found = drawn(question, seed=1)
    place = {tuple(names): at for at, names in enumerate(graph.named(question.subgraph.triples))}
    ways = [[("o", "q", "s")], [("s", "r", "m"), ("o", "r", "m")], [("n", "q", "s"), ("n", "r", "o")]]
    wanted = {tuple(place[step] for step in way): min(found.triples[place[step]] for step in way) for way in ways}
    paths = paths_between(found, subject, object_, place["s", "r", "o"], ALL)
    assert {path.triples: path.importance for path in paths} == wanted
    assert [path.importance for path in paths] == sorted(wanted.values(), reverse=True)
    assert len(set(wanted.values())) == 3
    assert all(path.start == subject for path in paths)
    assert paths_between(found, subject, object_, place["s", "r", "o"], 1) == paths[:1]
