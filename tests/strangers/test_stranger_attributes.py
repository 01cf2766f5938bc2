"""Numbers of nodes from outside the package: a source of them, and a reader whose files hold triples and numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from outside import installed, written_package

import rgcn
from rgcn.data.attributes import AttributeColumn, AttributeSource
from rgcn.data.readers import Reading, TripleReader
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph


class Ages(AttributeSource):
    """A file of lines "Ada is 36"."""

    suffixes = ("ages",)

    def columns(self, graph: KnowledgeGraph) -> Iterator[AttributeColumn]:
        pairs = [line.split(" is ") for line in self.path.read_text().splitlines()]
        yield AttributeColumn("age", [name for name, _ in pairs], [float(age) for _, age in pairs])


class Cities(TripleReader):
    """Lines "Bern -> Zug" are triples, lines "Bern = 134 542" numbers of a node: its people and its height."""

    suffixes = ("cities",)

    def read(self, reading: Reading) -> None:
        numbers: dict[str, list[str]] = {}
        triples = []
        for _, line in reading.lines():
            name, sign, rest = line.split(" ", 2)
            if sign == "->":
                triples.append((name, "linked", rest))
            else:
                numbers[name] = rest.split()
        reading.add(triples)
        for at, what in enumerate(("people", "height")):
            reading.add_attribute(what, list(numbers), [float(row[at]) for row in numbers.values()])


@pytest.fixture
def cities(tmp_path: Path) -> Path:
    (tmp_path / "swiss.cities").write_text("Bern -> Zug\nBern = 134 542\nZug -> Chur\nZug = 31 425\n")
    (tmp_path / "heights.txt").write_text("Chur is 593\nBern is 542\nOslo is 1\n")
    return tmp_path


def test_a_source_gives_features(cities: Path) -> None:
    (cities / "graph.tsv").write_text("Bern\tlinked\tZug\nZug\tlinked\tChur\n")
    kg = rgcn.read(cities / "graph.tsv", features=Ages(cities / "heights.txt"))
    assert kg.features is not None
    assert kg.features.tolist() == [[542], [0], [593]]
    assert (kg.metadata["nodes_without_features"], kg.metadata["features_of_unknown_nodes"]) == (1, 1)
    (cities / "heights.txt").write_text("Bern is inf\n")
    with pytest.raises(DataError, match="the attribute 'age' needs a finite number for each of its 1 nodes"):
        rgcn.read(cities / "graph.tsv", features=Ages(cities / "heights.txt"))


def test_an_installed_source_is_found_by_the_ending_of_its_files(cities: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cities / "site").mkdir()
    written_package(cities / "site", "stranger_numbers", f"from {__name__} import Ages", monkeypatch)
    (cities / "heights.txt").rename(cities / "swiss.ages")
    (cities / "graph.tsv").write_text("Bern\tlinked\tZug\nZug\tlinked\tChur\n")
    with installed(cities / "site", "rgcn.attribute_sources", "ages = stranger_numbers:Ages"):
        kg = rgcn.read(cities / "graph.tsv", features=cities / "swiss.ages")
        assert kg.features is not None
        assert kg.features.tolist() == [[542], [0], [593]]


def test_a_reader_adds_numbers_to_its_triples(cities: Path) -> None:
    kg = rgcn.read(cities / "swiss.cities", format=Cities)
    assert kg.features is not None
    assert (list(kg.nodes), kg.features.tolist()) == (["Bern", "Zug", "Chur"], [[134, 542], [31, 425], [0, 0]])
    both = rgcn.read(cities / "swiss.cities", format=Cities, features=Ages(cities / "heights.txt"))
    assert both.features is not None
    assert both.features.tolist() == [[134, 542, 542], [31, 425, 0], [0, 0, 593]]


def test_numbers_of_several_files_are_one_column_and_a_node_that_a_label_adds_has_zeros(cities: Path) -> None:
    (cities / "train.cities").write_text("Bern -> Zug\nBern = 134 542\n")
    (cities / "test.cities").write_text("Zug -> Bern\nZug = 31 425\n")
    (cities / "labels.csv").write_text("Bern,large\nChur,small\n")
    splits = {split: cities / f"{split}.cities" for split in ("train", "test")}
    kg = rgcn.read(splits, format=Cities, labels=cities / "labels.csv", missing_labels="add")
    assert kg.features is not None
    assert (list(kg.nodes), kg.features.tolist()) == (["Bern", "Zug", "Chur"], [[134, 542], [31, 425], [0, 0]])


def test_a_graph_that_is_built_on_disk_has_them_too(cities: Path) -> None:
    built = rgcn.read(cities / "swiss.cities", format=Cities, out=cities / "built")
    assert built.fingerprint == rgcn.read(cities / "swiss.cities", format=Cities).fingerprint
    assert rgcn.read(cities / "built").features.tolist() == [[134, 542], [31, 425], [0, 0]]


def test_a_model_uses_the_features(cities: Path) -> None:
    (cities / "labels.csv").write_text("Bern,large\nZug,small\nChur,small\n")
    kg = rgcn.read(cities / "swiss.cities", format=Cities, labels=cities / "labels.csv")
    model = rgcn.NodeClassifier(epochs=2).fit(kg)
    assert model.predict(["Bern"])[0] in ("large", "small")


def test_an_unknown_option_is_reported_with_the_closest_known_one(cities: Path) -> None:
    with pytest.raises(ConfigError, match=r"read\(\) has no option 'feature'; did you mean 'features'\?"):
        rgcn.read(cities / "swiss.cities", feature="heights.txt")
    with pytest.raises(ConfigError, match="no option 'xyz'; there are labels, labels_from"):
        rgcn.read(cities / "swiss.cities", xyz=1)
