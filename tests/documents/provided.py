"""Prepare what the Python blocks of the documents need: small graphs, models, files and a package. A block names it in
a comment above, `<!-- test: aifb -->`, by the names of these functions.
"""

from __future__ import annotations

import gzip
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rgcn
from rgcn.cli import main
from rgcn.graph import KnowledgeGraph

PROVIDED: dict[str, Callable[[Here], None]] = {}
PERSON = "http://www.aifb.uni-karlsruhe.de/Personen/viewPersonOWL/id{}instance"
ONTOLOGY = "http://swrc.ontoware.org/ontology#"
LOSSES = """
from rgcn.training.objectives import SoftmaxCrossEntropy


class Softmax(SoftmaxCrossEntropy):
    pass
"""


@dataclass
class Here:
    """The environment in which the blocks of a document run: an empty folder, and the names defined so far."""

    folder: Path
    names: dict[str, Any]
    patch: pytest.MonkeyPatch

    def data_set(self, name: str, graph: KnowledgeGraph) -> None:
        """Make `rgcn.load(name)` return this graph."""
        load = rgcn.load
        self.patch.setattr(
            rgcn, "load", lambda requested, **how: graph if requested == name else load(requested, **how)
        )

    def command(self, *words: str) -> None:
        """Run `rgcn WORDS`."""
        self.patch.setattr(sys, "argv", ["rgcn", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code

    def write(self, path: str, text: str) -> None:
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


def provided(make: Callable[[Here], None]) -> Callable[[Here], None]:
    PROVIDED[make.__name__.replace("_", "-")] = make
    return make


@provided
def aifb(here: Here) -> None:
    """The data set, a tenth of its size, and a classifier of it in runs/aifb."""
    people = [1909, 2062, *range(3000, 3022)]
    lines, labels = [], []
    for number, person in enumerate(people):
        iri, group = PERSON.format(person), "ab"[number % 2]
        name = "York Sure" if person == 1909 else f"Person {person}"
        lines += [
            f'<{iri}> <{ONTOLOGY}name> "{name}" .',
            f"<{iri}> <{ONTOLOGY}worksAtProject> <http://example.org/project-{group}-{number % 3}> .",
            f"<http://example.org/project-{group}-{number % 3}> <{ONTOLOGY}isAbout> <http://example.org/{group}> .",
        ]
        labels.append(f"{iri},{group}")
    here.write("small/aifb.nt", "\n".join(lines) + "\n")
    for split, rows in (("train", labels[:18]), ("test", labels[18:])):
        here.write(f"small/{split}.csv", "\n".join(["node,class", *rows]) + "\n")
    files = {split: here.folder / "small" / f"{split}.csv" for split in ("train", "test")}
    graph = rgcn.read(here.folder / "small" / "aifb.nt", labels=files)
    here.data_set("aifb", graph)
    rgcn.NodeClassifier(epochs=20).fit(graph).save("runs/aifb")


@provided
def small_world(here: Here) -> None:
    """`world` with some countries alone."""
    world = rgcn.load("world")
    countries = [world.names.node(name) for name in ("Switzerland", "Peru", "Chile")]
    here.data_set("world", world.subgraph(np.unique([*countries, *world.labels.nodes[:60]])))


@provided
def own_classes(here: Here) -> None:
    """A decoder, and an objective in the package `mypackage`."""
    from rgcn.nn.decoders import DistMult

    here.names["MyDecoder"] = type("MyDecoder", (DistMult,), {"__module__": "__main__"})
    package(here)


@provided
def package(here: Here) -> None:
    """A package `mypackage` with an objective."""
    here.write("mypackage/__init__.py", "")
    here.write("mypackage/losses.py", LOSSES)


@provided
def states(here: Here) -> None:
    """A vector x of 64 numbers for each node of `kg`."""
    here.names["x"] = torch.randn(here.names["kg"].num_nodes, 64)


@provided
def graph(here: Here) -> None:
    """A graph `kg`, which is also in graph/, mine.nt and graph.edges.gz; and people.ages, numbers of some nodes."""
    triples = related(30, ("knows", "likes"))
    here.names["kg"] = KnowledgeGraph.from_triples(triples)
    here.write("graph/train.tsv", "".join("\t".join(triple) + "\n" for triple in triples))
    iris = ((f"http://example.org/{name}" for name in triple) for triple in triples)
    here.write("mine.nt", "".join("<{}> <{}> <{}> .\n".format(*triple) for triple in iris))
    here.write("people.csv", "node,label\n" + "".join(f"http://example.org/n{i},{'ab'[i % 2]}\n" for i in range(20)))
    here.write("people.ages", "".join(f"http://example.org/n{i} {20 + i}\n" for i in range(20)))
    edges = "".join(f"{start} {end}\n" for start, _, end in triples)
    (here.folder / "graph.edges.gz").write_bytes(gzip.compress(edges.encode()))


@provided
def staff(here: Here) -> None:
    """staff.csv, a sheet with one row for each person."""
    here.write("staff.csv", "name,department,office,manager\nAda,Research,Berlin,\nBen,Research,Berlin,Ada\n")


@provided
def wn18(here: Here) -> None:
    """A link predictor in runs/wn18 that knows dogs."""
    nodes = ["dog.n.01", "canine.n.02", "animal.n.01", *(f"n{i}.n.01" for i in range(40))]
    triples = related(len(nodes), ("hypernym", "hyponym"), nodes)
    model = rgcn.LinkPredictor(encoder="none", embedding=8, steps=20, validation=0.3)
    model.fit(KnowledgeGraph.from_triples(triples)).save("runs/wn18")


@provided
def fb237(here: Here) -> None:
    """A path model in runs/path-lp-fb237-v1, and a graph of its relations with a test split as fb237-v1-ind."""
    relations = ("/people/person/nationality", "/people/person/profession")
    known = KnowledgeGraph.from_triples(related(20, relations))
    rgcn.LinkPredictor("path", layers=2, width=8, steps=2).fit(known).save("runs/path-lp-fb237-v1")
    other = related(30, relations, ["/m/0gdh5", *(f"/m/{i}" for i in range(29))])
    here.data_set("fb237-v1-ind", KnowledgeGraph.from_triples(other).split(0.1, 0.2, seed=0))


@provided
def embedded(here: Here) -> None:
    """nodes.npz, which `rgcn embed` wrote."""
    aifb(here)
    here.command("embed", "runs/aifb", "--out", "nodes.npz")


@provided
def exported(here: Here) -> None:
    """encoder.pt2, which `rgcn export` wrote."""
    aifb(here)
    here.command("export", "runs/aifb", "--out", "encoder.pt2")


def related(count: int, relations: tuple[str, ...], nodes: list[str] | None = None) -> list[tuple[str, str, str]]:
    """Triples between `count` nodes, several for each node."""
    names = nodes or [f"n{i}" for i in range(count)]
    ends = ((a, b) for a, b in itertools.product(range(count), repeat=2) if (b - a) % count in (1, 2, 5))
    return [(names[a], relations[(a + b) % len(relations)], names[b]) for a, b in ends]
