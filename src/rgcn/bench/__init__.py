"""`rgcn bench`: compare our training step with that of PyG, and with the least time the machine allows.

It needs PyTorch and NumPy only (`python -m rgcn.bench`), so that it runs on machines without the other dependencies;
data sets by name and plots need more.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from rgcn.errors import ConfigError

MODELS = ("rgcn", "e-rgcn")
PEERS = {"fast": "FastRGCNConv", "plain": "RGCNConv"}


@dataclass
class BenchPlan:
    """What to measure.

    Attributes:
        graphs: Data sets (aifb, mutag, ...), bgs-shaped, am-shaped, am-full-shaped, random-N with N random edges, .npz
            files, or folders of saved graphs. Default: aifb and mutag, or world if they are not available.
        model: rgcn or e-rgcn. Default: both. Repeatable.
        device: cpu, cuda, cuda:N or auto. Default: cpu, and cuda if available. Repeatable.
        peer: fast (FastRGCNConv), plain (RGCNConv) or none. Default: both. Repeatable.
        steps: Steps to time in each round; fewer if they are slow.
        rounds: Rounds of each side; the best one counts.
        budget: Seconds for the timed steps of one measurement.
        hidden: Width of rgcn's hidden states.
        bases: Number of rgcn's basis matrices; 0 for full matrices.
        json: Also write all numbers to this file.
        plot: Also plot the step times: FILE.svg, .pdf or .png.
    """

    panel: ClassVar[str] = "Benchmark"  # in the help
    graphs: list[str] | None = None
    model: list[str] | None = None
    device: list[str] | None = None
    peer: list[str] | None = None
    steps: int = 20
    rounds: int = 3
    budget: float = 20.0
    hidden: int | None = None
    bases: int | None = None
    json: Path | None = None
    plot: Path | None = None

    def __post_init__(self) -> None:
        """Check names and numbers."""
        for kind, names, known in (("model", self.model, MODELS), ("peer", self.peer, (*PEERS, "none"))):
            for name in names or ():
                if name not in known:
                    raise ConfigError(f"unknown {kind} {name!r}: choose from {', '.join(known)}")
        for name in ("steps", "rounds", "budget", "hidden", "bases"):
            value = getattr(self, name)
            if not (value is None or 0 < value < float("inf") or (name == "bases" and value == 0)):
                raise ConfigError(f"{name} must be positive and finite, not {value}")
