"""Numbers that point outside the graph, refused before a kernel follows them out of its memory."""

from __future__ import annotations

import torch
from torch import Tensor

from rgcn.errors import DataError


def refuse_numbers_out_of_range(triples: Tensor, num_nodes: int, num_relations: int) -> None:
    """Raise DataError with the first of the triples int64 [T, 3] whose numbers are not in the graph.

    >>> refuse_numbers_out_of_range(torch.tensor([[0, 0, 1], [1, 5, 0]]), num_nodes=2, num_relations=2)
    Traceback (most recent call last):
    rgcn.errors.DataError: triple 1 is (1, 5, 0), but relations are numbered 0 to 1 ...
    """
    if num_nodes < 0 or num_relations < 0:
        raise DataError(f"a graph cannot have {num_nodes} nodes and {num_relations} relations")
    if not len(triples):
        return
    # One number comes back from the device where all is well; which row it is, is asked only where it is not.
    sizes = torch.tensor([num_nodes, num_relations, num_nodes], device=triples.device)
    outside = (triples < 0) | (triples >= sizes)
    if not outside.any():
        return
    row = int(outside.any(1).nonzero()[0])
    column = int(outside[row].nonzero()[0])
    what, size = ("relation", num_relations) if column == 1 else ("node", num_nodes)
    values = ", ".join(map(str, triples[row].tolist()))
    allowed = f"{what}s are numbered 0 to {size - 1}" if size else f"the graph has no {what}s"
    raise DataError(
        f"triple {row} is ({values}), but {allowed} (a triple is subject, relation, object; rows are counted from 0)"
    )


def refuse_targets_out_of_range(targets: Tensor, num_targets: int) -> None:
    """Raise DataError unless targets are int64 [n], each the number of a target."""
    if targets.ndim != 1 or targets.dtype != torch.int64:
        raise DataError(f"targets must be int64 [n], not {targets.dtype} {list(targets.shape)}")
    outside = (targets < 0) | (targets >= num_targets)
    if outside.any():
        place = int(outside.nonzero()[0])
        raise DataError(f"target {place} is {int(targets[place])}, but targets are numbered 0 to {num_targets - 1}")
