"""`rgcn bench`: our training step beside other people's, and beside what the machine could do at best.

Everything here runs on PyTorch and numpy alone (`python -m rgcn.bench`), so that it can be carried to a machine that
has little else; data sets by name and pictures need more.

graphs         what is measured on                 sides      the network, and a step of ours and of the peers
measuring      one measurement, in its process     turns      all of them in turns, and the figures side by side
floor          the least a step can take           showing    a table, pictures
"""

from __future__ import annotations

from rgcn.bench.graphs import find_graph, graph_from_npz, graph_to_npz, shaped
from rgcn.bench.turns import BenchPlan, compare

__all__ = ["BenchPlan", "compare", "find_graph", "graph_from_npz", "graph_to_npz", "shaped"]
