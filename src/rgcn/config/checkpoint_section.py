"""The section `checkpoints`: when a run is saved."""

from __future__ import annotations

from pydantic import Field

from rgcn.config.section import Section


class CheckpointConfig(Section):
    """When a run that is kept in a folder is saved, so that it can go on from there."""

    every_minutes: float | None = Field(5.0, gt=0)
    """Save after so many minutes; null: not by the clock."""
    every_steps: int | None = Field(None, ge=1)
    """Save after so many steps (epochs of node classification)."""
    keep_last: int = Field(2, ge=1)
    """How many of the newest checkpoints to keep; the best weights so far are kept in any case."""
