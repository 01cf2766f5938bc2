"""Models of small graphs whose scores are whole numbers: sums in any order are equal, and ties are many."""

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


class Turning(BilinearDecoder):
    """f(s, r, o) = Σ_i s_i r_i o_{i+1}: a decoder that is not DistMult, and not symmetric."""

    def object_query(self, subject, relation):
        return torch.roll(subject * relation, 1, dims=1)

    def subject_query(self, relation, object):
        return relation * torch.roll(object, -1, dims=1)


def random_graph(seed, nodes=23, relations=3, triples=120, splits=True, literals=0):
    """Relation 0 only goes one way, from lower to higher nodes; the others go as they like."""
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
    """Countries 0 to 13, towns 14 to 27, rivers 28 to 33, and a stranger: relations with every kind of rule."""
    rng = np.random.default_rng(seed)
    countries, towns, rivers = range(14), range(14, 28), range(28, 34)
    rows = [(c, 0, c + 14) for c in countries[:12]]  # capital: one each, either way
    rows += [pair for a, b in rng.integers(0, 14, (40, 2)).tolist() if a != b for pair in ((a, 1, b), (b, 1, a))]
    rows += [(int(r), 2, int(c)) for r in rivers for c in rng.integers(0, 8, 9)]  # runs through few of the countries
    rows += [(t, 3, int(o)) for t in towns for o in rng.integers(14, 28, 6) if t < o]  # only goes one way
    rows += [(t, 4, int(rng.integers(0, 14))) for t in towns]  # in: one object each
    rows += [(int(a), 5, int(b)) for a, b in rng.integers(0, 14, (30, 2))] + [
        (c, 5, c) for c in countries
    ]  # itself too
    rows += [(28, 6, 20)]
    triples = np.unique(np.array(rows), axis=0)
    some = (triples[:, 1] != 0) & (triples[:, 1] != 6) & splits
    return KnowledgeGraph(
        triples,
        Vocabulary([f"n{i}" for i in range(35)], kind="node"),
        Vocabulary(["capital", "borders", "through", "next", "in", "likes", "odd", "never"], kind="relation"),
        triple_splits=np.where(some, rng.choice(3, len(triples), p=(0.7, 0.2, 0.1)), 0).astype(np.int8),
    )


def with_whole_numbers(graph, seed=0, biases=False, decoder=None, largest=2, folder="nowhere"):
    """An open model whose vectors are small whole numbers."""
    model = rgcn.LinkPredictor("distmult", embedding=4, decoder_biases=biases).prepare(graph)
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


def answers_to(opened, given, relation, for_objects=True, k=10, known="mark", **choices):
    return answer_links(opened, Questions(given, relation, for_objects), k, known, **choices)


def every_score(opened):
    """float64 [N, R, N]: the score of every triple, by the decoder's own definition, one at a time in effect."""
    graph, decoder, nodes = opened.graph, opened.model.network_.decoder, opened.model.scorer().nodes
    n, r = graph.num_nodes, graph.num_relations
    s, p, o = torch.meshgrid(torch.arange(n), torch.arange(r), torch.arange(n), indexing="ij")
    with torch.no_grad():
        return decoder.score(nodes[s.flatten()], p.flatten(), nodes[o.flatten()]).double().view(n, r, n)


def mask(graph, *splits):
    """bool [N, R, N]: the triples of some splits, or of all."""
    found = torch.zeros(graph.num_nodes, graph.num_relations, graph.num_nodes, dtype=torch.bool)
    for split in splits or ("all",):
        found[tuple(torch.from_numpy(np.array(graph.split_triples(split))).T)] = True
    return found
