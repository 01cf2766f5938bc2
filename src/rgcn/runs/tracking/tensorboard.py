"""Reports for TensorBoard: `tensorboard --logdir runs` shows every run under a folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rgcn.extras import import_extra
from rgcn.runs.tracking import RunTracker, Value, by_split

FLUSH_SECONDS = 10


class TensorBoardTracker(RunTracker):
    """Event files in FOLDER/tensorboard: a curve for each value, the configuration as text."""

    extra = "tensorboard"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        import_extra("tensorboard", "tensorboard")
        writer = import_extra("tensorboard", "tensorboard", "torch.utils.tensorboard").SummaryWriter
        target = folder / "tensorboard"
        earlier = target.is_dir() and any(target.iterdir())
        # A run that goes on writes the steps after its checkpoint again: the first ones must not be shown twice.
        self._writer = writer(
            str(target), purge_step=from_step + 1 if earlier else None, flush_secs=FLUSH_SECONDS, max_queue=1000
        )
        self._step = from_step
        text = yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # a code block, in Markdown
        self._writer.add_text("configuration", indented, from_step)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._step = step
        for key, value in values.items():
            if value is not None and key != "number":
                self._writer.add_scalar(key, value, step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        for key, value in by_split(metrics).items():
            self._writer.add_scalar(key, value, self._step)

    def close(self, outcome: str) -> None:
        self._writer.add_text("outcome", outcome, self._step)
        self._writer.close()
