"""Names, their ids, and the classes of nodes."""

from __future__ import annotations

import numpy as np
import pytest

from rgcn.errors import DataError, UnknownNameError, close_matches
from rgcn.graph import NodeLabels, Vocabulary
from rgcn.graph.titles import local_name

CITIES = Vocabulary(["Bern", "Oslo", "Rome"], kind="city")


def test_a_names_id_is_its_position():
    assert [CITIES[name] for name in CITIES] == [0, 1, 2]
    assert [CITIES[i] for i in range(3)] == ["Bern", "Oslo", "Rome"]
    assert CITIES[1:] == ("Oslo", "Rome")
    assert CITIES.ids(["Rome", 0, np.int64(1)]).tolist() == [2, 0, 1]
    assert CITIES.get("Rome") == 2
    assert CITIES.get("Paris") is None
    assert "Oslo" in CITIES
    assert "Paris" not in CITIES


def test_an_unknown_name_comes_with_the_closest_known_ones():
    with pytest.raises(UnknownNameError) as caught:
        CITIES["Olso"]
    assert caught.value.suggestions == ["Oslo"]
    assert str(caught.value) == "unknown city 'Olso'. Did you mean 'Oslo'?"
    assert isinstance(caught.value, KeyError)


def test_an_unknown_name_like_no_other_comes_without_advice():
    with pytest.raises(UnknownNameError, match=r"unknown city 'xyzzy'\.$"):
        CITIES.id("xyzzy")


@pytest.mark.parametrize("number", [-1, 3])
def test_an_id_out_of_range_is_refused(number):
    with pytest.raises(DataError, match=r"outside 0\.\.2"):
        CITIES.id(number)


def test_a_repeated_name_is_refused():
    with pytest.raises(DataError, match="occurs twice"):
        Vocabulary(["a", "b", "a"]).id("a")


def test_a_single_string_is_not_a_list_of_names():
    with pytest.raises(DataError, match="list"):
        CITIES.ids("Bern")


def test_taking_names_renumbers_them_in_the_order_given():
    assert list(CITIES.take([2, 0])) == ["Rome", "Bern"]
    assert CITIES.take([2, 0]).kind == "city"


def test_vocabularies_are_equal_by_their_names():
    assert Vocabulary(["a", "b"]) == Vocabulary(["a", "b"], kind="node")
    assert hash(Vocabulary(["a", "b"])) == hash(Vocabulary(["a", "b"]))
    assert Vocabulary(["a", "b"]) != Vocabulary(["b", "a"])
    assert repr(CITIES) == "Vocabulary(3 names, kind='city')"


def test_suggestions_look_at_the_part_of_an_iri_a_person_reads():
    known = ["http://example.org/place/Switzerland", "http://example.org/place/Sweden", "http://example.org/x#Spain"]
    assert close_matches("Switzerlnd", known) == known[:1]
    assert close_matches("spain", known) == known[2:]
    assert local_name("http://example.org/x#Spain") == "Spain"


def test_suggestions_are_found_among_very_many_names():
    known = [f"name{i}" for i in range(60_000)] + ["Switzerland"]
    assert close_matches("Switzerlnd", known) == ["Switzerland"]


# -- labels --------------------------------------------------------------------------------------------


def labels(nodes=(4, 2, 9), classes=(0, 1, 0), splits=(0, 0, 2)):
    return NodeLabels(nodes, classes, Vocabulary(["x", "y"], kind="class"), splits)


def test_labels_of_a_split():
    assert [a.tolist() for a in labels().of("train")] == [[4, 2], [0, 1]]
    assert [a.tolist() for a in labels().of("test")] == [[9], [0]]
    assert [a.tolist() for a in labels().of("valid")] == [[], []]
    assert len(labels().of("all")[0]) == len(labels()) == 3
    assert labels().counts() == {"train": 2, "test": 1}
    assert labels().num_classes == 2
    assert repr(labels()) == "NodeLabels(3 nodes, 2 classes; train 2, test 1)"
    with pytest.raises(DataError, match="unknown split 'dev'"):
        labels().of("dev")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"nodes": (4, 2)}, "differ in length"),
        ({"nodes": (4, 4, 9)}, "two classes"),
        ({"classes": (0, 1, 2)}, "no name"),
        ({"classes": (0, 1, -1)}, "no name"),
        ({"splits": (0, 1, 3)}, "train, valid, test"),
    ],
)
def test_inconsistent_labels_are_refused(parts, words):
    with pytest.raises(DataError, match=words):
        labels(**parts)


def test_renumbering_drops_labels_of_removed_nodes():
    new_id = np.full(10, -1)
    new_id[[4, 9]] = [1, 0]
    smaller = labels().remap(new_id)
    assert (smaller.nodes.tolist(), smaller.classes.tolist(), smaller.splits.tolist()) == ([1, 0], [0, 0], [0, 2])
    assert smaller.names == labels().names
