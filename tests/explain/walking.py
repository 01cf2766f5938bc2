"""A network whose states spread from the queried node, and a graph whose answers have one obvious path."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

import rgcn
from rgcn.graph import KnowledgeGraph

sys.path.append(str(Path(__file__).parents[1] / "strangers"))
from stranger_models import WalkNetwork, Walks


class WalkingNetwork(WalkNetwork):
    must_hide_triples = True
    ignores_unreached_nodes = True

    def walk(self, layers, start, ask):
        """Like `Walks`, but nodes keep their state, so that a path can be shorter than the network is deep."""
        x = start[:, :, None] * self.question[ask]
        for layer in layers:
            edges = layer.structure
            carried = x[edges.source] * (self.message[edges.relation] * layer.weight[:, None])[:, None]
            x = x + torch.zeros_like(x).index_add(0, edges.target, carried)
        return torch.einsum("vqd, qd -> qv", x, self.answer[ask])


class Walking(Walks):
    @classmethod
    def build_link_network(cls, plan):
        return WalkingNetwork(plan)


def walker(graph, layers=3, **settings):
    chosen = {"embedding": 6, "steps": 1, "device": "cpu", "seed": 0, "self_loops": False, **settings}
    return rgcn.LinkPredictor(encoder=Walking, layers=layers, **chosen).fit(graph)


def families(count=12, seed=0):
    """Return a graph in which children live where their parents live; acquaintances are random."""
    rng, rows = np.random.default_rng(seed), []
    for child in range(count):
        rows += [(f"child{child}", "child of", f"parent{child}"), (f"parent{child}", "lives in", f"town{child % 4}")]
        rows += [(f"child{child}", "lives in", f"town{child % 4}")] if child else []
        rows += [(f"child{child}", "knows", f"child{other}") for other in rng.integers(0, count, 2) if other != child]
    return KnowledgeGraph.from_triples(list(dict.fromkeys(rows)))
