"""Classify nodes of an RDF file: predict the region of a country from its borders, exports and climate.

    python examples/classes_from_rdf.py                           # a graph of countries, written out as Turtle first
    python examples/classes_from_rdf.py mine.nt.gz http://example.org/affiliation

The objects of one predicate become the classes. The predicate is removed from the graph, so the model cannot read the
answer.
"""

import sys
import tempfile
from pathlib import Path

import rgcn
from rgcn.data.node_tables import LabelRelation


def countries_as_turtle(folder: Path) -> tuple[Path, str]:
    """Write the graph `world` as Turtle, with the regions as triples, and return the path and the predicate."""
    world, region = rgcn.load("world"), "urn:rgcn:relation:region"
    facts = [(world.nodes[s], world.relations[r], world.nodes[o]) for s, r, o in world.triples]
    facts += [
        (world.nodes[node], "region", world.labels.names[label])
        for node, label in zip(world.labels.nodes, world.labels.classes, strict=True)
    ]
    path = folder / "countries.ttl"
    rgcn.KnowledgeGraph.from_triples(facts).to_rdf(path)
    return path, region


def main(path: Path, predicate: str) -> float:
    kg = rgcn.read(path, labels_from=LabelRelation(predicate, split=(0.6, 0.2, 0.2)))
    print(f"{path.name}: {kg.num_triples:,} triples about {kg.num_nodes:,} things; {kg.labels}")

    classifier = rgcn.NodeClassifier(model="e-rgcn", seed=0, epochs=100, patience=20).fit(kg)
    accuracy = classifier.score(kg, split="test")
    print(f"accuracy on held-out labels {accuracy:.0%}, {kg.labels.num_classes} classes\n")

    nodes, classes = kg.labels.of("test")
    for guess, node, label in zip(classifier.predict(nodes[:10]), nodes, classes, strict=False):
        truth = kg.labels.names[label]
        verdict = "" if guess == truth else f"   (correct: {short(truth)})"
        print(f"  {short(kg.nodes[node]):28} {short(guess):24}{verdict}")
    return accuracy


def short(name: str) -> str:
    return name.rsplit(":", 1)[-1].rsplit("/", 1)[-1].replace("%20", " ")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(Path(sys.argv[1]), sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(*countries_as_turtle(Path(folder)))
