"""What a file says of its own relations in RDFS and OWL."""

import pytest
import torch

from rgcn.graph import KnowledgeGraph
from rgcn.links.declared_constraints import OWL, RDF, RDFS, Declared
from rgcn.links.relation_constraints import FINISHED, OPEN, SENSELESS, RelationRules
from rgcn.nn.scorer import Questions
from rgcn.sampling.known_triples import KnownTriples

BASE = "http://example.org/"
TYPE = f"{RDF}type"


def graph_with(*declared, facts=()):
    """Facts about towns, people and things, with declarations in short words."""
    short = {"a": TYPE, "domain": f"{RDFS}domain", "range": f"{RDFS}range", "under": f"{RDFS}subClassOf"}
    short |= {"apart": f"{OWL}disjointWith", "inverse": f"{OWL}inverseOf"}

    def full(name):
        if name in short:
            return short[name]
        return f"{OWL}{name[4:]}" if name.startswith("owl:") else BASE + name

    types = [("bern", "a", "Capital"), ("thun", "a", "Town"), ("ann", "a", "Person"), ("bob", "a", "Person")]
    types += [("it", "a", "Thing"), ("one", "a", "owl:NamedIndividual")]
    rows = [*types, ("Capital", "under", "Town"), ("Town", "under", "Place"), ("Place", "under", "Thing")]
    rows += [("ann", "lives", "thun"), ("bob", "lives", "bern"), *facts, *declared]
    return KnowledgeGraph.from_triples([tuple(full(name) for name in row) for row in rows])


def number(graph, name):
    return graph.relations[BASE + name]


def names(graph, nodes):
    return {graph.nodes[node].removeprefix(BASE) for node in nodes if graph.nodes[node].startswith(BASE)}


def test_nothing_is_declared_by_most_graphs():
    graph = KnowledgeGraph.from_triples([("a", "r", "b")])
    declared = Declared.by(graph)
    assert not declared.characters
    assert not declared.classes
    assert not declared.single.any()
    assert declared.same_place(1) == [1]
    assert declared.words(0) == []


def test_domain_and_range_have_members_of_subclasses_and_not_of_other_classes():
    graph = graph_with(("lives", "range", "Town"), ("lives", "domain", "Person"))
    rules, lives = RelationRules(graph), number(graph, "lives")
    assert names(graph, rules.objects(lives, "fitting")) >= {"bern", "thun"}
    assert not names(graph, rules.objects(lives, "fitting")) & {"ann", "bob"}
    assert names(graph, rules.subjects(lives, "fitting")) >= {"ann", "bob"}
    assert not names(graph, rules.subjects(lives, "fitting")) & {"bern", "thun"}
    kind = graph.nodes[BASE + "Town"]
    assert names(graph, rules.declared.members[kind]) == {"bern", "thun"}
    strangers = names(graph, rules.declared.strangers[kind])
    assert strangers >= {"ann", "bob"}
    assert not strangers & {
        "it",
        "one",
    }  # a thing may be a town for all we know, and so may what is said to be anything
    assert {"declared range " + BASE + "Town", "declared domain " + BASE + "Person"} <= set(
        rules.profiles()[lives].rules
    )
    asked = Questions(torch.tensor([graph.nodes[BASE + "bern"]]), torch.tensor([lives]))
    assert rules.expectation(asked, KnownTriples.of_graph(graph, "train")).tolist() == [SENSELESS]


def test_a_member_that_was_never_seen_fits():
    graph = graph_with(("lives", "range", "Town"), facts=[("ulm", "a", "Town")])
    assert "ulm" in names(graph, RelationRules(graph).objects(number(graph, "lives"), "fitting"))
    assert "ulm" not in names(graph, RelationRules(graph).objects(number(graph, "lives"), "seen"))


@pytest.mark.parametrize("with_what", ["Town", "Place"])
def test_members_of_disjoint_classes_are_strangers_whatever_else_they_are(with_what):
    also = [("ghost", "a", "Thing"), ("ghost", "a", "Spirit")]
    without = graph_with(("lives", "range", "Town"), facts=also)
    assert "ghost" not in names(without, Declared.by(without).strangers[without.nodes[BASE + "Town"]])
    for pair in (("Spirit", with_what), (with_what, "Spirit")):
        graph = graph_with(("lives", "range", "Town"), (pair[0], "apart", pair[1]), facts=also)
        assert "ghost" in names(graph, Declared.by(graph).strangers[graph.nodes[BASE + "Town"]])


def test_of_several_ranges_no_stranger_to_any_is_kept_in_either_order():
    found = []
    for kinds in (("Town", "Person"), ("Person", "Town")):
        graph = graph_with(*(("lives", "range", kind) for kind in kinds))
        found.append(names(graph, RelationRules(graph).objects(number(graph, "lives"), "fitting")))
    assert found[0] == found[1]
    assert not found[0] & {"ann", "bob", "bern", "thun"}


def test_functional_and_inverse_functional_without_many_triples():
    graph = graph_with(("lives", "a", "owl:FunctionalProperty"))
    rules, lives = RelationRules(graph), number(graph, "lives")
    assert rules.single[lives]
    assert not rules.single[lives + graph.num_relations]
    assert "declared functional" in rules.profiles()[lives].rules
    index, ann, thun = KnownTriples.of_graph(graph, "train"), graph.nodes[BASE + "ann"], graph.nodes[BASE + "thun"]
    asked = Questions(torch.tensor([ann, thun]), torch.tensor([lives] * 2), torch.tensor([True, False]))
    assert rules.expectation(asked, index).tolist() == [FINISHED, OPEN]
    graph = graph_with(("lives", "a", "owl:InverseFunctionalProperty"))
    rules, lives = RelationRules(graph), number(graph, "lives")
    assert rules.expectation(asked, KnownTriples.of_graph(graph, "train")).tolist() == [OPEN, FINISHED]
    outside = rules.outside(lives + graph.num_relations, "fitting")
    assert outside[graph.nodes[BASE + "thun"]]  # somebody lives there already


def test_which_way_a_relation_goes_may_be_said_where_triples_show_otherwise():
    both = [("ann", "knows", "bob"), ("bob", "knows", "ann"), ("ann", "near", "bob"), ("it", "likes", "it")]
    plain = RelationRules(graph_with(facts=both))
    said = [("knows", "a", "owl:AsymmetricProperty"), ("near", "a", "owl:SymmetricProperty")]
    said += [("likes", "a", "owl:IrreflexiveProperty"), ("lives", "a", "owl:ReflexiveProperty")]
    graph = graph_with(*said, facts=both)
    rules, of = RelationRules(graph), {name: number(graph, name) for name in ("knows", "near", "likes", "lives")}
    assert [bool(plain.one_way[of[name]]) for name in ("knows", "near")] == [False, True]
    assert [bool(rules.one_way[of[name]]) for name in ("knows", "near")] == [True, False]
    assert [bool(plain.without_loops[of[name]]) for name in ("likes", "lives")] == [False, True]
    assert [bool(rules.without_loops[of[name]]) for name in ("likes", "lives")] == [True, False]


def test_an_inverse_shows_who_stands_at_the_other_end():
    graph = graph_with(("lives", "inverse", "home_of"), facts=[("ulm", "home_of", "eve")])
    rules, lives, home = RelationRules(graph), number(graph, "lives"), number(graph, "home_of")
    assert names(graph, rules.objects(lives, "seen")) == {"bern", "thun", "ulm"}
    assert names(graph, rules.subjects(lives, "seen")) == {"ann", "bob", "eve"}
    assert names(graph, rules.subjects(home, "seen")) == {"bern", "thun", "ulm"}
    assert names(graph, rules.objects(home, "seen")) == {"ann", "bob", "eve"}
    index = KnownTriples.of_graph(graph, "train")
    asked = Questions(torch.tensor([graph.nodes[BASE + "eve"]]), torch.tensor([lives]))
    assert rules.expectation(asked, index).tolist() == [OPEN]


def test_circles_of_subclasses_do_no_harm():
    graph = graph_with(("lives", "range", "Town"), ("Place", "under", "Capital"))
    town = graph.nodes[BASE + "Town"]
    assert names(graph, Declared.by(graph).members[town]) == {"bern", "thun"}
