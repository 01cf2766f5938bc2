"""`read`: a knowledge graph from files of any known format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rgcn.data.attributes import AttributeSource, attribute_source, with_features
from rgcn.data.files import BadLines, ByteSource, PathLike, SourceFile, bare_name, broken_link, find_files
from rgcn.data.graph_builder import STATE, Building, expected_bytes
from rgcn.data.graph_store import is_stored_graph, load_graph, save_graph, write_rest
from rgcn.data.node_tables import LabelFiles, LabelRelation
from rgcn.data.rdf import node_kinds
from rgcn.data.readers import Reading, TripleReader
from rgcn.data.tables import Column, TripleColumns
from rgcn.data.triple_collector import TripleCollector
from rgcn.errors import ConfigError, DataError, close_matches
from rgcn.graph import KnowledgeGraph
from rgcn.plugins import READERS
from rgcn.system.progress import progress

LARGE = 64 << 20  # bytes of text: more are worth loops that take a while to load, and seconds to compile once


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How the files of a graph are read: the keyword arguments of `rgcn.read`.

    labels          table of classes (`LabelFiles` for more say), or {"train": file, "test": file}
    labels_from     relation whose objects become the classes (`LabelRelation` for more say); it leaves the graph. All
                    are training labels: a run holds out a share of them for test (`data.test`), and says how many
    inverse         relations that say the same as `labels_from`, above all its inverse: they leave the graph too, for
                    they would give the answer away
    features        table of a node's name and its numbers, or an `rgcn.data.attributes.AttributeSource`
    format          nt, nq, ttl, trig, rdf, jsonld, tsv, csv or parquet, where the file's name does not tell; or a
                    reader of your own (`rgcn.data.readers`), a class or "package.module:Class"
    columns         subject, relation and object in a table, by name or by position (from 0); None: as its header names
                    them (subject,relation,object; source,target,type; s,p,o; ...), else the first three
    weight          column of edge weights; None: one that is called weight beside named columns. Without weights a
                    triple that stands twice is one
    time            column that says when each triple was true, numbers or dates: `triple_times`, for `split`
    header          whether a table's first line names the columns; None: it does if `columns` are names, or if it
                    reads so and nothing below contradicts. If the rows may be things with two properties rather than
                    triples, an error shows both readings; `columns` or `header` decides
    literals        "keep" or "drop" triples whose object is a literal
    skip_bad_lines  count malformed lines in the metadata instead of stopping at the first
    missing_labels  a labelled node not in the graph: "error", "add" it or "drop" the label
    label_columns   node, class and perhaps split in a table of classes, by name or by position
    label_header    whether that table's first line names its columns; None: if it reads so
    multiple        a node with several classes by `labels_from`: "error", or take the "first"
    out             a new folder to build the graph in, out of memory: for graphs of any size. Stopped, the same call
                    goes on where it was
    show_progress   None: if stderr is a terminal
    """

    labels: PathLike | Mapping[str, PathLike] | LabelFiles | None = None
    labels_from: str | LabelRelation | None = None
    inverse: str | Sequence[str] | None = None
    features: PathLike | AttributeSource | None = None
    format: str | type[TripleReader] | None = None
    columns: Sequence[Column] | None = None
    weight: Column | None = None
    time: Column | None = None
    header: bool | None = None
    literals: str = "keep"
    skip_bad_lines: bool = False
    missing_labels: str | None = None
    label_columns: Sequence[Column] | None = None
    label_header: bool | None = None
    multiple: str | None = None
    out: PathLike | None = None
    show_progress: bool | None = None

    def __post_init__(self) -> None:
        if self.literals not in ("keep", "drop"):
            raise DataError(f'literals can be "keep" or "drop", not {self.literals!r}')
        if self.columns is not None and (isinstance(self.columns, str) or len(self.columns) != 3):
            raise DataError("columns= takes three: subject, relation and object")
        if self.label_columns is not None and (
            isinstance(self.label_columns, str) or len(self.label_columns) not in (2, 3)
        ):
            raise DataError("label_columns= takes two or three: node, class and split")
        _ = self.label_source

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> ReadOptions:
        """The options that were given by name; ConfigError where there is none of a name.

        >>> ReadOptions.of({"label": "people.tsv"})
        Traceback (most recent call last):
        rgcn.errors.ConfigError: read() has no option 'label'; did you mean 'labels'?
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                close = close_matches(name, known, limit=1)
                hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known)}"
                raise ConfigError(f"read() has no option {name!r}; {hint}")
        return cls(**given)

    @cached_property
    def label_source(self) -> LabelFiles | LabelRelation | None:
        """Where classes come from; DataError where what is said of them does not go together."""
        columns = dict(zip(("node", "label", "split"), self.label_columns or (), strict=False))
        of_files = _given(**columns, header=self.label_header, missing=self.missing_labels)
        of_relation = _given(inverse=self.inverse, multiple=self.multiple)
        if self.labels is not None and self.labels_from is not None:
            raise DataError("labels come from files (labels=) or from a relation (labels_from=), not from both")
        if of_relation and self.labels_from is None:
            raise DataError(f"{' and '.join(of_relation)} go with labels_from=, which is not given")
        if of_files and self.labels is None:
            raise DataError("label_columns=, label_header= and missing_labels= go with labels=, which is not given")
        if self.labels_from is not None:
            relation = self.labels_from
            return replace(LabelRelation(relation) if isinstance(relation, str) else relation, **of_relation)
        if self.labels is None:
            return None
        return replace(self.labels if isinstance(self.labels, LabelFiles) else LabelFiles(self.labels), **of_files)

    @cached_property
    def attributes(self) -> AttributeSource | None:
        """Where features come from."""
        return None if self.features is None else attribute_source(self.features)

    @property
    def triple_columns(self) -> TripleColumns:
        """Where in a table the triples are."""
        columns = None if self.columns is None else tuple(self.columns)
        return TripleColumns(columns, self.weight, self.header, self.time)

    @property
    def files_beside(self) -> list[Path]:
        """Files that hold no triples."""
        labels = self.label_source.paths().values() if isinstance(self.label_source, LabelFiles) else ()
        return [*labels, *([] if self.attributes is None else [self.attributes.path])]

    @property
    def say_how_triples_are_read(self) -> bool:
        """Whether any of them is about the files of triples, and not only about what stands beside."""
        plain = self.triple_columns == TripleColumns() and self.literals == "keep"
        return not plain or bool(self.format or self.skip_bad_lines or self.out)

    def described(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """The graph with its classes and features."""
        graph = graph if self.label_source is None else self.label_source.added_to(graph)
        return graph if self.attributes is None else with_features(graph, self.attributes)


def read(path: PathLike | Mapping[str, PathLike], **options: Any) -> KnowledgeGraph:
    """Read a knowledge graph: RDF or a table of triples, one file or a folder, plain or compressed.

    Nodes and relations are numbered by first appearance, so the same files always give the same ids. `metadata` says
    what was read, and how many duplicates and bad lines were left out. Nothing is fetched from the network.

    Args:
        path: A file; a folder, of which all readable files are taken in the order of their names, or, if one is called
            train, the splits train, valid (or dev) and test; or {"train": file, "valid": file, ...}; or a folder that
            `out` or `rgcn data build` made, which opens at once.
        options: See `ReadOptions`: labels, labels_from, inverse, multiple, missing_labels, label_columns,
            label_header, features, format, columns, weight, time, header, literals, skip_bad_lines, out, show_progress.

    Raises:
        DataError: The files are missing, malformed or unclear; the message says what to do.
        ConfigError: There is no such option.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "graph.tsv").write_text("Bern\\tcapital_of\\tSwitzerland\\nOslo\\tcapital_of\\tNorway\\n")
    ...     _ = Path(folder, "people.tsv").write_text("Bern\\tfew\\nOslo\\tmany\\n")
    ...     kg = read(Path(folder, "graph.tsv"), labels=Path(folder, "people.tsv"))
    >>> kg
    KnowledgeGraph('graph', 4 nodes, 1 relation, 2 triples, 2 labels in 2 classes)
    >>> kg.triples.tolist()
    [[0, 0, 1], [2, 0, 3]]
    """
    chosen = ReadOptions.of(options)
    if not isinstance(path, Mapping) and is_stored_graph(Path(path)):
        if chosen.say_how_triples_are_read:
            raise DataError(f"{path} is a built graph: how its files are read was said when it was built")
        return chosen.described(load_graph(Path(path)))
    if not isinstance(path, Mapping) and (Path(path) / STATE).is_file():
        raise DataError(f"{path}: a graph was begun here and is not whole; the same `rgcn data build` goes on with it")
    files = TripleFiles.found(path, chosen)
    return files.in_memory() if chosen.out is None else files.on_disk(Path(chosen.out))


@dataclass(frozen=True)
class TripleFiles:
    """The files of one graph: the graph's name, the files in their order, and how they are read."""

    name: str
    files: Sequence[SourceFile]
    options: ReadOptions

    @classmethod
    def found(cls, path: PathLike | Mapping[str, PathLike], options: ReadOptions) -> TripleFiles:
        """What lies at a path."""
        format = options.format
        if format is not None and (not isinstance(format, str) or ":" in format):
            # a reader that is named here is one that the caller wants
            format = READERS.name_of(READERS.find(format, trusted=True))
        files = find_files(path, format, leave_out=options.files_beside)
        place = Path(next(iter(path.values()))).parent if isinstance(path, Mapping) else Path(path)
        return cls(place.name if place.is_dir() else bare_name(place), files, options)

    def in_memory(self) -> KnowledgeGraph:
        """The graph as arrays in memory."""
        collector = TripleCollector(self._large)
        known = self._collect(collector)
        graph, duplicates = collector.graph()
        metadata = {**known["metadata"], "duplicates": duplicates}
        kinds = node_kinds(graph.nodes) if known["is_rdf"] else None
        return self.options.described(replace(graph, node_kinds=kinds, name=self.name, metadata=metadata))

    def on_disk(self, folder: Path) -> KnowledgeGraph:
        """The graph, built in a folder; a building that was stopped there goes on."""
        if (link := broken_link(folder)) is not None:
            raise DataError(f"{link}: no graph can be built there")
        options, files = self.options, list(self.files)
        stamps = [(str(file.path), file.format, file.split, file.path.stat().st_mtime_ns) for file in files]
        how = (stamps, options.triple_columns, options.literals, options.skip_bad_lines)
        building = Building(folder, repr(how))
        with building.writing(files):
            graph = building.built(self._collect, self._large, options.show_progress)
            finished = options.described(graph)
            if finished.nodes is graph.nodes and len(finished) == len(graph):
                write_rest(finished, folder)
            else:  # its labels changed it: all is written anew, over what a building would go on with
                building.begin_anew()
                save_graph(finished, folder)
            building.finish()
        return load_graph(folder)

    @property
    def _large(self) -> bool:
        return expected_bytes(list(self.files)) >= LARGE

    def _collect(self, collector: TripleCollector) -> dict[str, Any]:
        """Read all files; what is known of them then (`Building.built`)."""
        options, bad_lines = self.options, BadLines(self.options.skip_bad_lines)
        columns, keep_literals = options.triple_columns, options.literals == "keep"
        size = sum(file.path.stat().st_size for file in self.files)
        with progress("reading", size, "bytes", show=options.show_progress) as meter:
            for number, file in enumerate(self.files):
                meter.describe(f"reading {file.path.name}")
                prefix = f"f{number}_" if len(self.files) > 1 else ""
                with ByteSource(file.path, meter.advance) as source:
                    reading = Reading(file, source, collector, bad_lines, columns, keep_literals, prefix)
                    READERS.find(file.format)().read(reading)
        if not collector.count:
            words = f"no triples in {', '.join(str(file.path) for file in self.files)}"
            skipped = (
                f" ({bad_lines.count} bad lines were skipped, e.g. {bad_lines.examples[0]})" if bad_lines.count else ""
            )
            raise DataError(words + skipped)
        formats = list(dict.fromkeys(file.format for file in self.files))
        metadata = {
            "source": [file.path.name for file in self.files],
            "format": formats[0] if len(formats) == 1 else formats,
            "skipped_lines": bad_lines.count,
            **_given(skipped_examples=bad_lines.examples or None, prefixes=collector.prefixes or None),
        }
        is_rdf = any(READERS.find(format).is_rdf for format in formats)
        return {"name": self.name, "metadata": metadata, "is_rdf": is_rdf}


def _given(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}
