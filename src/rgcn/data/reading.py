"""`read`: a knowledge graph from files of any known format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rgcn.data.files import BadLines, ByteSource, PathLike, SourceFile, bare_name, broken_link, find_files
from rgcn.data.graph_builder import STATE, Building, expected_bytes
from rgcn.data.graph_store import is_stored_graph, load_graph, save_graph, write_rest
from rgcn.data.node_tables import LabelFiles, LabelRelation, with_feature_file
from rgcn.data.rdf import node_kinds
from rgcn.data.readers import Reading, TripleReader
from rgcn.data.tables import Column, TripleColumns
from rgcn.data.triple_collector import TripleCollector
from rgcn.errors import DataError
from rgcn.graph import KnowledgeGraph
from rgcn.plugins import READERS
from rgcn.system.progress import progress

LARGE = 64 << 20  # bytes of text: more are worth loops that take a while to load, and seconds to compile once


def read(
    path: PathLike | Mapping[str, PathLike],
    *,
    labels: PathLike | Mapping[str, PathLike] | LabelFiles | None = None,
    labels_from: str | LabelRelation | None = None,
    inverse: str | Sequence[str] | None = None,
    features: PathLike | None = None,
    format: str | type[TripleReader] | None = None,
    columns: Sequence[Column] | None = None,
    weight: Column | None = None,
    time: Column | None = None,
    header: bool | None = None,
    literals: str = "keep",
    skip_bad_lines: bool = False,
    missing_labels: str | None = None,
    label_columns: Sequence[Column] | None = None,
    label_header: bool | None = None,
    multiple: str | None = None,
    out: PathLike | None = None,
    show_progress: bool | None = None,
) -> KnowledgeGraph:
    """Read a knowledge graph: RDF or a table of triples, one file or a folder, plain or compressed.

    path            a file; a folder, of which all readable files are taken in the order of their names, or, if one is
                    called train, the splits train, valid (or dev) and test; or {"train": file, "valid": file, ...};
                    or a folder that `out` or `rgcn data build` made, which opens at once
    labels          table of classes (`LabelFiles` for more say), or {"train": file, "test": file}
    labels_from     relation whose objects become the classes (`LabelRelation` for more say); it leaves the graph. All
                    are training labels: a run holds out a share of them for test (`data.test`), and says how many
    inverse         relations that say the same as `labels_from`, above all its inverse: they leave the graph too, for
                    they would give the answer away
    features        table of a node's name and its numbers
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

    Nodes and relations are numbered by first appearance, so the same files always give the same ids. `metadata` says
    what was read, and how many duplicates and bad lines were left out. Nothing is fetched from the network.

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
    label_files, label_relation = _label_sources(
        labels if labels is None or isinstance(labels, LabelFiles) else LabelFiles(labels),
        LabelRelation(labels_from) if isinstance(labels_from, str) else labels_from,
        label_columns,
        _given(header=label_header, missing=missing_labels),
        _given(inverse=inverse, multiple=multiple),
    )
    if literals not in ("keep", "drop"):
        raise DataError(f'literals can be "keep" or "drop", not {literals!r}')
    if columns is not None and (isinstance(columns, str) or len(columns) != 3):
        raise DataError("columns= takes three: subject, relation and object")
    triple_columns = TripleColumns(None if columns is None else tuple(columns), weight, header, time)
    beside = [] if label_files is None else list(label_files.paths().values())
    labelled = label_files or label_relation

    def described(graph: KnowledgeGraph) -> KnowledgeGraph:
        graph = graph if labelled is None else labelled.added_to(graph)
        return graph if features is None else with_feature_file(graph, features)

    if not isinstance(path, Mapping) and is_stored_graph(Path(path)):
        if triple_columns != TripleColumns() or format or literals != "keep" or skip_bad_lines or out:
            raise DataError(f"{path} is a built graph: how its files are read was said when it was built")
        return described(load_graph(Path(path)))
    if not isinstance(path, Mapping) and (Path(path) / STATE).is_file():
        raise DataError(f"{path}: a graph was begun here and is not whole; the same `rgcn data build` goes on with it")
    if isinstance(format, str) and ":" in format:  # a reader that is named here is one that the caller wants
        format = READERS.find(format, trusted=True)
    format = format if format is None or isinstance(format, str) else READERS.name_of(READERS.find(format))
    files = find_files(path, format, leave_out=beside if features is None else [*beside, Path(features)])
    place = Path(next(iter(path.values()))).parent if isinstance(path, Mapping) else Path(path)
    name = place.name if place.is_dir() else bare_name(place)
    large = expected_bytes(files) >= LARGE

    def collect(collector: TripleCollector) -> dict[str, Any]:
        bad_lines = BadLines(skip_bad_lines)
        size = sum(file.path.stat().st_size for file in files)
        with progress("reading", size, "bytes", show=show_progress) as meter:
            for number, file in enumerate(files):
                meter.describe(f"reading {file.path.name}")
                prefix = f"f{number}_" if len(files) > 1 else ""
                with ByteSource(file.path, meter.advance) as source:
                    reading = Reading(file, source, collector, bad_lines, triple_columns, literals == "keep", prefix)
                    READERS.find(file.format)().read(reading)
        return {"name": name, **_known(collector, bad_lines, files)}

    if out is not None:
        if (link := broken_link(Path(out))) is not None:
            raise DataError(f"{link}: no graph can be built there")
        stamps = [(str(file.path), file.format, file.split, file.path.stat().st_mtime_ns) for file in files]
        building = Building(Path(out), repr((stamps, triple_columns, literals, skip_bad_lines)))
        with building.writing(files):
            graph = building.built(collect, large, show_progress)
            finished = described(graph)
            if finished.nodes is graph.nodes and len(finished) == len(graph):
                write_rest(finished, Path(out), building.hashes)
            else:  # its labels changed it: all is written anew, over what a building would go on with
                building.begin_anew()
                save_graph(finished, Path(out))
            building.finish()
        return load_graph(Path(out))
    collector = TripleCollector(large)
    known = collect(collector)
    graph, duplicates = collector.graph()
    metadata = {**known["metadata"], "duplicates": duplicates}
    kinds = node_kinds(graph.nodes) if known["is_rdf"] else None
    return described(replace(graph, node_kinds=kinds, name=name, metadata=metadata))


def _label_sources(
    files: LabelFiles | None,
    relation: LabelRelation | None,
    columns: Sequence[str | int] | None,
    of_files: dict[str, Any],
    of_relation: dict[str, Any],
) -> tuple[LabelFiles | None, LabelRelation | None]:
    """Where labels come from, with what was said of either; DataError where these do not go together."""
    if columns is not None and (isinstance(columns, str) or len(columns) not in (2, 3)):
        raise DataError("label_columns= takes two or three: node, class and split")
    of_files = {**dict(zip(("node", "label", "split"), columns or (), strict=False)), **of_files}
    if of_relation and relation is None:
        raise DataError(f"{' and '.join(of_relation)} go with labels_from=, which is not given")
    if of_files and files is None:
        raise DataError("label_columns=, label_header= and missing_labels= go with labels=, which is not given")
    if files is not None and relation is not None:
        raise DataError("labels come from files (labels=) or from a relation (labels_from=), not from both")
    return files and replace(files, **of_files), relation and replace(relation, **of_relation)


def _given(**options: Any) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _known(collector: TripleCollector, bad_lines: BadLines, files: list[SourceFile]) -> dict[str, Any]:
    """What is told of the files, once they are read."""
    if not collector.count:
        words = f"no triples in {', '.join(str(file.path) for file in files)}"
        bad = f" ({bad_lines.count} bad lines were skipped, e.g. {bad_lines.examples[0]})" if bad_lines.count else ""
        raise DataError(words + bad)
    formats = list(dict.fromkeys(file.format for file in files))
    names, format = [file.path.name for file in files], formats[0] if len(formats) == 1 else formats
    metadata: dict[str, Any] = {"source": names, "format": format, "skipped_lines": bad_lines.count}
    metadata |= _given(skipped_examples=bad_lines.examples or None, prefixes=collector.prefixes or None)
    return {"metadata": metadata, "is_rdf": any(READERS.find(format).is_rdf for format in formats)}
