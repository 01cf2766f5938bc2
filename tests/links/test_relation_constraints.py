"""Compare relation constraints with a naive implementation; test RDFS and OWL declarations."""

import math

import numpy as np
import pytest
import torch

from naive_rules import NaiveRules
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.links.relation_constraints import (
    ANSWERED,
    DEFAULT_MISSING_SHARE,
    IMPLAUSIBLE,
    MAX_EXCEPTION_SHARE,
    OPEN,
    OWL,
    RDF,
    RDFS,
    OntologyDeclarations,
    RelationConstraints,
    relation_constraints,
)
from rgcn.nn.scorer import Questions
from rgcn.predict.questions import question_note
from rgcn.sampling.known_triples import KnownTriples
from small_models import graph_of_kinds, random_graph

GRAPHS = [
    graph_of_kinds(0),
    graph_of_kinds(1, splits=False),
    random_graph(2, literals=3),
    random_graph(3, nodes=40, relations=6, triples=90, splits=False),
    random_graph(4, nodes=12, relations=2, triples=300, splits=False),
    random_graph(5, nodes=30, relations=9, triples=40),
]


def place_number(graph, place):
    return place[0] + place[1] * graph.num_relations


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_relation_properties_follow_from_triples(graph):
    rules, naive = RelationConstraints(graph), NaiveRules(graph)
    profiles = rules.profiles()
    assert [profile.relation for profile in profiles] == list(naive.relations)
    for r, profile in enumerate(profiles):
        assert rules.reciprocal_share[r] == profile.both_ways == pytest.approx(naive.both_ways(r))
        assert rules.loop_share[r] == profile.loops == pytest.approx(naive.loops(r))
        assert bool(rules.is_one_way[r]) == naive.is_one_way(r)
        assert bool(rules.is_irreflexive[r]) == naive.is_without_loops(r)
        assert profile.triples == len(naive.of(r))
        assert (profile.subjects, profile.objects) == (len(naive.seen((r, 0))), len(naive.seen((r, 1))))
        for end, share in ((0, profile.single_object), (1, profile.single_subject)):
            assert share == pytest.approx(naive.once((r, end)) / max(len(naive.seen((r, end))), 1))
            assert bool(rules.is_single[place_number(graph, (r, end))]) == naive.is_single((r, end))
        assert ("one object each" in profile.rules) == naive.is_single((r, 0))
        assert ("one subject each" in profile.rules) == naive.is_single((r, 1))
        assert ("one way" in profile.rules) == (naive.is_one_way(r) and profile.triples > 0)
        assert ("both ways" in profile.rules) == (naive.both_ways(r) >= 1 - MAX_EXCEPTION_SHARE)
        assert ("never itself" in profile.rules) == (naive.is_without_loops(r) and profile.triples > 0)
        assert not any(rule.startswith("declared") for rule in profile.rules)


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_allowed_nodes_equal_the_naive_definition(graph):
    rules, naive = RelationConstraints(graph), NaiveRules(graph)
    for place in naive.places:
        relation, end = place
        number = place_number(graph, place)
        assert rules.is_open(number) == naive.is_open(place)
        theirs = naive.objects if end else naive.subjects
        for kinds in ("seen", "fitting", "any"):
            assert rules.nodes_of(number, kinds).tolist() == sorted(theirs(relation, kinds))
            excluded_nodes = set(np.flatnonzero(rules.excluded_nodes(number, kinds).numpy()).tolist())
            assert excluded_nodes == set(naive.nodes) - naive.answers(place, kinds)
            assert rules.excluded_nodes(number, kinds) is rules.excluded_nodes(number, kinds)


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_question_status_equals_the_naive_definition(graph):
    rules, naive, index = RelationConstraints(graph), NaiveRules(graph), KnownTriples.of_graph(graph, "train")
    splits = graph.triple_splits
    missing = (
        DEFAULT_MISSING_SHARE if splits is None or not (splits == 1).any() else (splits == 1).sum() / len(naive.train)
    )
    nodes, relations = (of.flatten() for of in torch.meshgrid(
        torch.arange(graph.num_nodes), torch.arange(graph.num_relations), indexing="ij"
    ))  # fmt: skip
    for for_objects in (True, False):
        questions = Questions(nodes, relations, for_objects)
        expected, known = rules.question_status(questions, index), rules.num_known_answers(index, questions)
        further = list(map(rules.probability_of_more, rules.question_slot(questions).tolist(), known.tolist()))
        exempt = rules.question_status(questions, index, new=(0, 5))
        for i, (node, relation) in enumerate(zip(nodes.tolist(), relations.tolist(), strict=True)):
            place = (relation, int(not for_objects))
            assert known[i] == naive.times(node, place)
            assert expected[i] == naive.question_status(node, place, int(known[i]))
            assert exempt[i] == naive.question_status(node, place, int(known[i]), new=(0, 5))
            if i % 5 == 0:
                assert further[i] == pytest.approx(naive.further(place, int(known[i]), missing), rel=1e-6)
        assert all(0 <= chance <= 1 for chance in further)


def test_a_further_answer_is_likelier_if_other_nodes_have_more_answers():
    """With one capital per country none is missing; if most nodes have ten answers, nine are incomplete."""
    one = [(f"c{i}", "capital", f"t{i}") for i in range(30)]
    many = [(f"c{i}", "exports", f"g{j}") for i in range(30) for j in range(10 if i else 9)]
    graph = KnowledgeGraph.from_triples(one + many)
    rules = relation_constraints(graph)
    capital, exports = graph.relations["capital"], graph.relations["exports"]
    assert rules.probability_of_more(capital, 1) < 0.05 < rules.probability_of_more(exports, 9)
    assert rules.probability_of_more(exports, 9) > rules.probability_of_more(exports, 10)
    seldom, often = (RelationConstraints(graph) for _ in range(2))
    seldom._missing_share, often._missing_share = 0.01, 0.3
    for known in range(1, 15):
        assert seldom.probability_of_more(exports, known) <= often.probability_of_more(exports, known)


def test_constraints_are_cached_per_graph_and_use_training_triples_only():
    graph = graph_of_kinds(3)
    assert relation_constraints(graph) is relation_constraints(graph)
    only = KnowledgeGraph(graph.split_triples("train"), graph.nodes, graph.relations)
    assert RelationConstraints(only).profiles() == RelationConstraints(graph).profiles()


def test_a_question_has_a_note_if_its_status_is_special():
    graph = graph_of_kinds(1, splits=False)
    titles, rules, index = Titles(graph), relation_constraints(graph), KnownTriples.of_graph(graph, "train")

    def note(node, relation, for_objects=True, *shown):
        number = graph.relations[relation]
        questions = Questions(torch.tensor([node]), torch.tensor([number]), for_objects)
        return question_note(titles, node, number, for_objects, int(rules.question_status(questions, index)[0]), *shown)

    assert note(2, "capital") == "known: n16; no other answer is expected"
    assert note(16, "capital", False) == "known: n2; no other answer is expected"
    assert note(30, "in") == "n30 is not expected as a subject of in: no similar node is one"
    assert note(34, "borders", False) == "n34 is not expected as an object of borders: no similar node is one"
    assert note(12, "capital") is None
    nothing_missing = "1 known; probably nothing is missing here"
    assert note(20, "odd", False) == nothing_missing
    assert note(20, "odd", False, [0.3, math.nan, 0.2]) == nothing_missing
    assert note(20, "odd", False, [0.6, math.nan]) is None
    assert note(20, "odd", False, [0.3, 0.3, 0.3]) is None  # one of the three is more likely right than not
    assert note(3, "never") is None


# -- what a file declares ---------------------------------------------------------------------------------

BASE = "http://example.org/"
TYPE = f"{RDF}type"


def graph_with(*declared, facts=()):
    """Build a graph about towns, people and things, with declarations in short notation."""
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


def test_graphs_without_an_ontology_declare_no_constraints():
    graph = KnowledgeGraph.from_triples([("a", "r", "b")])
    declared = OntologyDeclarations.from_graph(graph)
    assert not declared.characteristics
    assert not declared.classes
    assert not declared.is_single.any()
    assert declared.equivalent_slots(1) == [1]
    assert declared.describe(0) == []


def test_domain_and_range_have_members_of_subclasses_and_not_of_other_classes():
    graph = graph_with(("lives", "range", "Town"), ("lives", "domain", "Person"))
    rules, lives = RelationConstraints(graph), number(graph, "lives")
    assert names(graph, rules.nodes_of(lives + rules.num_relations, "fitting")) >= {"bern", "thun"}
    assert not names(graph, rules.nodes_of(lives + rules.num_relations, "fitting")) & {"ann", "bob"}
    assert names(graph, rules.nodes_of(lives, "fitting")) >= {"ann", "bob"}
    assert not names(graph, rules.nodes_of(lives, "fitting")) & {"bern", "thun"}
    kind = graph.nodes[BASE + "Town"]
    assert names(graph, rules.declared.members[kind]) == {"bern", "thun"}
    non_members = names(graph, rules.declared.non_members[kind])
    assert non_members >= {"ann", "bob"}
    assert not non_members & {
        "it",
        "one",
    }  # a thing may be a town for all we know, and so may what is said to be anything
    assert {"declared range " + BASE + "Town", "declared domain " + BASE + "Person"} <= set(
        rules.profiles()[lives].rules
    )
    questions = Questions(torch.tensor([graph.nodes[BASE + "bern"]]), torch.tensor([lives]))
    assert rules.question_status(questions, KnownTriples.of_graph(graph, "train")).tolist() == [IMPLAUSIBLE]


def test_unseen_members_of_the_range_are_allowed():
    graph = graph_with(("lives", "range", "Town"), facts=[("ulm", "a", "Town")])
    objects = number(graph, "lives") + graph.num_relations
    assert "ulm" in names(graph, RelationConstraints(graph).nodes_of(objects, "fitting"))
    assert "ulm" not in names(graph, RelationConstraints(graph).nodes_of(objects, "seen"))


@pytest.mark.parametrize("with_what", ["Town", "Place"])
def test_members_of_disjoint_classes_are_excluded(with_what):
    also = [("ghost", "a", "Thing"), ("ghost", "a", "Spirit")]
    without = graph_with(("lives", "range", "Town"), facts=also)
    assert "ghost" not in names(
        without, OntologyDeclarations.from_graph(without).non_members[without.nodes[BASE + "Town"]]
    )
    for pair in (("Spirit", with_what), (with_what, "Spirit")):
        graph = graph_with(("lives", "range", "Town"), (pair[0], "apart", pair[1]), facts=also)
        assert "ghost" in names(graph, OntologyDeclarations.from_graph(graph).non_members[graph.nodes[BASE + "Town"]])


def test_all_of_several_ranges_apply_in_any_order():
    found = []
    for kinds in (("Town", "Person"), ("Person", "Town")):
        graph = graph_with(*(("lives", "range", kind) for kind in kinds))
        objects = number(graph, "lives") + graph.num_relations
        found.append(names(graph, RelationConstraints(graph).nodes_of(objects, "fitting")))
    assert found[0] == found[1]
    assert not found[0] & {"ann", "bob", "bern", "thun"}


def test_functional_and_inverse_functional_without_many_triples():
    graph = graph_with(("lives", "a", "owl:FunctionalProperty"))
    rules, lives = RelationConstraints(graph), number(graph, "lives")
    assert rules.is_single[lives]
    assert not rules.is_single[lives + graph.num_relations]
    assert "declared functional" in rules.profiles()[lives].rules
    index, ann, thun = KnownTriples.of_graph(graph, "train"), graph.nodes[BASE + "ann"], graph.nodes[BASE + "thun"]
    questions = Questions(torch.tensor([ann, thun]), torch.tensor([lives] * 2), torch.tensor([True, False]))
    assert rules.question_status(questions, index).tolist() == [ANSWERED, OPEN]
    graph = graph_with(("lives", "a", "owl:InverseFunctionalProperty"))
    rules, lives = RelationConstraints(graph), number(graph, "lives")
    assert rules.question_status(questions, KnownTriples.of_graph(graph, "train")).tolist() == [OPEN, ANSWERED]
    excluded_nodes = rules.excluded_nodes(lives + graph.num_relations, "fitting")
    assert excluded_nodes[graph.nodes[BASE + "thun"]]  # the town has an inhabitant already


def test_a_declared_direction_overrides_the_triples():
    both = [("ann", "knows", "bob"), ("bob", "knows", "ann"), ("ann", "near", "bob"), ("it", "likes", "it")]
    plain = RelationConstraints(graph_with(facts=both))
    declarations = [("knows", "a", "owl:AsymmetricProperty"), ("near", "a", "owl:SymmetricProperty")]
    declarations += [("likes", "a", "owl:IrreflexiveProperty"), ("lives", "a", "owl:ReflexiveProperty")]
    graph = graph_with(*declarations, facts=both)
    rules, of = RelationConstraints(graph), {name: number(graph, name) for name in ("knows", "near", "likes", "lives")}
    assert [bool(plain.is_one_way[of[name]]) for name in ("knows", "near")] == [False, True]
    assert [bool(rules.is_one_way[of[name]]) for name in ("knows", "near")] == [True, False]
    assert [bool(plain.is_irreflexive[of[name]]) for name in ("likes", "lives")] == [False, True]
    assert [bool(rules.is_irreflexive[of[name]]) for name in ("likes", "lives")] == [True, False]


def test_inverse_declarations_extend_domain_and_range():
    graph = graph_with(("lives", "inverse", "home_of"), facts=[("ulm", "home_of", "eve")])
    rules, lives, home = RelationConstraints(graph), number(graph, "lives"), number(graph, "home_of")
    assert names(graph, rules.nodes_of(lives + rules.num_relations, "seen")) == {"bern", "thun", "ulm"}
    assert names(graph, rules.nodes_of(lives, "seen")) == {"ann", "bob", "eve"}
    assert names(graph, rules.nodes_of(home, "seen")) == {"bern", "thun", "ulm"}
    assert names(graph, rules.nodes_of(home + rules.num_relations, "seen")) == {"ann", "bob", "eve"}
    index = KnownTriples.of_graph(graph, "train")
    questions = Questions(torch.tensor([graph.nodes[BASE + "eve"]]), torch.tensor([lives]))
    assert rules.question_status(questions, index).tolist() == [OPEN]


def test_cycles_of_subclasses_are_supported():
    graph = graph_with(("lives", "range", "Town"), ("Place", "under", "Capital"))
    town = graph.nodes[BASE + "Town"]
    assert names(graph, OntologyDeclarations.from_graph(graph).members[town]) == {"bern", "thun"}
