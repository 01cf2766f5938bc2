"""Whether the data a run was trained on are still what they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rgcn.config import DataConfig
from rgcn.data.catalog import CATALOG
from rgcn.errors import DataError
from rgcn.runs.assembly import load_data
from rgcn.runs.folder import RunFolder, stamps_of


def refuse_changed_data(run: RunFolder) -> None:
    """Raise where the run's data are there, and are other data now.

    Files that look untouched (size and time of change) are taken to be so; others are read again, and what they hold
    is compared. Data sets of the registry are checked whenever they are read and need no second look. Data that are
    gone cannot contradict: the model has its copy of the graph.
    """
    about, data = run.about(), run.config().data
    if _untouched(about["data"].get("files"), data) or not _can_be_read(data):
        return
    try:
        now = load_data(data)
    except DataError as error:
        raise DataError(
            f"the data of {run.path} have changed since it was trained, and can no longer be read: {error}\nPut them "
            "back, or ask the model about the graph it knew with --accept-changed-data"
        ) from error
    if now.fingerprint != about["data"]["fingerprint"]:
        then = about["data"]
        raise DataError(
            f"the data of {run.path} have changed since it was trained: {data.title} had {then['nodes']:,} nodes and "
            f"{then['triples']:,} triples, now it has {now.num_nodes:,} and {len(now):,} (fingerprints differ). Train "
            "anew, or ask the model about the graph it knew with --accept-changed-data"
        )


def _can_be_read(data: DataConfig) -> bool:
    if data.dataset is not None:
        known = CATALOG.get(data.dataset.lower())
        return known is not None and known.embedded
    return all(Path(source).exists() for source in data.source_paths())


def _untouched(then: list[dict[str, Any]] | None, data: DataConfig) -> bool:
    return bool(then) and then == stamps_of(data)
