"""`rgcn bench`: our training step beside other people's, and beside what the machine could do at best.

Everything here runs on PyTorch and numpy alone (`python -m rgcn.bench`), so that it can be carried to a machine that
has little else; data sets by name and pictures need more.

graphs      what is measured on          workloads   which network, with which settings
sides       ours and the peers           child       one measurement, in a process of its own
measuring   starting such processes      comparison  all of them in turns, and the figures side by side
memory, floor, machine                   what a process holds, the least a step can take, what it ran on
report, plotting                         a table, a picture
"""

from __future__ import annotations

from rgcn.bench.comparison import Plan, compare
from rgcn.bench.graphs import find_graph, graph_from_npz, graph_to_npz, shaped

__all__ = ["Plan", "compare", "find_graph", "graph_from_npz", "graph_to_npz", "shaped"]
