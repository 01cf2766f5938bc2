"""Optimizers that spend no more on a parameter than its gradient needs.

With one-hot nodes the table of bases [nodes, B, width] is nearly all of a model, and the optimizer nearly all of a
step: table and two moments are each read and written. The gradient of that table is a sum over a few pairs, G[n, b] =
Σ_p C[r_p, b] · g[p]. Writing G out and reading it back would add half as much traffic again, and a quarter of the
memory; `Adam` makes each row of G when it updates that row, and forgets it. Nothing else changes: the numbers are
those of `torch.optim.Adam`, up to rounding.

Of a large graph's node tables a batch of links touches a few rows. `LazyAdam` and `RowAdagrad` read and write these
alone: a step takes the rows it needs (`NodeTable.take`), and their gradient is (rows, values), never a table. Members
of the axis `optimizer` are built as PyTorch's are, `(parameters, lr, weight_decay=)`; those that move rows are given
the tables too.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn

from rgcn.kernels import FactoredGradient, gather_sum, spread_bases
from rgcn.kernels.dispatch import kernels_for
from rgcn.kernels.reference import AdamSettings
from rgcn.kernels.sparse import SparsePattern
from rgcn.nn.row_tables import NodeTable, RowTable, TakenRows, zeros_beside


class Adam(torch.optim.Optimizer):
    """torch.optim.Adam (fused, with decay added to the gradient), and factored gradients for some tables.

    tables: those whose gradient may stay factored (their `trained` is among `params`). It does so for what is computed
    within `with optimizer.factoring():`; then their `.grad` stays None.

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
        tables: Sequence[RowTable] = (),
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.tables = tuple(tables)
        self.factored: dict[nn.Parameter, list[FactoredGradient]] = {table.trained: [] for table in tables}
        # (table, the attribute through which it hands over what a step leaves, where that is gathered)
        self.gathered: list[tuple[nn.Module, str, list[Any]]] = [
            (table, "factored_gradients", self.factored[table.trained]) for table in tables
        ]

    # PyTorch's own, without the wrapper that loads its compiler to keep it away from this.
    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)

    @contextmanager
    def factoring(self) -> Iterator[None]:
        """Within, the tables' gradients will reach this optimizer as factors, or as rows."""
        for table, attribute, found in self.gathered:
            setattr(table, attribute, found)
        try:
            yield
        finally:
            for table, attribute, _ in self.gathered:
                setattr(table, attribute, None)

    def zero_grad(self, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None
        for _, _, found in self.gathered:
            found.clear()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with torch.enable_grad():
            loss = None if closure is None else closure()
        self.update()
        return loss

    @torch.no_grad()
    def update(self) -> None:
        """`step`, without what PyTorch wraps around it for hooks and profilers: a twentieth of a small graph's step."""
        for group in self.param_groups:
            self._step(group)

    def _step(self, group: dict[str, Any]) -> None:
        parameters: list[Tensor] = []
        for parameter in group["params"]:
            factored = self.factored.get(parameter, ())
            if len(factored) == 1 and parameter.grad is None:
                self._factored_step(parameter, factored[0], group)
                continue
            for gradient in factored:  # used more than once in a step: summed, as for any parameter
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

    def _factored_step(self, parameter: nn.Parameter, gradient: FactoredGradient, group: dict[str, Any]) -> None:
        state = self._state(parameter)
        state["step"] += 1
        table = (parameter, state["exp_avg"], state["exp_avg_sq"], state["step"])
        settings = AdamSettings(group["lr"], group["betas"], group["eps"], group["weight_decay"])
        kernels_for(parameter).adam_bases(*table, gradient, settings)

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
        return state


class RowOptimizer(Adam):
    """Moves, of node tables, the rows that a step took within `factoring`, and no others; other parameters by Adam."""

    def __init__(self, params: Iterable[Any], *, node_tables: Sequence[NodeTable] = (), **settings: Any) -> None:
        super().__init__(params, **settings)
        self.taken: dict[NodeTable, list[TakenRows]] = {table: [] for table in node_tables}
        self._table_of = {table.trained: table for table in node_tables}
        self.gathered = [(table, "taken", taken) for table, taken in self.taken.items()]

    def moves_rows_of(self, parameter: Tensor) -> bool:
        """Whether a parameter is one of the node tables."""
        return parameter in self._table_of

    def leaves(self) -> list[Tensor]:
        """What holds the tables' gradients after a backward pass, one tensor for each table: its rows, each once."""
        for table, taken in self.taken.items():
            whole = table.trained
            if whole.grad is not None:  # something used all of it
                taken.append(TakenRows(torch.arange(len(whole), device=whole.device), whole))
            if len(taken) > 1:  # in a fixed order
                rows, place = torch.unique(torch.cat([rows for rows, _ in taken]), return_inverse=True)
                adding = SparsePattern.picking(place, len(rows), transient=True).transpose
                parts = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for _, leaf in taken]
                taken[:] = [TakenRows(rows, torch.empty_like(gradient := gather_sum(adding, None, torch.cat(parts))))]
                taken[0].leaf.grad = gradient
        return [leaf for taken in self.taken.values() for _, leaf in taken]

    def _step(self, group: dict[str, Any]) -> None:
        self.leaves()
        others = []
        for parameter in group["params"]:
            if (table := self._table_of.get(parameter)) is None:
                others.append(parameter)
                continue
            for rows, leaf in self.taken[table]:
                if leaf.grad is not None:
                    settings = AdamSettings(group["lr"], group["betas"], group["eps"], group["weight_decay"])
                    self._move_rows(parameter, rows, leaf.grad, settings)
        self._move({**group, "params": others})

    def _move(self, group: dict[str, Any]) -> None:
        super()._step(group)

    @abstractmethod
    def _move_rows(self, table: nn.Parameter, rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
        """In place, given the gradient of these rows."""


class LazyAdam(RowOptimizer):
    """Adam; of a node table, a row's moments and its own count of steps move where a step touched it, and stay else."""

    def _move_rows(self, table: nn.Parameter, rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
        state = self.state[table]
        if not state:
            state |= {"exp_avg": zeros_beside(table), "exp_avg_sq": zeros_beside(table)}
            state["step"] = table.new_zeros(len(table), dtype=torch.float32)
        kernels_for(table).lazy_adam_rows((table, *state.values()), rows, gradient, settings)


class RowAdagrad(RowOptimizer):
    """Adagrad (Duchi et al. 2011), a ← a + g²,  w ← w − lr · g / (√a + eps); of a node table, a is one number a row, to
    which the mean of g² over the row is added: a table of any width costs one number a row beside itself.
    """

    def _move(self, group: dict[str, Any]) -> None:
        for parameter in group["params"]:
            if parameter.grad is not None:
                gradient = parameter.grad.add(parameter, alpha=group["weight_decay"])
                total = self._total(parameter, parameter.shape).addcmul_(gradient, gradient)
                parameter.sub_(group["lr"] * gradient / (total.sqrt() + group["eps"]))

    def _move_rows(self, table: nn.Parameter, rows: Tensor, gradient: Tensor, settings: AdamSettings) -> None:
        tables = table, self._total(table, table.shape[:1])
        kernels_for(table).adagrad_rows(tables, rows, gradient, settings)

    def _total(self, parameter: Tensor, shape: Sequence[int]) -> Tensor:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["sum"] = parameter.new_zeros(*shape)
        return state["sum"]
