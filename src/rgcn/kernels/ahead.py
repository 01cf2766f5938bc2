"""Compiling the CPU's loops before they are needed.

The first run on a machine compiles each loop when it is first called, half a second to two seconds each; later runs
find them on disk. A model begins with it in the background when it is prepared, while its operator and network are
built. Who wants no pause at all, in an image for servers say, compiles everything when installing:

    python -m rgcn.kernels.ahead
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import torch

from rgcn.pairs import Pairs
from rgcn.sparse import SparsePattern


def compile_ahead(*kernels: str) -> threading.Thread | None:
    """Start compiling these kernels of `cpu`, by name; None where numba does not run. Nobody needs to wait for it."""
    try:
        calls = _tiny_calls()
    except ImportError:
        return None
    thread = threading.Thread(target=_each, args=([calls[name] for name in kernels],), name="rgcn-compile", daemon=True)
    thread.start()
    return thread


def finish_compiling() -> None:
    """Wait for what `compile_ahead` has begun, before something that a compiler in the background would disturb."""
    for thread in threading.enumerate():
        if thread.name == "rgcn-compile":
            thread.join()


def _each(calls: Iterable[Callable[[], object]]) -> None:
    for call in calls:
        call()


def _tiny_calls() -> dict[str, Callable[[], object]]:
    """Each kernel on the smallest input, of the types that training gives it."""
    from rgcn.kernels import cpu as kernels

    one = torch.zeros(1, dtype=torch.int64)
    pairs = Pairs.of(one, one, one, 1, 1, node_major=True)
    pattern = SparsePattern.from_sorted_rows(one, one, (1, 1))
    row, table, index = torch.zeros(1, 1), torch.zeros(1, 1, 1), one.int()
    matrices, value = torch.zeros(1, 1, 1, 1), torch.zeros(1)

    def adam() -> None:
        tables = (table.clone(), table.clone(), table.clone())
        kernels.adam_bases(*tables, torch.ones(()), row, row, pairs, 0.1, (0.9, 0.999), 1e-8, 0.0)

    return {
        "combine_bases": lambda: kernels.combine_bases(row, table, pairs),
        "spread_bases": lambda: kernels.spread_bases(row, row, pairs),
        "coefficient_gradient": lambda: kernels.coefficient_gradient(table, row, pairs),
        "adam_bases": adam,
        "grouped_product": lambda: kernels.grouped_product(table, matrices, pairs),
        "grouped_outer": lambda: kernels.grouped_outer(table, table, pairs),
        "gather_product_sum": lambda: kernels.gather_product_sum(pattern, value, index, row, row),
        "gather_sum": lambda: kernels.gather_sum(pattern, value, row),
        "count_ranks": lambda: kernels.count_ranks(row, one, one, one, one, one),
        "entry_dot": lambda: kernels.entry_dot(index, row, index, row),
    }


if __name__ == "__main__":
    _each(_tiny_calls().values())
