"""Compiling the CPU's loops before they are needed.

The first run on a machine compiles each loop when it is first called, half a second to two seconds each; later runs
find them on disk. A model begins with it in the background when it is prepared, while its operator and network are
built. Who wants no pause at all, in an image for servers say, compiles everything when installing:

    python -m rgcn.kernels.ahead
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch

from rgcn.kernels.layer_update import UpdateInputs, UpdateSettings
from rgcn.kernels.reference import AdamSettings, FactoredGradient
from rgcn.kernels.sparse import Pairs, SparsePattern


def compile_ahead(*kernels: str) -> threading.Thread | None:
    """Start compiling these kernels of `cpu`, by name; None where numba does not run. Nobody needs to wait for it."""
    try:
        calls = _tiny_calls()
    except ImportError:
        return None
    thread = threading.Thread(target=_call, args=[calls[name] for name in kernels], name="rgcn-compile", daemon=True)
    thread.start()
    return thread


def finish_compiling() -> None:
    """Wait for what `compile_ahead` has begun, before something that a compiler in the background would disturb."""
    for thread in threading.enumerate():
        if thread.name == "rgcn-compile":
            thread.join()


def _call(*functions: Callable[[], object]) -> None:
    for function in functions:
        function()


def _tiny_calls() -> dict[str, Callable[[], object]]:
    """Each kernel on the smallest input, of the types that training gives it."""
    from rgcn.kernels import cpu

    one = torch.zeros(1, dtype=torch.int64)
    pairs = Pairs.of(one, one, one, 1, 1, node_major=True)
    pattern = SparsePattern.from_sorted_rows(one, one, (1, 1))
    value, row, table, matrices = (torch.zeros([1] * dimensions) for dimensions in (1, 2, 3, 4))
    wide, states, weights = torch.zeros(1, 96), torch.zeros(1, 1, 32), (torch.zeros(32, 64), *[torch.zeros(32)] * 3)
    update = UpdateInputs(states, states, None, value, weights, None, UpdateSettings(scaled=False))
    index, step, moments = one.int(), torch.ones(()), (torch.zeros(1, 1, 1), torch.zeros(1, 1, 1))
    adam = AdamSettings(0.1, (0.9, 0.999), 1e-8, 0.0)
    return {
        "combine_bases": lambda: cpu.combine_bases(row, table, pairs),
        "spread_bases": lambda: cpu.spread_bases(row, row, pairs),
        "coefficient_gradient": lambda: cpu.coefficient_gradient(table, row, pairs),
        "adam_bases": lambda: cpu.adam_bases(table, *moments, step, FactoredGradient(row, row, pairs), adam),
        "grouped_product": lambda: cpu.grouped_product(table, matrices, pairs),
        "grouped_outer": lambda: cpu.grouped_outer(table, table, pairs),
        "gather_product_sum": lambda: cpu.gather_product_sum(pattern, value, index, row, row),
        # The same function takes another loop for wide rows.
        "gather_wide_sum": lambda: cpu.gather_product_sum(pattern, value, index, wide, wide),
        "gather_sum": lambda: cpu.gather_sum(pattern, value, row),
        "layer_update": lambda: cpu.layer_update(update),
        "layer_update_gradients": lambda: cpu.layer_update_gradients(update, states),
        "entry_product": lambda: cpu.entry_product(index, row, None, None, index, row),
        "count_ranks": lambda: cpu.count_ranks(row, value, 0, one, one, one, one, index),
    }


if __name__ == "__main__":
    _call(*_tiny_calls().values())
