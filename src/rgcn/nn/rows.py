"""A table of learned rows of which training may touch only a part."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rgcn.kernels import FactoredGradient


class RowTable(nn.Module):
    """Rows [rows, ...] held in two parts: `trained`, a parameter, and `still`, rows no loss ever reaches.

    A row that no training edge touches gets no gradient, and Adam leaves such a row where it began (unless something
    decays it). Holding those rows apart spares the optimizer reading and writing them in every step, and changes no
    value. `position` says where each row is: in the trained part, or after it.
    """

    position: Tensor
    still: Tensor
    factored_gradients: list[FactoredGradient] | None = None
    """Where an optimizer takes this table's gradients as factors (see `rgcn.optim`); None: they are written out."""

    def __init__(self, values: Tensor, trained: Tensor | None = None) -> None:
        """values [rows, ...]: the initial rows; trained bool [rows]: those a loss can reach (None: all)."""
        super().__init__()
        reached = torch.ones(len(values), dtype=torch.bool) if trained is None else trained.cpu()
        # All of them, as a rule: then no copy, which for a large table is most of the memory there is.
        self.trained = nn.Parameter(values.contiguous() if bool(reached.all()) else values[reached])
        self.register_buffer("still", values[~reached].contiguous())
        position = torch.empty(len(values), dtype=torch.int64)
        position[reached] = torch.arange(int(reached.sum()))
        position[~reached] = torch.arange(int(reached.sum()), len(values))
        self.register_buffer("position", position)

    def __len__(self) -> int:
        return self.position.numel()

    @property
    def all_trained(self) -> bool:
        """Whether every row is a parameter; the trained part then holds them in the order they were given."""
        return self.still.shape[0] == 0

    def table_for(self, positions: Tensor) -> Tensor:
        """The rows, in the order of `position`, up to the last one that `positions` needs."""
        if self.all_trained:  # nothing to look up, and on a GPU nothing to wait for
            return self.trained
        if positions.numel() == 0 or int(positions.max()) < len(self.trained):
            return self.trained
        return self.whole()

    def whole(self) -> Tensor:
        """Both parts, in the order of `position`."""
        return torch.cat([self.trained, self.still]) if self.still.shape[0] else self.trained

    def values(self) -> Tensor:
        """All rows, in the order they were given."""
        return self.whole()[self.position]

    def extra_repr(self) -> str:
        return f"{len(self)} rows of {list(self.trained.shape[1:])}, {self.still.shape[0]} of them never trained"
