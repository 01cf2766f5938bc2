"""The device that a model is trained on."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rgcn.errors import ConfigError
from rgcn.placement import current


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name != "cpu":
        current().check_device(name)
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, but PyTorch sees no GPU here; use cpu or auto")
    return torch.device(name)


def on_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(np.array(array)).to(device)
