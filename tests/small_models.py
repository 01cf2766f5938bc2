"""Small graphs, and models whose scores are whole numbers.

With whole numbers, sums are the same in any order, and there are many ties.
"""

from collections import namedtuple
from pathlib import Path

import numpy as np
import torch

import rgcn
from rgcn.graph import KnowledgeGraph, Vocabulary
from rgcn.graph.titles import Titles
from rgcn.links.top_k import answer_links
from rgcn.nn.decoders import BilinearDecoder
from rgcn.nn.scorer import Questions, VectorScorer
from rgcn.predict import OpenModel


def named_rows(frame):
    """Return the rows of a table as named tuples."""
    row = namedtuple("Row", frame.columns)
    return [row(*values) for values in frame.iter_rows()]


class Turning(BilinearDecoder):
    """An asymmetric decoder: f(s, r, o) = Σ_i s_i r_i o_{i+1}."""

    def object_query(self, subject, relation):
        return torch.roll(subject * relation, 1, dims=1)

    def subject_query(self, relation, object):
        return relation * torch.roll(object, -1, dims=1)


def random_graph(seed, nodes=23, relations=3, triples=120, splits=True, literals=0):
    """Return a random graph whose relation 0 goes only from lower to higher nodes."""
    rng = np.random.default_rng(seed)
    rows = np.unique(rng.integers(0, (nodes, relations, nodes), (triples, 3)), axis=0)
    kinds = np.zeros(nodes, np.uint8)
    kinds[nodes - literals :] = 1
    rows = rows[(kinds[rows[:, 0]] == 0) & ((rows[:, 1] > 0) | (rows[:, 0] < rows[:, 2]))]
    return KnowledgeGraph(
        rows,
        Vocabulary([f'"n{i}"' if kinds[i] else f"n{i}" for i in range(nodes)], kind="node"),
        Vocabulary([f"r{i}" for i in range(relations)], kind="relation"),
        node_kinds=kinds,
        triple_splits=rng.choice(3, len(rows), p=(0.7, 0.2, 0.1)).astype(np.int8) if splits else None,
    )


def graph_of_kinds(seed=0, splits=True):
    """Return a graph with relations of every kind of constraint.

    Nodes 0 to 13 are countries, 14 to 27 towns, 28 to 33 rivers; node 34 is in no triple.
    """
    rng = np.random.default_rng(seed)
    countries, towns, rivers = range(14), range(14, 28), range(28, 34)
    rows = [(c, 0, c + 14) for c in countries[:12]]  # capital: one-to-one
    rows += [pair for a, b in rng.integers(0, 14, (40, 2)).tolist() if a != b for pair in ((a, 1, b), (b, 1, a))]
    rows += [(int(r), 2, int(c)) for r in rivers for c in rng.integers(0, 8, 9)]  # through: only some of the countries
    rows += [(t, 3, int(o)) for t in towns for o in rng.integers(14, 28, 6) if t < o]  # next: only one direction
    rows += [(t, 4, int(rng.integers(0, 14))) for t in towns]  # in: one object per subject
    rows += [(int(a), 5, int(b)) for a, b in rng.integers(0, 14, (30, 2))] + [
        (c, 5, c) for c in countries
    ]  # likes: also reflexive
    rows += [(28, 6, 20)]
    triples = np.unique(np.array(rows), axis=0)
    may_be_held_out = (triples[:, 1] != 0) & (triples[:, 1] != 6) & splits
    return KnowledgeGraph(
        triples,
        Vocabulary([f"n{i}" for i in range(35)], kind="node"),
        Vocabulary(["capital", "borders", "through", "next", "in", "likes", "odd", "never"], kind="relation"),
        triple_splits=np.where(may_be_held_out, rng.choice(3, len(triples), p=(0.7, 0.2, 0.1)), 0).astype(np.int8),
    )


def with_whole_numbers(graph, seed=0, biases=False, decoder=None, largest=2, folder="nowhere"):
    """Return an open model whose vectors are small whole numbers."""
    model = rgcn.LinkPredictor(encoder="none", embedding=4, decoder_biases=biases).prepare(graph)
    network, draw = model.network_.eval(), torch.Generator().manual_seed(seed)

    def whole(*shape):
        return torch.randint(-largest, largest + 1, shape, generator=draw).float()

    if decoder is not None:
        network.decoder = decoder(graph.num_relations, 4)
    network.decoder.relation.data = whole(graph.num_relations, 4)
    if biases:
        network.decoder.node_bias.trained.data, network.decoder.relation_bias.data = (
            whole(graph.num_nodes, 2),
            whole(graph.num_relations),
        )
    network._scorer = VectorScorer(network.decoder, network.decoder.prepare(whole(graph.num_nodes, 4)).detach())
    return OpenModel(Path(folder), "small", model, Titles(graph))


def answers_to(opened, node, relation, for_objects=True, k=10, known="mark", **options):
    """Return the model's best answers to questions."""
    return answer_links(opened, Questions(node, relation, for_objects), k, known, **options)


def every_score(opened):
    """Return the decoder's score of every triple, float64 [num_nodes, num_relations, num_nodes]."""
    graph, decoder, nodes = opened.graph, opened.model.network_.decoder, opened.model.scorer().nodes
    n, r = graph.num_nodes, graph.num_relations
    s, p, o = torch.meshgrid(torch.arange(n), torch.arange(r), torch.arange(n), indexing="ij")
    with torch.no_grad():
        return decoder.score(nodes[s.flatten()], p.flatten(), nodes[o.flatten()]).double().view(n, r, n)


def mask(graph, *splits):
    """Return which triples are in these splits, or in any split, bool [num_nodes, num_relations, num_nodes]."""
    is_known = torch.zeros(graph.num_nodes, graph.num_relations, graph.num_nodes, dtype=torch.bool)
    for split in splits or ("all",):
        is_known[tuple(torch.from_numpy(np.array(graph.split_triples(split))).T)] = True
    return is_known
