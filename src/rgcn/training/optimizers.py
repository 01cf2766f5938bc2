"""Optimizers that save memory traffic on large tables.

With one-hot nodes, the table of bases [num_nodes, num_bases, width] is nearly all of a model, and the optimizer nearly
all of a step: it reads and writes the table and two moments. The gradient of that table is a sum over a few pairs,
G[n, b] = Σ_p C[r_p, b] · g[p]. To write G and read it back would add half as much traffic, and a quarter of the memory.
`Adam` computes each row of G when it updates that row. The results are those of `torch.optim.Adam`, up to rounding.

A batch of links reads few rows of a large graph's node tables. `LazyAdam` and `RowAdagrad` update these rows alone: a
step takes the rows it needs (`NodeTable.take`), and their gradient is (rows, values), never a table. Components of the
registry `optimizer` have the constructor of PyTorch's optimizers, `(parameters, lr, weight_decay=)`; a `RowOptimizer`
gets the tables too.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from rgcn.kernels import gather_sum, spread_bases
from rgcn.kernels.dispatch import kernels_for
from rgcn.kernels.reference import AdamSettings
from rgcn.kernels.sparse import SparsePattern
from rgcn.nn.row_tables import GatheredRows, NodeTable, zeros_stored_like


class Adam(torch.optim.Optimizer):
    """torch.optim.Adam (fused, with weight decay added to the gradient) with factored gradients of some tables.

    Args:
        params: Parameters or parameter groups, as for `torch.optim.Adam`.
        lr: Learning rate.
        betas: Decay rates of the moments.
        eps: Added to the denominator.
        weight_decay: Added to the gradient, times the parameter.
        tables: Tables that collect gradients of what is computed within `with optimizer.factoring():`, instead of in
            `.grad`: here as factors. Their `trained` must be among `params`.

    Example:
        >>> weight = nn.Parameter(torch.ones(2))
        >>> optimizer = Adam([weight], lr=0.1)
        >>> weight.sum().backward()
        >>> optimizer.step()
        >>> weight
        Parameter containing:
        tensor([0.9000, 0.9000], requires_grad=True)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        tables: Sequence[NodeTable] = (),
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.tables = {table.trained: table for table in tables}
        self.gathered: dict[NodeTable, list[Any]] = {table: [] for table in tables}

    # Without PyTorch's wrapper, which loads its compiler.
    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)

    @contextmanager
    def factoring(self) -> Iterator[None]:
        """Within the context, collect the tables' gradients as factors, or as rows."""
        for table, found in self.gathered.items():
            table.gathered = found
        try:
            yield
        finally:
            for table in self.gathered:
                table.gathered = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove all gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        for found in self.gathered.values():
            found.clear()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters; as for `torch.optim.Optimizer`."""
        with torch.enable_grad():
            loss = None if closure is None else closure()
        self.update()
        return loss

    @torch.no_grad()
    def update(self) -> None:
        """Update the parameters without PyTorch's hooks and profiler, which take 5 % of a step on a small graph."""
        for group in self.param_groups:
            self._step(group)

    def _step(self, group: dict[str, Any]) -> None:
        parameters: list[Tensor] = []
        for parameter in group["params"]:
            factored = self.gathered[self.tables[parameter]] if parameter in self.tables else ()
            if len(factored) == 1 and parameter.grad is None:
                state = self._state(parameter)
                state["step"] += 1
                table = (parameter, state["exp_avg"], state["exp_avg_sq"], state["step"])
                kernels_for(parameter).adam_bases(*table, factored[0], _adam_settings(group))
                continue
            for gradient in factored:  # a table that is used more than once in a step
                dense = spread_bases(*gradient)
                parameter.grad = dense if parameter.grad is None else parameter.grad + dense
            if parameter.grad is not None:
                parameters.append(parameter)
        if not parameters:
            return
        states = [self._state(parameter) for parameter in parameters]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means, squares = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
        settings = {name: group[name] for name in ("lr", "eps", "weight_decay")}
        settings |= {"beta1": group["betas"][0], "beta2": group["betas"][1], "amsgrad": False, "maximize": False}
        torch._fused_adam_(parameters, gradients, means, squares, [], steps, **settings)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


def _adam_settings(group: dict[str, Any]) -> AdamSettings:
    return AdamSettings(group["lr"], group["betas"], group["eps"], group["weight_decay"])


class RowOptimizer(Adam):
    """Base of optimizers that update only the rows of node tables that a step took within `factoring`.

    Args: as for `Adam`, which updates all other parameters; `tables` are the node tables.
    """

    def leaves(self) -> list[Tensor]:
        """Return the leaf tensors that hold the tables' gradients after a backward pass: one for each table.

        A leaf has each row once.
        """
        for table, gathered_rows in self.gathered.items():
            whole = table.trained
            if whole.grad is not None:  # the whole table was used
                gathered_rows.append(GatheredRows(torch.arange(len(whole), device=whole.device), whole))
            if len(gathered_rows) > 1:  # sums duplicates in a fixed order
                rows, place = torch.unique(torch.cat([rows for rows, _ in gathered_rows]), return_inverse=True)
                adding = SparsePattern.selection(place, len(rows), transient=True).transpose
                parts = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for _, leaf in gathered_rows]
                gradient = gather_sum(adding, None, torch.cat(parts))
                gathered_rows[:] = [GatheredRows(rows, torch.empty_like(gradient))]
                gathered_rows[0].leaf.grad = gradient
        return [leaf for gathered_rows in self.gathered.values() for _, leaf in gathered_rows]

    def _step(self, group: dict[str, Any]) -> None:
        self.leaves()
        others = []
        for parameter in group["params"]:
            if (table := self.tables.get(parameter)) is None:
                others.append(parameter)
                continue
            for rows, leaf in self.gathered[table]:
                if leaf.grad is not None:
                    self._update_rows(parameter, rows, leaf.grad, _adam_settings(group))
        self._update_others({**group, "params": others})

    def _update_others(self, group: dict[str, Any]) -> None:
        super()._step(group)

    @abstractmethod
    def _update_rows(self, table: nn.Parameter, rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
        """Update rows of a table in place, given their gradient [num_rows, width]."""


class LazyAdam(RowOptimizer):
    """Adam that updates a row of a node table, its moments and its own step count only in steps that took the row."""

    def _update_rows(self, table: nn.Parameter, rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
        state = self.state[table]
        if not state:
            state |= {"exp_avg": zeros_stored_like(table), "exp_avg_sq": zeros_stored_like(table)}
            state["step"] = table.new_zeros(len(table), dtype=torch.float32)
        kernels_for(table).lazy_adam_rows((table, *state.values()), rows, gradient, settings)


class Adagrad(Adam):
    """Adagrad (Duchi et al. 2011): a ← a + g²,  w ← w − lr · g / (√a + eps), with an accumulator a for each number.

    Args: as for `Adam`, but for `betas` and `tables`.
    """

    def __init__(self, params: Iterable[Any], lr: float | Tensor = 0.1, eps: float = 1e-8, weight_decay: float = 0.0):
        super().__init__(params, lr, eps=eps, weight_decay=weight_decay)

    def _step(self, group: dict[str, Any]) -> None:
        settings = {name: group[name] for name in ("lr", "weight_decay", "eps")}
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            squares = _squares_so_far(self, parameter, parameter.shape)
            if parameter.device.type == "cpu":  # one pass over memory instead of six
                steps = [torch.ones((), dtype=torch.float32)]  # not used without a decay of the rate
                tensors = [parameter], [parameter.grad], [squares], steps
                torch._fused_adagrad_(*tensors, lr_decay=0.0, maximize=False, **settings)
            else:
                update_adagrad(parameter, squares, group)


class RowAdagrad(RowOptimizer):
    """Adagrad with one accumulator for each row of a node table, to which the mean of g² over the row is added."""

    def _update_others(self, group: dict[str, Any]) -> None:
        for parameter in group["params"]:
            if parameter.grad is not None:
                update_adagrad(parameter, _squares_so_far(self, parameter, parameter.shape), group)

    def _update_rows(self, table: nn.Parameter, rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
        tables = table, _squares_so_far(self, table, table.shape[:1])
        kernels_for(table).adagrad_rows(tables, rows, gradient, settings)


def update_adagrad(parameter: Tensor, squares: Tensor, group: dict[str, Any]) -> None:
    """Take a step of Adagrad on a parameter that has a gradient, given the sum of squared gradients so far."""
    gradient = parameter.grad
    assert gradient is not None
    if group["weight_decay"]:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
    squares.addcmul_(gradient, gradient)
    parameter.sub_(group["lr"] * gradient / (squares.sqrt() + group["eps"]))


def _squares_so_far(optimizer: torch.optim.Optimizer, parameter: Tensor, shape: Sequence[int]) -> Tensor:
    state: dict[str, Tensor] = optimizer.state[parameter]
    if not state:
        state["sum"] = parameter.new_zeros(*shape)
    return state["sum"]
