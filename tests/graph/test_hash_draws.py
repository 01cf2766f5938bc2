"""Draws by a hash of names: the same whatever the numbers of the names, and wherever these lie."""

from __future__ import annotations

import numpy as np

from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.graph.splitting import drawn, label_keys, triple_keys
from rgcn.graph.vocabulary import StoredNames, name_hash

NAMES = [*(f"node {i} of a few" for i in range(60)), "", "é", "a name of more than eight bytes", "\ud800 alone"]


def test_a_key_depends_on_the_name_alone():
    ids = np.array([3, 3, 61, 0, 59, 62])
    keys = Vocabulary(NAMES).keys(ids)
    assert [int(key) >> 32 for key in keys] == [name_hash(NAMES[i].encode()) for i in ids]
    assert (Vocabulary(NAMES[::-1]).keys(len(NAMES) - 1 - ids) == keys).all()
    assert (Vocabulary(StoredNames.of(NAMES[:-1])).keys(ids) == keys).all()
    assert len(np.unique(Vocabulary(NAMES).keys(np.arange(len(NAMES))))) == len(NAMES)


def test_what_is_drawn_depends_on_no_order():
    rng = np.random.default_rng(0)
    rows = list({(f"n{s}", f"r{r}", f"n{o}") for s, r, o in rng.integers(0, (20, 3, 20), (200, 3)).tolist()})
    labels = {f"n{i}": f"class {i % 3}" for i in range(20)}

    def chosen(rows, labels):
        graph = KnowledgeGraph.from_triples(rows, labels=labels)
        triples = graph.named(graph.triples[drawn(triple_keys(graph, graph.triples), 15)])
        nodes, classes = graph.labels.of("train")
        some = drawn(label_keys(graph, nodes, classes), 7)
        return list(triples), [graph.nodes[node] for node in nodes[some].tolist()]

    first = chosen(rows, labels)
    for _ in range(3):
        rng.shuffle(rows)
        mixed = list(labels.items())
        rng.shuffle(mixed)
        assert chosen([tuple(row) for row in rows], dict(mixed)) == first
    assert len(set(first[0])) == 15
    # Subject and object, and the relation, all count.
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("b", "r", "a"), ("a", "s", "b")])
    assert len(set(triple_keys(graph, graph.triples).tolist())) == 3


def test_every_triple_is_as_likely_to_be_drawn():
    """Of a hundred graphs a tenth of the triples is drawn: from every tenth of the rows about as many."""
    counts = np.zeros(10)
    for number in range(100):
        graph = KnowledgeGraph.from_triples([(f"s{number}-{i}", "r", f"o{i % 7}") for i in range(200)])
        counts += np.bincount(drawn(triple_keys(graph, graph.triples), 20) // 20, minlength=10)
    assert counts.sum() == 2000
    assert (np.abs(counts - 200) < 5 * np.sqrt(200)).all()
