"""Building a network whose sizes a file states: no larger than the file that holds its weights."""

from math import prod
from pathlib import Path
from typing import Any

from torch.overrides import TorchFunctionMode

from rgcn.errors import DataError
from rgcn.system.formatting import memory

MAKING = {"empty", "full", "ones", "rand", "randn", "zeros"}
DRAWING = {"uniform_", "normal_", "mul_"}
LEAST_NUMBERS = 1 << 26  # what a small model may make; a large one makes a number for each byte of its files, too
MOST_TENSORS = 10_000  # a network of many layers makes hundreds


class WithinBounds(TorchFunctionMode):
    """Refuses to make tensors that a model in this folder cannot need, before their memory is taken.

    Every number of a network is in its file of weights, and what is made on the way is of a like size. So settings that
    ask for far more are not the model's own. Nor is anything drawn.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        stored = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        self.folder, self.numbers_left, self.tensors_left = folder, LEAST_NUMBERS + stored, MOST_TENSORS

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name in DRAWING:  # the weights are about to be read: memory that is never written to takes none
            return args[0]
        if name.removeprefix("new_") in MAKING:
            size = kwargs.get("size") or args[1 if name.startswith("new_") else 0 :]
            size = size[0] if size and isinstance(size[0], (tuple, list)) else size
            wanted = prod(number for number in size if isinstance(number, int))
            if wanted > self.numbers_left or not self.tensors_left:
                raise DataError(
                    f"{self.folder}: damaged, or not ours: its settings ask for a network far larger than its weights"
                    + (f", with a table of {memory(4 * wanted)}" if self.tensors_left else "")
                )
            self.numbers_left, self.tensors_left = self.numbers_left - wanted, self.tensors_left - 1
        return func(*args, **kwargs)
