"""Only what is reached: the nodes that walks of a few steps from some nodes can end at, and the edges they take.

Everything else is zero in a path network, and sends nothing: left out, nothing changes but the time it takes.
"""

import torch
from torch import Tensor

from rgcn.kernels.sparse import pointer_from_sorted
from rgcn.nn.path_layers import Hop

# Above this share of the edges, picking them out costs more than the rest of them would.
MOST_OF_ALL = 0.5


def reached_hops(whole: Hop, start: Tensor | None, num_layers: int) -> tuple[list[Hop], list[Tensor | None]]:
    """What each layer must compute for questions that start at nodes int64 [q]; None: at all of them.

    Returns a hop for each layer, and the nodes int64, ascending, that have a state before the first layer and after
    each one; None: all nodes. A hop's sources are its targets: states are first laid out over these, the new ones zero.
    No weight and no degree changes: those are the whole graph's.
    """
    if start is None:
        return [whole] * num_layers, [None] * (num_layers + 1)
    edges, operator = whole.operator.structure, whole.operator
    by_source, _ = edges.triple_index.seen_from("source")
    numbers = torch.arange(edges.num_edges, device=start.device) if by_source.entry is None else by_source.entry
    hops: list[Hop] = []
    nodes: list[Tensor | None] = [torch.unique(start)]
    for _ in range(num_layers):
        given = nodes[-1]
        if given is not None:
            begin, length = by_source.pointer[given], by_source.pointer[given + 1] - by_source.pointer[given]
            total = int(length.sum())
            if total > MOST_OF_ALL * edges.num_edges:
                given = None
        if given is None:
            hops.append(whole)
            nodes.append(None)
            continue
        first = torch.cumsum(length, 0) - length
        entry = torch.arange(total, device=start.device) + torch.repeat_interleave(begin - first, length)
        edge = torch.sort(numbers[entry]).values.long()
        reached, target = torch.unique_consecutive(edges.target[edge].long(), return_inverse=True)
        source = torch.searchsorted(reached, edges.source[edge].long())  # self-loops make every source a target
        size, pointer = len(reached), pointer_from_sorted(target, len(reached))
        part = operator.selected(edge, pointer=pointer, source=source, num_targets=size, num_sources=size)
        hops.append(Hop(part, None, whole.degree[reached]))
        nodes.append(reached)
    return hops, nodes
