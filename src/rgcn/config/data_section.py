"""The section `data`: which graph to learn from, and how its files are read."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from rgcn.axis_tables import READERS
from rgcn.config.on_axis import OnAxis
from rgcn.config.section import Section, impossible


class DataConfig(Section):
    """Which graph to learn from."""

    dataset: str | None = Field(None, description="Name of a data set of the registry (see `rgcn data list`).")
    path: str | None = Field(None, description="A file or folder of triples, instead of a data set.")
    labels: str | dict[str, str] | None = Field(
        None, description="File of labels for `path`: one file, or one for each of train, valid, test."
    )
    labels_from: str | None = Field(
        None, description="A relation of the graph whose objects are the classes; it is then removed from the graph."
    )
    inverse: str | None = Field(None, description="The inverse of `labels_from`, which would give the answer away.")
    features: str | None = Field(None, description="Table of node names and their numbers, for `path`.")
    format: Annotated[str, OnAxis(READERS, closed=False)] | None = Field(
        None, description="Format of `path` where its name does not tell, or the reader to use: package.module:Class."
    )
    columns: list[str | int] | None = Field(
        None, description="Subject, relation and object in a table: names, or positions from 0."
    )
    weight: str | int | None = Field(None, description="Column of edge weights in a table.")
    skip_bad_lines: bool = Field(False, description="Count malformed lines instead of stopping at the first.")
    prune: Annotated[bool, Field(strict=True)] | Annotated[int, Field(strict=True, ge=1)] = Field(
        False,
        description="Node classification: keep only what lies within so many hops of a labelled node; true: as many "
        "as the model has layers. Changes no prediction for labelled nodes; nodes further away can no longer be asked "
        "for.",
    )

    @impossible("dataset", "path")
    def _one_source(self) -> str | None:
        if (self.dataset is None) == (self.path is None):
            return "give either `dataset` or `path`, and not both"
        return None

    @impossible(
        "labels", "labels_from", "inverse", "features", "format", "columns", "weight", "skip_bad_lines", "dataset"
    )
    def _reading_goes_with_path(self) -> str | None:
        reading = self.reading_options()
        if self.dataset is not None and reading:
            return f"`{'`, `'.join(reading)}` goes with `path`, not with `dataset`: remove it, or give `path` instead"
        return None

    @impossible("labels_from", "labels")
    def _one_source_of_labels(self) -> str | None:
        if self.labels is not None and self.labels_from is not None:
            return "labels come from files (`labels`) or from a relation (`labels_from`): remove one of the two"
        return None

    @impossible("labels")
    def _labels_by_split(self) -> str | None:
        known = ("train", "valid", "dev", "test")
        unknown = [split for split in self.labels if split not in known] if isinstance(self.labels, dict) else []
        return f"unknown split {unknown[0]!r}: there are train, valid (or dev) and test" if unknown else None

    @impossible("inverse", "labels_from")
    def _inverse_of_labels(self) -> str | None:
        if self.inverse is not None and self.labels_from is None:
            return "the inverse of `labels_from`, which is not given: give it, or remove this"
        return None

    @impossible("columns")
    def _three_columns(self) -> str | None:
        if self.columns is not None and len(self.columns) != 3:
            return f"takes three, subject, relation and object; these are {len(self.columns)}"
        return None

    def reading_options(self) -> dict[str, Any]:
        """What is said about reading `path`, as arguments of `rgcn.read`."""
        return self.model_dump(exclude={"dataset", "path", "prune"}, exclude_defaults=True)

    def source_paths(self) -> list[str]:
        """The files and folders that are read; none for a data set of the registry."""
        labels = self.labels.values() if isinstance(self.labels, dict) else [self.labels]
        return [source for source in (self.path, *labels, self.features) if source is not None]

    @property
    def title(self) -> str:
        return self.dataset or str(self.path)
