"""Where tensors live, decided by the configuration and nothing else."""

from __future__ import annotations

import torch

from rgcn.errors import ConfigError


def choose_device(name: str) -> torch.device:
    """The device of a name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(f"device {name!r} was asked for, but PyTorch sees no GPU here; use cpu or auto")
    return torch.device(name)
