"""The operators `rgcn::…` written out in plain operations: for a trace that must run where there is no rgcn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode

from rgcn.kernels.compiled import RUNS
from rgcn.kernels.dispatch import reference_only


class PlainOperations(TorchFunctionMode):
    """Within, whoever traces sees the reference kernels' own operations, and none of ours."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        with reference_only():
            return RUNS.get(func, func)(*args, **(kwargs or {}))
