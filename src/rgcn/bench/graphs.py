"""The graphs to measure on: data sets by name, files, and drawn graphs of any size.

A drawn graph has the size of a published one (or any other) and edges from a random generator: good for measuring time
and memory where the real files are not at hand, and for nothing else; accuracies on it mean nothing.
"""

import io
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rgcn.data import load
from rgcn.data.catalog import CATALOG, NODE_CLASSIFICATION, find
from rgcn.data.graph_store import load_graph
from rgcn.data.registry import sources
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels, Vocabulary
from rgcn.system.atomic_files import write_atomically


class Shape(NamedTuple):
    """How large a graph is: what a drawn one is made from."""

    nodes: int
    relations: int
    edges: int
    labelled: int
    train: int
    classes: int


# The published counts: BGS and AM after pruning to two hops of the labelled nodes, and AM whole.
SHAPES = {
    "bgs-shaped": Shape(87_688, 70, 230_698, 146, 117, 2),
    "am-shaped": Shape(246_728, 122, 875_946, 1_000, 802, 11),
    "am-full-shaped": Shape(1_666_764, 133, 5_988_321, 1_000, 802, 11),
}
# Its triples alone take 24 GB; a larger number is a slip of the finger.
MOST_EDGES = 10**9
ARRAYS = ("triples", "nodes", "relations", "classes", "train", "test", "label")


def find_graph(name: str) -> KnowledgeGraph:
    """The graph a word on the command line stands for; a known name wins over a folder called the same.

    >>> find_graph("random-200")
    KnowledgeGraph('random-200', 50 nodes, 12 relations, 200 triples, 5 labels in 2 classes)
    """
    if name in SHAPES:
        return shaped(SHAPES[name], name)
    drawn = re.fullmatch(r"random-(\d+(?:e\d+)?)", name)
    if drawn:
        return shaped(random_shape(int(float(drawn[1]))), name)
    if name.endswith(".npz"):
        return graph_from_npz(Path(name))
    if name.lower() in CATALOG:
        return _labelled(load(name.lower()), name)
    if (Path(name) / "graph.json").exists():
        return _labelled(load_graph(Path(name)), name)
    known = [dataset.name for dataset in CATALOG.values() if NODE_CLASSIFICATION in dataset.tasks]
    raise ConfigError(
        f"no graph {name!r}: give one of {', '.join([*known, *SHAPES])}; random-N for N drawn edges; an .npz file; "
        "or the folder of a saved graph"
    )


def default_graphs() -> list[str]:
    """AIFB and MUTAG where they are on this machine; else the embedded graph. Nothing is fetched."""
    places = sources()
    here = [name for name in ("aifb", "mutag") if places.whereabouts(find(name)) != "not here"]
    return here or ["world"]


def _labelled(graph: KnowledgeGraph, name: str) -> KnowledgeGraph:
    if graph.labels is None or not len(graph.labels.of("train")[0]):
        raise DataError(f"{name}: a training step needs labelled nodes, and this graph has none to learn from")
    return graph


def random_shape(num_edges: int) -> Shape:
    """A shape with about four edges a node, fifty relations and up to a thousand labelled nodes.

    >>> random_shape(100_000)
    Shape(nodes=25000, relations=50, edges=100000, labelled=1000, train=800, classes=10)
    """
    if not 100 <= num_edges <= MOST_EDGES:
        raise ConfigError(f"a drawn graph needs at least 100 edges and at most {MOST_EDGES:,}, not {num_edges:,}")
    nodes = num_edges // 4
    labelled = max(5, min(1000, nodes // 10))
    test = labelled // 5
    return Shape(nodes, min(50, nodes // 4), num_edges, labelled, labelled - test, max(2, min(10, test)))


def shaped(shape: Shape, name: str = "") -> KnowledgeGraph:
    """A drawn graph of exactly this size; the same shape always gives the same graph.

    A tree of two levels ties every node to a labelled one within two hops: labelled nodes are the roots, a third of the
    others hang from roots, the rest from those. Its edges point either way. All further edges go from any node to an
    object that is popular with probability 1 / rank in half of the cases, and any node in the other half. Relations
    are drawn with frequencies 1 / rank, and each occurs. No triple occurs twice.
    """
    spare = shape.nodes - shape.labelled
    if not (shape.relations <= spare <= shape.edges and shape.classes <= shape.train <= shape.labelled):
        raise ConfigError(f"no graph has the shape {shape}: too few edges, nodes or labels")
    rng = np.random.default_rng(shape)
    ids = rng.permutation(shape.nodes)
    roots, inner, outer = np.split(ids, [shape.labelled, shape.labelled + max(1, spare // 3)])

    child = np.concatenate([inner, outer])
    parent = np.concatenate([rng.choice(roots, len(inner)), inner[_by_rank(rng, len(inner), len(outer))]])
    forward = rng.random(spare) < 0.5
    relation = _by_rank(rng, shape.relations, spare)
    relation[rng.permutation(spare)[: shape.relations]] = np.arange(shape.relations)  # each one occurs
    tree = np.where(forward, child, parent), relation, np.where(forward, parent, child)

    # One number for each triple: sorting and comparing numbers is much faster than rows.
    sizes = shape.nodes, shape.relations, shape.nodes
    keys = np.sort(np.ravel_multi_index(tree, sizes))  # a tree's edges differ already
    while len(keys) < shape.edges:  # again for those that were drawn twice
        missing = shape.edges - len(keys)
        popular = ids[_by_rank(rng, shape.nodes, missing)]
        object_ = np.where(rng.random(missing) < 0.5, popular, rng.integers(shape.nodes, size=missing))
        drawn = rng.integers(shape.nodes, size=missing), _by_rank(rng, shape.relations, missing), object_
        keys = np.union1d(keys, np.ravel_multi_index(drawn, sizes))
    triples = np.stack(np.unravel_index(rng.permutation(keys), sizes), axis=1)

    train, test = np.split(roots, [shape.train])
    label = np.concatenate([rng.permutation(np.arange(len(part)) % shape.classes) for part in (train, test)])
    parts = (triples, shape.nodes, shape.relations, shape.classes, train, test, label)
    return _graph(dict(zip(ARRAYS, parts, strict=True)), name or f"random-{shape.edges}")


def _by_rank(rng: np.random.Generator, count: int, size: int) -> NDArray[np.int64]:
    """int64 [size] below `count`, k with a probability proportional to log((k + 2) / (k + 1)), about 1 / (k + 1)."""
    drawn = np.exp(rng.random(size) * np.log(count + 1)).astype(np.int64) - 1
    return np.asarray(np.minimum(drawn, count - 1))


def _graph(arrays: Mapping[str, Any], name: str) -> KnowledgeGraph:
    """The graph of ARRAYS, whose things are called by their numbers."""
    node, relation, class_ = (
        Vocabulary(map(str, range(int(arrays[kinds]))), kind=kind)
        for kinds, kind in (("nodes", "node"), ("relations", "relation"), ("classes", "class"))
    )
    train, test = arrays["train"], arrays["test"]
    splits = np.repeat([SPLITS.index("train"), SPLITS.index("test")], [len(train), len(test)]).astype(np.int8)
    labels = NodeLabels(np.concatenate([train, test]), arrays["label"], class_, splits)
    return KnowledgeGraph(arrays["triples"], node, relation, labels=labels, name=name)


def graph_to_npz(graph: KnowledgeGraph, path: Path) -> None:
    """The numbers of a graph in one file that needs nothing but numpy to be read; names and features stay behind.

    triples int64 [edges, 3]; nodes, relations, classes: counts; train, test: node ids; label: classes of train, then
    of test.
    """
    labels = _labelled(graph, graph.name).labels
    assert labels is not None
    (train, train_classes), (test, test_classes) = labels.of("train"), labels.of("test")
    counts = (graph.num_nodes, graph.num_relations, labels.num_classes)
    parts: Any = (graph.triples, *counts, train, test, np.concatenate([train_classes, test_classes]))
    content = io.BytesIO()
    np.savez(content, **dict(zip(ARRAYS, parts, strict=True)))
    write_atomically(path, content.getvalue())


def graph_from_npz(path: Path) -> KnowledgeGraph:
    """Read what `graph_to_npz` wrote."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in ARRAYS if key in file}
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not an .npz file of plain arrays ({error})") from error
    missing = [key for key in ARRAYS if key not in arrays]
    if missing:
        raise DataError(f"{path}: no graph in it: {', '.join(missing)} missing of {', '.join(ARRAYS)}")
    _check_arrays(path, arrays)
    return _labelled(_graph(arrays, path.stem), str(path))


def _check_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Refuse what is no graph before names are made for its nodes: a wrong count could ask for all the memory."""
    triples, label, counts = arrays["triples"], arrays["label"], {key: arrays[key] for key in ARRAYS[1:4]}
    labelled = np.concatenate([arrays["train"], arrays["test"]])
    whole = all(array.dtype.kind in "iu" for array in (*arrays.values(), labelled))
    if not whole or triples.ndim != 2 or triples.shape[1] != 3 or any(number.ndim for number in counts.values()):
        raise DataError(f"{path}: triples must be integers [edges, 3]; nodes, relations and classes one integer each")
    if not len(triples):
        raise DataError(f"{path}: there are no triples in it")
    for what, number in counts.items():
        if not 0 < number <= 10 * (2 * len(triples) + len(labelled)):
            raise DataError(f"{path}: {number:,} {what} for {len(triples):,} triples: the count is wrong")
    if labelled.ndim != 1 or label.shape != labelled.shape:
        raise DataError(f"{path}: {labelled.size} labelled nodes, but {label.size} labels")
    nodes, relations, classes = counts.values()
    ranges = ((triples[:, [0, 2]], nodes), (triples[:, 1], relations), (labelled, nodes), (label, classes))
    if any(ids.size and (ids.min() < 0 or ids.max() >= bound) for ids, bound in ranges):
        raise DataError(f"{path}: a node, relation or class number lies outside the counts the file gives")
