"""A learned edge mask: which triples the network holds on to when every triple costs."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rgcn.explain.attribution import Attribution, Numbers
from rgcn.explain.question import Question
from rgcn.explain.reach import Reach

STEPS, RATE = 60, 0.1
FIRST_PRICE, LAST_PRICE = 1e-3, 1.0


def edge_mask(question: Question, steps: int = STEPS) -> Attribution:
    """How long each triple was kept while keeping became dearer.

    Every triple's messages are multiplied by a mask σ(m) in 0 .. 1, one for the triple in all layers, and Adam
    looks for the mask that keeps the answer cheaply:

        loss = - log p(answer | mask) + price · Σ σ(m)

    One price suits no two questions: too low, and all masks end at one; too high, and all at nothing. So the price
    grows from step to step, and the importance of a triple is its mean mask on the way, less that of a triple which
    nothing reads and which only pays. Negative is what was given up faster than that: it speaks against the answer.

    After Ying et al., "GNNExplainer", 2019, whose mask has one price and begins at random; here nothing is random.
    """
    reach = question.reach
    # The last mask belongs to no triple: it shows what the price alone does.
    logits = reach.field.layers[0].weight.new_zeros(len(reach) + 1).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=RATE)
    kept = torch.zeros_like(logits)
    for price in np.geomspace(FIRST_PRICE, LAST_PRICE, steps).tolist():
        mask = torch.sigmoid(logits)
        kept += mask.detach() / steps
        answer = question.log_probability(question.output(reach.weighted(mask[:-1])))
        (logits.grad,) = torch.autograd.grad(price * mask.sum() - answer, [logits])
        optimizer.step()
    return Attribution(reach, _per_edge(reach, kept[:-1] - kept[-1]), None)


def _per_edge(reach: Reach, importance: Tensor) -> tuple[Numbers, ...]:
    """A triple has one mask for all its edges: each gets an equal part of its importance, a self-loop none."""
    every = np.append(importance.double().cpu().numpy(), 0.0)
    places = [place.cpu().numpy() for place in reach.place]
    count = np.bincount(np.concatenate(places), minlength=len(every))
    return tuple(every[place] / count[place] for place in places)
