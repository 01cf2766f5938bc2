"""Test the conversion of graphs to other libraries and back: no change, no name clashes, hostile names are kept."""

from __future__ import annotations

import gzip
import sys
import tempfile
import types
from pathlib import Path
from urllib.parse import unquote

import networkx
import numpy as np
import pyoxigraph as ox
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

import rgcn
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph, NodeKind, NodeLabels, Vocabulary
from rgcn.graph.rdf_terms import rdf_class, rdf_node, rdf_relation

INTEGER = "http://www.w3.org/2001/XMLSchema#integer"
HOSTILE = [
    "",
    " ",
    'say "so"',
    "two\nlines\r\n",
    "<script>",
    "100%",
    "%41",
    "a b",
    "Zürich 東京 🚲",
    "http://example.org/a b",
    "_:b0",
    '"42"',
    "urn:",
    "\\",
    "\x00\x01",
    "a/b#c?d",
]


def whole_graph(seed: int = 0) -> KnowledgeGraph:
    """Return a graph with every optional part, and labels in random order."""
    rng = np.random.default_rng(seed)
    names = ["http://example.org/a", '"42"^^<' + INTEGER + ">", "_:b0", *(f"http://example.org/{i}" for i in range(5))]
    triples = np.stack([rng.choice([0, 2, 3, 4, 5, 6, 7], 20), rng.integers(0, 3, 20), rng.integers(0, 8, 20)], 1)
    return KnowledgeGraph(
        triples,
        Vocabulary(names, kind="node"),
        Vocabulary(["http://example.org/r", "http://example.org/s", "http://example.org/t"], kind="relation"),
        node_kinds=np.array([0, 1, 2, 0, 0, 0, 0, 0]),
        labels=NodeLabels(np.array([7, 0, 4, 3]), np.array([1, 0, 1, 2]), Vocabulary("xyzu"), np.array([2, 0, 1, 0])),
        triple_splits=rng.integers(0, 3, 20),
        features=rng.normal(size=(8, 3)),
        edge_weights=rng.random(20),
        name="whole",
        metadata={"license": "none"},
    )


def plain_graphs():
    """Graphs of any names, node and relation names drawn from the same ones."""
    name = st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
    return st.lists(st.tuples(name, name, name), min_size=1, max_size=8).map(KnowledgeGraph.from_triples)


# -- PyTorch Geometric --------------------------------------------------------------------------------------


@pytest.fixture
def pyg():
    return pytest.importorskip("torch_geometric.data")


@pytest.mark.parametrize("inverse", [False, True])
def test_a_graph_survives_the_round_trip_through_pyg(pyg, inverse):
    for graph in (whole_graph(), rgcn.load("world"), KnowledgeGraph.from_triples([("a", "r", "b")], name="bare")):
        data = graph.to_pyg(inverse=inverse)
        data.validate()
        back = KnowledgeGraph.from_pyg(data)
        assert back.fingerprint == graph.fingerprint
        assert (back.name, dict(back.metadata)) == (graph.name, dict(graph.metadata))


@given(plain_graphs())
def test_any_names_survive_the_round_trip_through_pyg(graph):
    pytest.importorskip("torch_geometric.data")
    assert KnowledgeGraph.from_pyg(graph.to_pyg()).fingerprint == graph.fingerprint


def test_data_has_the_shape_of_pygs_own_examples(pyg):
    graph = rgcn.load("world")
    data = graph.to_pyg(inverse=True)
    assert data.edge_index.tolist()[0][: len(graph)] == graph.triples[:, 0].tolist()
    assert data.edge_type[len(graph) :].tolist() == (graph.triples[:, 1] + graph.num_relations).tolist()
    assert data.num_relations == data.num_edge_types == 2 * graph.num_relations
    nodes, classes = graph.labels.of("test")
    assert data.test_idx.tolist() == nodes.tolist()
    assert data.test_y.tolist() == classes.tolist() == data.y[data.test_idx].tolist()
    assert data.test_mask.sum() == len(nodes)
    assert (data.y >= 0).sum() == len(graph.labels)


def test_pygs_own_convolution_agrees_with_ours_on_the_data(pyg):
    conv = pytest.importorskip("torch_geometric.nn").RGCNConv
    graph = whole_graph()
    graph = KnowledgeGraph(np.unique(graph.triples, axis=0), graph.nodes, graph.relations, features=graph.features)
    data = graph.to_pyg(inverse=True)
    theirs = conv(3, 4, data.num_relations)
    ours = rgcn.nn.RelationalGraphConv(3, 4, graph.num_relations, bias=True)
    ours.weights.blocks.data = torch.cat([theirs.weight.data, theirs.root.data[None]]).unsqueeze(1)
    ours.bias.data = theirs.bias.data.clone()
    with torch.no_grad():
        mixed = ours(data.x, rgcn.RelationalAdjacency.from_graph(graph))
        torch.testing.assert_close(theirs(data.x, data.edge_index, data.edge_type), mixed)


def test_a_part_taken_by_pyg_keeps_its_names(pyg):
    graph = whole_graph()
    part = KnowledgeGraph.from_pyg(graph.to_pyg().subgraph(torch.tensor([0, 3, 4, 7])))
    expected = graph.subgraph([0, 3, 4, 7])
    assert set(part.named()) == set(expected.named())
    assert list(part.nodes) == list(expected.nodes)
    assert {part.nodes[n]: part.labels.names[c] for n, c in zip(*part.labels.of("all"), strict=True)} == {
        graph.nodes[n]: graph.labels.names[c] for n, c in zip(*graph.labels.of("all"), strict=True)
    }


def test_foreign_data_gets_names_and_labels(pyg):
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 0]])
    mask = torch.tensor([True, False, False])
    data = pyg.Data(edge_index=edge_index, y=torch.tensor([0, 1, 1]), x=torch.eye(3), train_mask=mask, test_mask=~mask)
    graph = KnowledgeGraph.from_pyg(data)
    assert graph.named()[0] == ("node 0", "relation 0", "node 1")
    assert graph.labels.counts() == {"train": 1, "test": 2}
    assert list(graph.labels.names) == ["class 0", "class 1"]
    assert graph.features.tolist() == np.eye(3).tolist()
    named = KnowledgeGraph.from_pyg(data, nodes=["a", "b", "c"], relations=["r"], classes=["x", "y"], name="small")
    assert (named.named()[0], named.name, named.labels.names[0]) == (("a", "r", "b"), "small", "x")


def test_labels_as_entities_has_them_and_labels_without_a_split(pyg):
    data = pyg.Data(edge_index=torch.tensor([[0], [1]]), num_nodes=4, edge_type=torch.tensor([2]))
    data.train_idx, data.train_y = torch.tensor([3, 0]), torch.tensor([1, 0])
    data.test_idx, data.test_y = torch.tensor([2]), torch.tensor([1])
    graph = KnowledgeGraph.from_pyg(data)
    assert graph.num_relations == 3
    assert [each.tolist() for each in graph.labels.of("train")] == [[3, 0], [1, 0]]
    assert [each.tolist() for each in graph.labels.of("test")] == [[2], [1]]
    unsplit = pyg.Data(edge_index=data.edge_index, num_nodes=3, y=torch.tensor([[2], [-1], [0]]))
    assert KnowledgeGraph.from_pyg(unsplit).labels.counts() == {"train": 2}


def test_masks_over_edges_split_the_triples(pyg):
    mask = torch.tensor([True, False, True])
    data = pyg.Data(edge_index=torch.tensor([[0, 1, 0], [1, 1, 0]]), num_nodes=2, train_mask=mask, val_mask=~mask)
    graph = KnowledgeGraph.from_pyg(data)
    assert graph.triple_splits.tolist() == [0, 1, 0]
    assert graph.labels is None


def test_heterogeneous_data(pyg):
    data = pyg.HeteroData()
    data["author"].x, data["paper"].x = torch.zeros(2, 4), torch.ones(3, 4)
    data["paper"].y, data["paper"].train_mask = torch.tensor([0, 1, 1]), torch.tensor([True, True, False])
    data["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [2, 0]])
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0], [1]])
    data["author", "cites", "author"].edge_index = torch.tensor([[1], [0]])
    graph = KnowledgeGraph.from_pyg(data)
    assert graph.named() == [
        ("author/0", "writes", "paper/2"),
        ("author/1", "writes", "paper/0"),
        ("paper/0", "paper/cites/paper", "paper/1"),
        ("author/1", "author/cites/author", "author/0"),
    ]
    assert graph.features.sum(1).tolist() == [0, 0, 4, 4, 4]
    assert {graph.nodes[n] for n in graph.labels.of("train")[0]} == {"paper/0", "paper/1"}


def test_unsupported_pyg_data_raise_an_error(pyg):
    edge_index, from_pyg = torch.tensor([[0], [1]]), KnowledgeGraph.from_pyg
    both = torch.tensor([True, True])
    with pytest.raises(DataError, match="no edge_index"):
        from_pyg(pyg.Data(num_nodes=3))
    with pytest.raises(DataError, match="2 node numbers, but there are 1 names"):
        from_pyg(pyg.Data(edge_index=edge_index, num_nodes=2), nodes=["a"])
    with pytest.raises(DataError, match="two of train_mask"):
        from_pyg(pyg.Data(edge_index=edge_index, num_nodes=2, y=torch.zeros(2).long(), train_mask=both, test_mask=both))
    masks = torch.stack([both, both])
    with pytest.raises(DataError, match=r"train_mask has shape \[2, 2\]"):
        from_pyg(pyg.Data(edge_index=edge_index, num_nodes=2, y=torch.zeros(2).long(), train_mask=masks))
    with pytest.warns(UserWarning, match="does not contain a class for each node"):
        assert from_pyg(pyg.Data(edge_index=edge_index, num_nodes=2, y=torch.rand(2))).labels is None


def test_a_missing_package_is_reported_with_the_command_that_installs_it(monkeypatch):
    graph = whole_graph()
    for module, call, extra in (
        ("torch_geometric.data", graph.to_pyg, "interop"),
        ("networkx", graph.to_networkx, "interop"),
        ("pandas", graph.to_pandas, "interop"),
        ("pykeen.triples", graph.to_pykeen, "pykeen"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ConfigError, match=rf"pip install 'rgcn\[{extra}\]'"):
            call()


# -- NetworkX, PyKEEN, tables -------------------------------------------------------------------------------


def test_networkx_has_every_node_and_every_triple():
    graph = whole_graph()
    multi = graph.to_networkx()
    assert isinstance(multi, networkx.MultiDiGraph)
    assert (multi.name, list(multi)) == ("whole", list(graph.nodes))
    assert multi.nodes["http://example.org/4"]["split"] == "test"
    assert multi.nodes["http://example.org/4"]["label"] == "y"
    assert multi.nodes["_:b0"] == {"kind": "blank", "features": graph.features[2].tolist()}
    edges = sorted((s, a["relation"], o, a["split"], a["weight"]) for s, o, a in multi.edges(data=True))
    names = rgcn.graph.SPLITS
    expected = [
        (*triple, names[split], weight)
        for triple, split, weight in zip(
            graph.named(), graph.triple_splits.tolist(), graph.edge_weights.tolist(), strict=True
        )
    ]
    assert edges == sorted(expected)


def test_a_triple_that_stands_twice_stays_two_edges():
    multi = KnowledgeGraph.from_triples([("a", "r", "b"), ("a", "r", "b"), ("a", "s", "b")]).to_networkx()
    assert list(multi.edges(keys=True)) == [("a", "b", "r"), ("a", "b", ("r", 2)), ("a", "b", "s")]


class RecordedFactory:
    def __init__(self, mapped_triples, entity_to_id, relation_to_id, create_inverse_triples=False, metadata=None):
        self.mapped_triples, self.entity_to_id, self.relation_to_id = mapped_triples, entity_to_id, relation_to_id
        self.num_entities, self.num_relations = len(entity_to_id), len(relation_to_id)


def test_pykeen_gets_each_split_with_our_numbers(monkeypatch):
    try:
        import pykeen.triples  # noqa: F401
    except ImportError:
        monkeypatch.setitem(sys.modules, "pykeen", types.ModuleType("pykeen"))
        stand_in = types.ModuleType("pykeen.triples")
        stand_in.TriplesFactory = RecordedFactory
        monkeypatch.setitem(sys.modules, "pykeen.triples", stand_in)
    graph = rgcn.load("world")
    factories = graph.to_pykeen()
    assert list(factories) == ["train", "valid", "test"]
    for split, factory in factories.items():
        assert factory.mapped_triples.tolist() == graph.split_triples(split).tolist()
        assert factory.entity_to_id == {name: number for number, name in enumerate(graph.nodes)}
        assert (factory.num_entities, factory.num_relations) == (graph.num_nodes, graph.num_relations)
    assert list(KnowledgeGraph.from_triples([("a", "r", "b")]).to_pykeen()) == ["train"]


def test_polars_has_names_splits_and_weights():
    graph = whole_graph()
    table = graph.to_polars()
    assert table.columns == ["subject", "relation", "object", "split", "weight"]
    assert table.select("subject", "relation", "object").rows() == graph.named()
    assert table["split"].to_list() == [rgcn.graph.SPLITS[s] for s in graph.triple_splits]
    assert table["weight"].to_list() == graph.edge_weights.tolist()
    assert KnowledgeGraph.from_triples([]).to_polars().shape == (0, 3)


@given(plain_graphs())
def test_any_names_survive_the_round_trip_through_polars(graph):
    assert graph.to_polars().rows() == graph.named()


def test_pandas_has_the_same_table(monkeypatch):
    try:
        import pandas  # noqa: F401
    except ImportError:
        stand_in = types.ModuleType("pandas")
        stand_in.DataFrame = lambda columns: {name: list(values) for name, values in columns.items()}
        monkeypatch.setitem(sys.modules, "pandas", stand_in)
    graph = whole_graph()
    table = graph.to_pandas()
    assert list(zip(table["subject"], table["relation"], table["object"], strict=True)) == graph.named()
    assert list(table["split"]) == [rgcn.graph.SPLITS[s] for s in graph.triple_splits]
    assert list(table["weight"]) == graph.edge_weights.tolist()


# -- RDF ------------------------------------------------------------------------------------------------------


RDF_TERMS = [
    ("http://example.org/ü", NodeKind.IRI),
    ("urn:rgcn:node:Bern", NodeKind.IRI),
    ('"plain"', NodeKind.LITERAL),
    ('"42"^^<' + INTEGER + ">", NodeKind.LITERAL),
    ('"Zürich \\"die\\" Stadt\\n\\\\"@de-ch', NodeKind.LITERAL),
    ('"http://example.org/ü"', NodeKind.LITERAL),
    ("_:b0", NodeKind.BLANK),
]


def rdf_graph() -> KnowledgeGraph:
    """As it would be read from RDF; blank nodes are numbered as every format numbers them."""
    names = [name for name, _ in RDF_TERMS]
    triples = np.array([[0, 0, number] for number in range(len(names))] + [[6, 1, 2], [1, 1, 6]])
    relations = Vocabulary(["http://example.org/r", "http://example.org/päivä"], kind="relation")
    kinds = np.array([kind for _, kind in RDF_TERMS])
    return KnowledgeGraph(triples, Vocabulary(names, kind="node"), relations, node_kinds=kinds)


@pytest.mark.parametrize("ending", ["nt", "nq", "ttl", "trig", "rdf", "jsonld", "nt.gz", "ttl.bz2", "nt.zst"])
def test_rdf_read_again_has_the_same_triples(tmp_path, ending):
    graph, path = rdf_graph(), tmp_path / f"graph.{ending}"
    assert graph.to_rdf(path) == len(graph)
    back = rgcn.read(path)
    assert set(back.named()) == set(graph.named())
    assert {name: back.kind(name) for name in back.nodes} == dict(RDF_TERMS)
    assert list(tmp_path.iterdir()) == [path]
    again = tmp_path / f"again.{ending}"
    graph.to_rdf(again)
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.needs_data("aifb")
def test_aifb_survives_the_round_trip_through_its_export(tmp_path, real_mirror):
    graph = rgcn.load("aifb", mirror=real_mirror)
    graph.to_rdf(tmp_path / "aifb.nt")
    back = rgcn.read(tmp_path / "aifb.nt")
    assert set(back.named()) == set(graph.named())
    assert all(back.kind(name) == graph.kind(name) for name in back.nodes)


@given(plain_graphs())
def test_plain_names_become_iris_and_can_be_restored(graph):
    terms = [rdf_node(graph, node) for node in range(graph.num_nodes)]
    relations = [rdf_relation(graph, relation) for relation in range(graph.num_relations)]
    assume(len({*terms}) == len(terms))  # else the export refuses, which is tested below
    for name, term in zip(graph.nodes, terms, strict=True):
        assert isinstance(term, ox.NamedNode)
        assert name in (term.value, unquote(term.value.removeprefix("urn:rgcn:node:")))
    for name, term in zip(graph.relations, relations, strict=True):
        assert name in (term.value, unquote(term.value.removeprefix("urn:rgcn:relation:")))
    named = {*terms} & {*relations}
    assert all(term.value in graph.nodes for term in named)  # only names that are IRIs themselves


@given(st.data(), st.sampled_from(["nt", "ttl", "jsonld"]))
def test_a_file_of_hostile_names_has_the_graphs_triples_and_no_other(data, ending):
    graph = data.draw(plain_graphs())
    terms = [rdf_node(graph, node) for node in range(graph.num_nodes)]
    assume(len({*terms}) == len(terms))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"graph.{ending}"
        graph.to_rdf(path)
        back = rgcn.read(path)
    expected = {(terms[s].value, rdf_relation(graph, r).value, terms[o].value) for s, r, o in graph.triples.tolist()}
    assert set(back.named()) == expected
    assert all(back.kind(name) == NodeKind.IRI for name in back.nodes)


def test_base_and_split_can_be_chosen(tmp_path):
    graph = KnowledgeGraph.from_triples([("a", "r", "b"), ("c", "r", "d")], triple_splits=np.array([0, 2]))
    path = tmp_path / "test.data"
    assert graph.to_rdf(path, format="N-Triples", base="http://example.org/", split="test") == 1
    prefix = "http://example.org/node/"
    assert path.read_text() == f"<{prefix}c> <http://example.org/relation/r> <{prefix}d> .\n"
    assert str(rdf_node(graph, 0, "http://example.org#")) == "<http://example.org#node/a>"


def test_compressed_files_are_compressed(tmp_path):
    graph = rgcn.load("world")
    graph.to_rdf(tmp_path / "world.nt.gz", split="valid")
    lines = gzip.decompress((tmp_path / "world.nt.gz").read_bytes()).decode().splitlines()
    assert len(lines) == len(graph.split_triples("valid"))
    assert all(line.startswith("<urn:rgcn:node:") for line in lines)


def with_kinds(triples, *kinds):
    return KnowledgeGraph.from_triples(triples, node_kinds=np.array(kinds))


@pytest.mark.parametrize(
    ("graph", "path", "words"),
    [
        (KnowledgeGraph.from_triples([("\ud800", "r", "b")]), "a.nt", "half of a surrogate pair"),
        (KnowledgeGraph.from_triples([("a", "\udfff", "b")]), "a.nt", "half of a surrogate pair"),
        (with_kinds([('"a', "r", "b")], 1, 0), "a.nt", "not a literal in N-Triples form"),
        (with_kinds([("b", "r", '"a" . <urn:x> <urn:y> "z"')], 0, 1), "a.nt", "not a literal in N-Triples form"),
        (with_kinds([("b", "r", '"a" . # no')], 0, 1), "a.nt", "not a literal in N-Triples form"),
        (with_kinds([("b", "r", '"a"^^<no iri>')], 0, 1), "a.nt", "not a literal in N-Triples form"),
        (with_kinds([('"a"', "r", "b")], 1, 0), "a.nt", 'the literal "a" is the subject'),
        (with_kinds([("_:a b", "r", "b")], 2, 0), "a.nt", "not a blank node label"),
        (KnowledgeGraph.from_triples([("a", "r", "urn:rgcn:node:a")]), "a.nt", "would both be written as"),
        (KnowledgeGraph.from_triples([("a", "1", "b")]), "a.rdf", "RDF/XML cannot name the relation"),
        (with_kinds([("b", "r", '"\\u0001"')], 0, 1), "a.rdf", "control character"),
        (with_kinds([("b", "r", '"a\\rb"')], 0, 1), "a.rdf", "control character"),  # XML would make a new line of it
        (KnowledgeGraph.from_triples([("a", "r", "b")]), "a.csv", "names no RDF format"),
        (KnowledgeGraph.from_triples([("a", "r", "b")]), "a", "names no RDF format"),
    ],
)
def test_names_that_rdf_cannot_represent_are_refused_and_nothing_is_written(tmp_path, graph, path, words):
    (tmp_path / path).write_text("old")
    with pytest.raises(rgcn.RgcnError, match=words):
        graph.to_rdf(tmp_path / path)
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [(path, "old")]


def test_an_invalid_base_iri_is_refused(tmp_path):
    graph = KnowledgeGraph.from_triples([("a", "r", "b")])
    for base in ("", "no base", "<"):
        with pytest.raises(ConfigError, match="makes no absolute IRI"):
            graph.to_rdf(tmp_path / "a.nt", base=base)


def test_classes_as_terms():
    assert rdf_class("http://example.org/Person") == ox.NamedNode("http://example.org/Person")
    assert rdf_class("low income") == ox.Literal("low income")
    assert rdf_class("") == ox.Literal("")
    assert rdf_class('"7"^^<' + INTEGER + ">") == ox.Literal("7", datatype=ox.NamedNode(INTEGER))
    assert rdf_class('say "so"') == ox.Literal('say "so"')
    with pytest.raises(DataError, match="surrogate"):
        rdf_class("\ud800")
