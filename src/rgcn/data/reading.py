"""Read a knowledge graph from files of any known format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rgcn.data import files as paths
from rgcn.data.attributes import AttributeSource, attribute_source, with_features
from rgcn.data.files import BadLines, ByteSource, PathLike, SourceFile
from rgcn.data.graph_builder import STATE_FILE, GraphBuild
from rgcn.data.graph_store import is_stored_graph, load_graph, save_graph, write_remaining_parts
from rgcn.data.node_tables import LabelFiles, LabelRelation
from rgcn.data.rdf import node_kinds
from rgcn.data.readers import Reading, TripleReader
from rgcn.data.tables import Column, TripleColumns
from rgcn.data.triple_collector import TripleCollector
from rgcn.errors import ConfigError, DataError, close_matches
from rgcn.graph import KnowledgeGraph
from rgcn.plugins import READERS
from rgcn.system.progress import progress

# Text that is worth compiled loops, which take a while to load, and once seconds to compile.
MIN_LARGE_BYTES = 64 << 20


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How the files of a graph are read: the keyword arguments of `rgcn.read`.

    Attributes:
        labels: A table of classes, or {"train": file, "test": file}; `LabelFiles` has more options.
        labels_from: A relation whose objects become the classes and which leaves the graph; `LabelRelation` has more
            options. All labels are training labels: a run holds out a share of them for test (`data.test`).
        inverse: Relations that say the same as `labels_from`, above all its inverse. They leave the graph too, because
            they would give the labels away.
        features: A table with a node's name and its numbers in each row, or an `rgcn.data.attributes.AttributeSource`.
        format: nt, nq, ttl, trig, rdf, jsonld, tsv, csv or parquet, if the file's name does not tell; or a reader of
            your own (`rgcn.data.readers`), a class or "package.module:Class".
        columns: Subject, relation and object in a table, by name or by position (from 0). None: as its header names
            them (subject,relation,object; source,target,type; s,p,o; ...), else the first three.
        weight: The column of edge weights. None: the one called weight, if the header names the columns. Without
            weights, duplicates of a triple are removed.
        time: The column with the time of each triple, numbers or dates; it becomes `triple_times`, for `split`.
        header: Whether a table's first line names the columns. None: if `columns` are names, or if the line looks so
            and nothing below contradicts. If the rows may be things with two properties rather than triples, an error
            shows both readings; `columns` or `header` decides.
        literals: "keep" or "drop" triples whose object is a literal.
        skip_bad_lines: Whether to count malformed lines in the metadata instead of stopping at the first.
        missing_labels: What to do with a labeled node that is not in the graph: "error", "add" it or "drop" the label.
        label_columns: Node, class and optionally split in a table of classes, by name or by position.
        label_header: Whether that table's first line names its columns. None: if it looks so.
        multiple: What to do with a node that has several classes by `labels_from`: "error", or take the "first".
        out: A new folder in which to build the graph on disk, for graphs of any size. If the build is stopped, the
            same call continues it.
        show_progress: Whether to draw progress bars. None: if stderr is a terminal.
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
            raise DataError("columns= takes three columns: subject, relation and object")
        labels = self.label_columns
        if labels is not None and (isinstance(labels, str) or len(labels) not in (2, 3)):
            raise DataError("label_columns= takes two or three columns: node, class and split")
        _ = self.label_source

    @classmethod
    def from_keywords(cls, options: Mapping[str, Any]) -> ReadOptions:
        """Return the options with these names and values.

        Raises:
            ConfigError: There is no option of a name.
            DataError: A value is not allowed, or options contradict each other.

        >>> ReadOptions.from_keywords({"label": "people.tsv"})
        Traceback (most recent call last):
        rgcn.errors.ConfigError: read() has no option 'label'; did you mean 'labels'?
        """
        names = [field.name for field in fields(cls)]
        if unknown := next((name for name in options if name not in names), None):
            close = close_matches(unknown, names, limit=1)
            hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(names)}"
            raise ConfigError(f"read() has no option {unknown!r}; {hint}")
        return cls(**options)

    @cached_property
    def label_source(self) -> LabelFiles | LabelRelation | None:
        """Where classes come from; DataError if the options contradict each other."""
        columns = dict(zip(("node", "label", "split"), self.label_columns or (), strict=False))
        file_options = _without_none(**columns, header=self.label_header, missing=self.missing_labels)
        relation_options = _without_none(inverse=self.inverse, multiple=self.multiple)
        files, relation = self.labels, self.labels_from
        if files is not None and relation is not None:
            raise DataError("labels= and labels_from= are both set: take labels from files or from a relation")
        if relation_options and relation is None:
            raise DataError(f"{' and '.join(relation_options)} go with labels_from=, which is not set")
        if file_options and files is None:
            raise DataError("label_columns=, label_header= and missing_labels= go with labels=, which is not set")
        if relation is not None:
            return replace(LabelRelation(relation) if isinstance(relation, str) else relation, **relation_options)
        source = files if files is None or isinstance(files, LabelFiles) else LabelFiles(files)
        return None if source is None else replace(source, **file_options)

    @cached_property
    def attributes(self) -> AttributeSource | None:
        """Where features come from."""
        return None if self.features is None else attribute_source(self.features)

    @property
    def triple_columns(self) -> TripleColumns:
        """The columns of a table that hold triples."""
        columns = None if self.columns is None else tuple(self.columns)
        return TripleColumns(columns, self.weight, self.header, self.time)

    def add_labels_and_features(self, graph: KnowledgeGraph) -> KnowledgeGraph:
        """Return the graph with labels and features."""
        graph = graph if self.label_source is None else self.label_source.add_to(graph)
        return graph if self.attributes is None else with_features(graph, self.attributes)


def read(path: PathLike | Mapping[str, PathLike], **options: Any) -> KnowledgeGraph:
    r"""Read a knowledge graph from RDF or a table of triples, one file or a folder, compressed or not.

    Nodes and relations are numbered by first appearance, so the same files always give the same ids. `metadata` says
    what was read, and how many duplicates and bad lines were left out. Nothing is fetched from the network.

    Args:
        path: A file; a mapping {"train": file, "valid": file, ...}; a folder that `out` or `rgcn data build` made; or
            another folder. If that has a file called train, its files are the splits train, valid (or dev) and test;
            else all its readable files are read in the order of their names.
        **options: See `ReadOptions`: labels, labels_from, inverse, multiple, missing_labels, label_columns,
            label_header, features, format, columns, weight, time, header, literals, skip_bad_lines, out, show_progress.

    Raises:
        DataError: The files are missing, malformed or ambiguous; the message says what to do.
        ConfigError: There is no such option.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "graph.tsv").write_text("Bern\tcapital_of\tSwitzerland\nOslo\tcapital_of\tNorway\n")
    ...     _ = Path(folder, "people.tsv").write_text("Bern\tfew\nOslo\tmany\n")
    ...     kg = read(Path(folder, "graph.tsv"), labels=Path(folder, "people.tsv"))
    >>> kg
    KnowledgeGraph('graph', 4 nodes, 1 relation, 2 triples, 2 labels in 2 classes)
    >>> kg.triples.tolist()
    [[0, 0, 1], [2, 0, 3]]
    """
    settings = ReadOptions.from_keywords(options)
    if not isinstance(path, Mapping) and is_stored_graph(Path(path)):
        is_default = settings.triple_columns == TripleColumns() and settings.literals == "keep"
        if not is_default or settings.format or settings.skip_bad_lines or settings.out:
            raise DataError(f"{path} is a built graph, whose files were read already: leave options for files out")
        return settings.add_labels_and_features(load_graph(Path(path)))
    if not isinstance(path, Mapping) and (Path(path) / STATE_FILE).is_file():
        raise DataError(f"{path}: the graph in this folder is not complete; the same `rgcn data build` continues it")
    files = TripleFiles.at(path, settings)
    return files.read_into_memory() if settings.out is None else files.build_on_disk(Path(settings.out))


@dataclass(frozen=True)
class TripleFiles:
    """The files of a graph.

    Attributes:
        name: The graph's name.
        files: The files in reading order.
        options: How they are read.
    """

    name: str
    files: list[SourceFile]
    options: ReadOptions

    @classmethod
    def at(cls, path: PathLike | Mapping[str, PathLike], options: ReadOptions) -> TripleFiles:
        """Return the files at a path."""
        format = options.format
        if format is not None and (not isinstance(format, str) or ":" in format):
            # The user named this reader, so its module may be imported.
            format = READERS.name_of(READERS.resolve(format, trusted=True))
        others = [] if options.attributes is None else [options.attributes.path]
        if isinstance(options.label_source, LabelFiles):
            others += options.label_source.paths().values()
        files = paths.find_files(path, format, exclude=others)
        place = Path(next(iter(path.values()))).parent if isinstance(path, Mapping) else Path(path)
        return cls(place.name if place.is_dir() else paths.bare_name(place), files, options)

    def read_into_memory(self) -> KnowledgeGraph:
        """Return the graph as arrays in memory."""
        collector = TripleCollector(self._is_large)
        state = self._collect(collector)
        graph, duplicates = collector.graph()
        metadata = {**state["metadata"], "duplicates": duplicates}
        kinds = node_kinds(graph.nodes) if state["is_rdf"] else None
        graph = replace(graph, node_kinds=kinds, name=self.name, metadata=metadata)
        return self.options.add_labels_and_features(graph)

    def build_on_disk(self, folder: Path) -> KnowledgeGraph:
        """Build the graph in a folder and open it; a build that was stopped there continues."""
        if link := paths.broken_link(folder):
            raise DataError(f"{link}: no graph can be built there")
        options = self.options
        stamps = [(str(file.path), file.format, file.split, file.path.stat().st_mtime_ns) for file in self.files]
        inputs = (stamps, options.triple_columns, options.literals, options.skip_bad_lines)
        build = GraphBuild(folder, repr(inputs))
        with build.open(self.files):
            graph = build.write_graph(self._collect, self._is_large, options.show_progress)
            labeled = options.add_labels_and_features(graph)
            if labeled.nodes is graph.nodes and len(labeled) == len(graph):
                write_remaining_parts(labeled, folder)
            else:  # the labels changed nodes or triples: everything is overwritten, so the build cannot be continued
                build.forget_progress()
                save_graph(labeled, folder)
            build.finish()
        return load_graph(folder)

    @property
    def _is_large(self) -> bool:
        return paths.expected_bytes(self.files) >= MIN_LARGE_BYTES

    def _collect(self, collector: TripleCollector) -> dict[str, Any]:
        """Read all files; return name, metadata and is_rdf of the graph."""
        options, bad_lines = self.options, BadLines(self.options.skip_bad_lines)
        columns, keep_literals = options.triple_columns, options.literals == "keep"
        size = sum(file.path.stat().st_size for file in self.files)
        with progress("reading", size, "bytes", show=options.show_progress) as meter:
            for number, file in enumerate(self.files):
                meter.set_description(f"reading {file.path.name}")
                prefix = f"f{number}_" if len(self.files) > 1 else ""
                with ByteSource(file.path, meter.advance) as source:
                    reading = Reading(file, source, collector, bad_lines, columns, keep_literals, prefix)
                    READERS.resolve(file.format)().read(reading)
        if not collector.count:
            problem = f"no triples in {', '.join(str(file.path) for file in self.files)}"
            if bad_lines.count:
                problem += f" ({bad_lines.count} bad lines were skipped, e.g. {bad_lines.examples[0]})"
            raise DataError(problem)
        formats = list(dict.fromkeys(file.format for file in self.files))
        metadata = {
            "source": [file.path.name for file in self.files],
            "format": formats[0] if len(formats) == 1 else formats,
            "skipped_lines": bad_lines.count,
            **_without_none(skipped_examples=bad_lines.examples or None, prefixes=collector.prefixes or None),
        }
        is_rdf = any(READERS.resolve(format).is_rdf for format in formats)
        return {"name": self.name, "metadata": metadata, "is_rdf": is_rdf}


def _without_none(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}
