"""Compile the CPU loops before they are needed.

On the first run on a machine each loop is compiled at its first call, which takes half a second to two seconds; later
runs load it from disk. A model starts compiling in the background when it is prepared, while its operator and network
are built. To compile everything while installing, for instance in the image of a server, run

    python -m rgcn.kernels.ahead
"""

import threading
from collections.abc import Callable

import torch

from rgcn.kernels.layer_update import UpdateInputs, UpdateSettings
from rgcn.kernels.reference import AdamSettings, FactoredGradient
from rgcn.kernels.sparse import Pairs, SparsePattern

THREAD_NAME = "rgcn-compile"


def compile_ahead(*kernels: str) -> threading.Thread | None:
    """Start compiling kernels of `rgcn.kernels.cpu` in the background.

    Args:
        *kernels: Names of kernels, keys of `_tiny_calls()`.

    Returns:
        The thread, which need not be waited for; None where numba is missing.
    """
    try:
        calls = _tiny_calls()
    except ImportError:
        return None
    thread = threading.Thread(target=_call, args=[calls[name] for name in kernels], name=THREAD_NAME, daemon=True)
    thread.start()
    return thread


def compile_now(*kernels: str) -> None:
    """Compile kernels of `rgcn.kernels.cpu`, or load them from disk, before something that is timed."""
    thread = compile_ahead(*kernels)
    if thread is not None:
        thread.join()


def wait_for_compilation() -> None:
    """Wait until background compilation ends, before something that it would disturb."""
    for thread in threading.enumerate():
        if thread.name == THREAD_NAME:
            thread.join()


def _call(*functions: Callable[[], object]) -> None:
    for function in functions:
        function()


def _tiny_calls() -> dict[str, Callable[[], object]]:
    """Return, by name, a call of each kernel on the smallest inputs of the types that training uses."""
    from rgcn.kernels import cpu

    one = torch.zeros(1, dtype=torch.int64)
    pairs = Pairs.of(one, one, one, 1, 1, node_major=True)
    pattern = SparsePattern.from_sorted_rows(one, one, (1, 1))
    value, row, table, matrices = (torch.zeros([1] * dimensions) for dimensions in (1, 2, 3, 4))
    wide, states, weights = torch.zeros(1, 96), torch.zeros(1, 1, 32), (torch.zeros(32, 64), *[torch.zeros(32)] * 3)
    update = UpdateInputs(states, states, None, value, weights, None, UpdateSettings(degree_scaling=False))
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
        # The same function runs another loop for wide rows.
        "gather_wide_sum": lambda: cpu.gather_product_sum(pattern, value, index, wide, wide),
        "gather_sum": lambda: cpu.gather_sum(pattern, value, row),
        "layer_update": lambda: cpu.layer_update(update),
        "layer_update_gradients": lambda: cpu.layer_update_gradients(update, states),
        "entry_product": lambda: cpu.entry_product(index, row, None, None, index, row),
        "count_ranks": lambda: cpu.count_ranks(row, value, 0, one, one, one, one, index),
    }


if __name__ == "__main__":
    _call(*_tiny_calls().values())
