"""Reports to Weights & Biases; with WANDB_MODE=offline they stay in the run's folder until `wandb sync`."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rgcn.extras import import_extra
from rgcn.runs.tracking import RunTracker, Value, by_split, cannot_start, remember_id, remembered_id

EXIT_CODE = {"finished": 0, "interrupted": 255, "failed": 1}  # wandb shows 255 as killed


class WandbTracker(RunTracker):
    """A run of the project "rgcn" (or WANDB_PROJECT), which a resumed training goes on with."""

    extra = "wandb"

    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], from_step: int) -> None:
        wandb = import_extra("wandb", "wandb")
        run_id = remembered_id(folder, "wandb") or uuid.uuid4().hex[:12]
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT") or "rgcn",
                name=name,
                id=run_id,
                resume="allow",
                dir=str(folder),
                config=dict(config),
                # Silent, and hands off our output: --json prints one document and nothing else.
                settings=wandb.Settings(silent=True, console="off"),
            )
        except Exception as error:
            raise cannot_start("wandb", error, "run `wandb login`, or set WANDB_MODE=offline") from error
        remember_id(folder, "wandb", run_id)

    def report(self, step: int, values: Mapping[str, Value]) -> None:
        self._run.log({key: value for key, value in values.items() if value is not None}, step=step)

    def finish(self, metrics: Mapping[str, Mapping[str, float]]) -> None:
        self._run.summary.update(by_split(metrics))

    def close(self, outcome: str) -> None:
        self._run.finish(exit_code=EXIT_CODE.get(outcome, 1))
