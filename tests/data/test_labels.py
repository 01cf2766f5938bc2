"""Test labels from separate files and from a relation of the graph."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rgcn.config import DataConfig
from rgcn.data.node_tables import LabelFiles, LabelRelation, stratified_split
from rgcn.data.reading import read
from rgcn.errors import DataError, ParseError, UnknownNameError
from rgcn.graph import KnowledgeGraph
from rgcn.runs.assembly import load_data


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    file = tmp_path / "graph.tsv"
    file.write_text("ada\tknows\tbob\nbob\tknows\tcid\ncid\tknows\tdan\n")
    return file


def labels_of(graph: KnowledgeGraph) -> dict[str, tuple[str, int]]:
    labels = graph.labels
    assert labels is not None
    return {
        graph.nodes[n]: (labels.names[c], s)
        for n, c, s in zip(labels.nodes.tolist(), labels.classes.tolist(), labels.splits.tolist(), strict=True)
    }


def test_one_file_is_all_train(graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "l.tsv.gz").write_bytes(gzip.compress(b"person\tlabel_side\tid\nada\tleft\t1\nbob\tright\t2\n"))
    assert labels_of(read(graph_file, labels=tmp_path / "l.tsv.gz")) == {"ada": ("left", 0), "bob": ("right", 0)}


def test_without_header_the_first_line_is_a_label(graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("ada,left\nbob,right\n")
    assert len(labels_of(read(graph_file, labels=tmp_path / "l.csv"))) == 2
    # A misspelled node and not a header: its class occurs again.
    (tmp_path / "l.csv").write_text("unknown,left\nbob,left\n")
    with pytest.raises(DataError, match="unknown"):
        read(graph_file, labels=tmp_path / "l.csv")


def test_a_file_a_split_shares_one_class_numbering(graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("node,class\nada,left\nbob,right\n")
    (tmp_path / "test.csv").write_text("node,class\ncid,right\n")
    graph = read(graph_file, labels={"test": tmp_path / "test.csv", "train": tmp_path / "train.csv"})
    assert labels_of(graph) == {"ada": ("left", 0), "bob": ("right", 0), "cid": ("right", 2)}
    assert graph.labels is not None
    assert list(graph.labels.names) == ["left", "right"]


def test_split_column_and_named_columns(graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("side,split,who\nleft,test,ada\nright,train,bob\nleft,dev,<cid>\n")
    graph = read(graph_file, labels=LabelFiles(tmp_path / "l.csv", node="who", label="side"))
    assert labels_of(graph) == {"ada": ("left", 2), "bob": ("right", 0), "cid": ("left", 1)}
    with pytest.raises(UnknownNameError, match="Did you mean 'who'"):
        read(graph_file, labels=LabelFiles(tmp_path / "l.csv", node="whom", label="side"))
    (tmp_path / "l.csv").write_text("who,split,side\nada,exam,left\n")
    with pytest.raises(ParseError, match="'exam' is not a split"):
        read(graph_file, labels=LabelFiles(tmp_path / "l.csv", header=True))


def test_labeled_nodes_that_are_not_there(graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("ada,left\nboob,right\neve,left\n")
    with pytest.raises(DataError, match=r"2 labeled nodes are not in the graph") as caught:
        read(graph_file, labels=tmp_path / "l.csv")
    assert "boob" in str(caught.value)
    assert "did you mean bob?" in str(caught.value)
    dropped = read(graph_file, labels=tmp_path / "l.csv", missing_labels="drop")
    assert list(labels_of(dropped)) == ["ada"]
    assert dropped.metadata["missing_labels"] == 2
    added = read(graph_file, labels=tmp_path / "l.csv", missing_labels="add")
    assert list(added.nodes) == ["ada", "bob", "cid", "dan", "boob", "eve"]
    assert len(labels_of(added)) == 3
    with pytest.raises(DataError, match="maybe"):
        read(graph_file, labels=tmp_path / "l.csv", missing_labels="maybe")


def test_two_classes_per_node_and_leaks_are_reported(graph_file: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("ada,left\nbob,right\nada,right\n")
    with pytest.raises(ParseError, match=r"l.csv, line 3: ada has the class 'right' here and 'left' in .*line 1"):
        read(graph_file, labels=tmp_path / "l.csv")
    (tmp_path / "a.csv").write_text("ada,left\nbob,right\n")
    (tmp_path / "b.csv").write_text("bob,right\n")
    with pytest.raises(ParseError, match="leak"):
        read(graph_file, labels={"train": tmp_path / "a.csv", "test": tmp_path / "b.csv"})
    (tmp_path / "l.csv").write_text("ada,left\nada,left\n")
    assert len(labels_of(read(graph_file, labels=tmp_path / "l.csv"))) == 1
    (tmp_path / "l.csv").write_text("ada,left\nbob,\n")
    with pytest.raises(ParseError, match="line 2"):
        read(graph_file, labels=tmp_path / "l.csv")
    (tmp_path / "l.csv").write_text("")
    with pytest.raises(DataError, match="no labels"):
        read(graph_file, labels=tmp_path / "l.csv")


@pytest.fixture
def employees(tmp_path: Path) -> Path:
    rows = [f"p{i}\tworks_at\tfirm{i % 2}\nfirm{i % 2}\temploys\tp{i}\np{i}\tknows\tp{i + 1}\n" for i in range(10)]
    file = tmp_path / "work.tsv"
    file.write_text("".join(rows))
    return file


def test_labels_from_a_relation_leave_no_trace_of_it(employees: Path) -> None:
    graph = read(employees, labels_from="works_at", inverse="employs")
    assert list(graph.relations) == ["knows"]
    assert "firm0" in graph.nodes
    assert graph.labels is not None
    assert list(graph.labels.names) == ["firm0", "firm1"]
    assert graph.labels.counts() == {"train": 10}
    again = read(employees, labels_from=LabelRelation("works_at", inverse="employs", seed=0))
    assert again.fingerprint == graph.fingerprint
    parted = read(employees, labels_from=LabelRelation("works_at", inverse="employs", split=(0.8, 0.0, 0.2)))
    assert parted.labels is not None
    assert parted.labels.counts() == {"train": 8, "test": 2}
    with pytest.raises(UnknownNameError, match="works_at"):
        read(employees, labels_from="work_at")
    with pytest.raises(DataError, match="are both set"):
        read(employees, labels_from="works_at", labels=employees)


def test_relations_that_give_the_labels_away_are_named(employees: Path, recwarn: pytest.WarningsRecorder) -> None:
    rows = [f"p{i}\tpaid_by\tfirm{i % 2}\np{i % 4}\tvisits\tfirm{i % 2}\n" for i in range(9)]
    employees.write_text(employees.read_text() + "".join(rows))
    message = (
        r"from works_at, also stand in paid_by \(90%\), employs \(100%, the other way round\), which stays .* "
        r"inverse=\[paid_by, employs\] \(`data.inverse`"
    )
    with pytest.warns(UserWarning, match=message):
        read(employees, labels_from="works_at")
    with pytest.warns(UserWarning, match=r"stand in paid_by \(90%\), which .* inverse=\[employs, paid_by\]"):
        read(employees, labels_from="works_at", inverse="employs")
    recwarn.clear()
    graph = read(employees, labels_from="works_at", inverse=["employs", "paid_by"])
    assert list(graph.relations) == ["knows", "visits"]  # this relation reveals four of ten labels
    assert not recwarn.list


def test_several_values_of_the_label_relation(employees: Path) -> None:
    with pytest.raises(DataError, match=r"2 of 2 nodes have several values of employs, e.g. firm0 has p0, p2, p4"):
        read(employees, labels_from="employs")
    graph = read(employees, labels_from=LabelRelation("employs", inverse="works_at", multiple="first"))
    assert {name: label for name, (label, _) in labels_of(graph).items()} == {"firm0": "p0", "firm1": "p1"}


@given(classes=st.lists(st.integers(0, 5), min_size=1, max_size=60), seed=st.integers(0, 99))
def test_every_class_is_in_train(classes: list[int], seed: int) -> None:
    given_classes = np.array(classes)
    splits = stratified_split(given_classes, (0.2, 0.3, 0.5), seed)
    assert set(given_classes[splits == 0]) == set(classes)
    np.testing.assert_array_equal(splits, stratified_split(given_classes, (0.2, 0.3, 0.5), seed))


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.9, 0.2, 0.1), (0.0, 0.5, 0.5), (1.5, -0.5, 0.0)])
def test_impossible_fractions(fractions: tuple[float, ...]) -> None:
    with pytest.raises(DataError):
        stratified_split(np.array([0, 1]), fractions, 0)


@pytest.mark.needs_data("aifb", "mutag")
@pytest.mark.parametrize(
    ("name", "counts", "labels", "classes"),
    [
        ("aifb", (8285, 45, 29043), {"train": 140, "test": 36}, 4),
        ("mutag", (23644, 23, 74227), {"train": 272, "test": 68}, 2),
    ],
)
def test_published_data(
    name: str, counts: tuple[int, int, int], labels: dict[str, int], classes: int, real_mirror: Path
) -> None:
    folder = real_mirror / name
    files = {"train": folder / "trainingSet.tsv", "test": folder / "testSet.tsv"}
    graph = read(folder / f"{name}_stripped.nt.gz", labels=files)
    assert (graph.num_nodes, graph.num_relations, graph.num_triples) == counts
    assert graph.labels is not None
    assert graph.labels.counts() == labels
    assert graph.labels.num_classes == classes
    if name == "mutag":
        assert sorted(graph.labels.names) == ["0.0", "1.0"]
    assert read(folder, labels=files).fingerprint == graph.fingerprint


def test_a_split_in_the_last_column_is_noticed_without_a_header(tmp_path, graph_file):
    nodes = list(read(graph_file).nodes)[:3]
    rows = [
        f"{node},{kind},{split}\n" for node, kind, split in zip(nodes, "xyx", ("train", "train", "dev"), strict=True)
    ]
    (tmp_path / "l.csv").write_text("".join(rows))
    with pytest.warns(UserWarning, match=r"last column is read as the split.*label_columns=\[0, 2\]"):
        labels = read(graph_file, labels=tmp_path / "l.csv").labels
    assert list(labels.names) == ["x", "y"]
    assert (len(labels.of("train")[0]), len(labels.of("valid")[0])) == (2, 1)
    for options in ({"label_columns": [0, 2]}, {"label_columns": (0, 2), "label_header": False}):
        assert list(read(graph_file, labels=tmp_path / "l.csv", **options).labels.names) == ["train", "dev"]
    (tmp_path / "named.csv").write_text("node,kind,label\n" + "".join(rows))  # then it is the class
    assert list(read(graph_file, labels=tmp_path / "named.csv").labels.names) == ["train", "dev"]


def test_every_label_option_of_python_exists_in_configurations(tmp_path, graph_file):
    """Errors name the option of the command line."""
    nodes = list(read(graph_file).nodes)
    (tmp_path / "l.csv").write_text(f"{nodes[0]},x\n{nodes[1]},y\nnobody,x\n")

    def loaded(**data):
        return load_data(DataConfig(path=str(graph_file), **data))

    with pytest.raises(DataError, match=r"--data missing_labels=drop; to train: --set data\.missing_labels=drop"):
        loaded(labels=str(tmp_path / "l.csv"))
    assert len(loaded(labels=str(tmp_path / "l.csv"), missing_labels="drop", label_header=False).labels) == 2
    (tmp_path / "twice.tsv").write_text("a\tis\tx\na\tis\ty\nb\tis\tx\na\tr\tb\n")
    twice = DataConfig(path=str(tmp_path / "twice.tsv"), labels_from="is")
    with pytest.raises(DataError, match=r"--data multiple=first; to train: --set data\.multiple=first"):
        load_data(twice)
    assert len(load_data(twice.model_copy(update={"multiple": "first"})).labels) == 2
    (tmp_path / "g.nt").write_text('<urn:a> <urn:r> <urn:b> .\n<urn:a> <urn:n> "A" .\n')
    assert len(load_data(DataConfig(path=str(tmp_path / "g.nt"), literals="drop"))) == 1
    for wrong in ({"multiple": "first"}, {"missing_labels": "drop"}, {"label_columns": [0]}, {"label_header": True}):
        with pytest.raises(ValueError, match=r"go with|takes two"):
            loaded(**wrong)
        with pytest.raises(DataError, match=r"go with|takes two"):
            read(graph_file, **wrong)
