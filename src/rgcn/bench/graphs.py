"""Graphs to measure on: data sets by name, files, and random graphs of any size.

A random graph has the size of a published one, or another, and random edges. It serves to measure time and memory where
the real files are missing; accuracies on it mean nothing.
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
from rgcn.data.catalog import CATALOG, NODE_CLASSIFICATION, find_dataset
from rgcn.data.graph_store import load_graph
from rgcn.data.registry import Sources
from rgcn.errors import ConfigError, DataError
from rgcn.graph import SPLITS, KnowledgeGraph, NodeLabels, Vocabulary
from rgcn.system.atomic_files import write_atomically


class Shape(NamedTuple):
    """The size of a graph."""

    nodes: int
    relations: int
    edges: int
    labeled: int
    train: int
    classes: int


# Published sizes: BGS and AM after pruning to two hops around the labeled nodes, and all of AM.
SHAPES = {
    "bgs-shaped": Shape(87_688, 70, 230_698, 146, 117, 2),
    "am-shaped": Shape(246_728, 122, 875_946, 1_000, 802, 11),
    "am-full-shaped": Shape(1_666_764, 133, 5_988_321, 1_000, 802, 11),
}
# The triples of such a graph take 24 GB; a larger number is probably a typo.
MAX_RANDOM_EDGES = 10**9
ARRAYS = ("triples", "nodes", "relations", "classes", "train", "test", "label")


def find_graph(name: str) -> KnowledgeGraph:
    """Return the graph with this name; a known name takes precedence over a folder of the same name.

    >>> find_graph("random-200")
    KnowledgeGraph('random-200', 50 nodes, 12 relations, 200 triples, 5 labels in 2 classes)
    """
    if name in SHAPES:
        return random_graph(SHAPES[name], name)
    if match := re.fullmatch(r"random-(\d+(?:e\d+)?)", name):
        return random_graph(random_shape(int(float(match[1]))), name)
    if name.endswith(".npz"):
        return graph_from_npz(Path(name))
    if name.lower() in CATALOG:
        return _require_labels(load(name.lower()), name)
    if (Path(name) / "graph.json").exists():
        return _require_labels(load_graph(Path(name)), name)
    known = [dataset.name for dataset in CATALOG.values() if NODE_CLASSIFICATION in dataset.tasks]
    raise ConfigError(
        f"there is no graph {name!r}: give one of {', '.join([*known, *SHAPES])}; random-N for N random edges; an .npz "
        "file; or the folder of a saved graph"
    )


def default_graphs() -> list[str]:
    """Return AIFB and MUTAG if they are on this machine, else the embedded graph; never download."""
    places = Sources()
    here = [name for name in ("aifb", "mutag") if places.find_location(find_dataset(name)) != "not here"]
    return here or ["world"]


def _require_labels(graph: KnowledgeGraph, name: str) -> KnowledgeGraph:
    if graph.labels is None or not len(graph.labels.of("train")[0]):
        raise DataError(f"{name}: no node of this graph has a label to train on: use a graph with labeled nodes")
    return graph


def random_shape(num_edges: int) -> Shape:
    """Return a shape with about four edges per node, fifty relations and up to a thousand labeled nodes.

    >>> random_shape(100_000)
    Shape(nodes=25000, relations=50, edges=100000, labeled=1000, train=800, classes=10)
    """
    if not 100 <= num_edges <= MAX_RANDOM_EDGES:
        raise ConfigError(f"a random graph must have 100 to {MAX_RANDOM_EDGES:,} edges, not {num_edges:,}")
    nodes = num_edges // 4
    labeled = max(5, min(1000, nodes // 10))
    test = labeled // 5
    return Shape(nodes, min(50, nodes // 4), num_edges, labeled, labeled - test, max(2, min(10, test)))


def random_graph(shape: Shape, name: str = "") -> KnowledgeGraph:
    """Draw a random graph of exactly this size; the same shape always gives the same graph.

    A tree of two levels connects every node to a labeled one within two hops: labeled nodes are the roots, a third of
    the others are their children, and the rest are children of these. Its edges have random directions. Further edges
    start at any node; half of them end at a popular node, chosen with probability 1 / rank, the others at any node.
    Relations have frequencies of about 1 / rank, and each occurs. No triple occurs twice.
    """
    spare = shape.nodes - shape.labeled
    if not (shape.relations <= spare <= shape.edges and shape.classes <= shape.train <= shape.labeled):
        raise ConfigError(f"no random graph has the shape {shape}: give it more edges, nodes or labels")
    rng = np.random.default_rng(shape)
    ids = rng.permutation(shape.nodes)
    roots, inner, outer = np.split(ids, [shape.labeled, shape.labeled + max(1, spare // 3)])

    child = np.concatenate([inner, outer])
    parent = np.concatenate([rng.choice(roots, len(inner)), inner[_by_rank(rng, len(inner), len(outer))]])
    forward = rng.random(spare) < 0.5
    relation = _by_rank(rng, shape.relations, spare)
    relation[rng.permutation(spare)[: shape.relations]] = np.arange(shape.relations)  # each one occurs
    tree = np.where(forward, child, parent), relation, np.where(forward, parent, child)

    # One number represents a triple: numbers are sorted and compared much faster than rows.
    sizes = shape.nodes, shape.relations, shape.nodes
    keys = np.sort(np.ravel_multi_index(tree, sizes))  # the edges of a tree are distinct
    while len(keys) < shape.edges:  # draw again in place of duplicates
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
    """Draw int64 [size] below `count`; P(k) is proportional to log((k + 2) / (k + 1)), about 1 / (k + 1)."""
    drawn = np.exp(rng.random(size) * np.log(count + 1)).astype(np.int64) - 1
    return np.asarray(np.minimum(drawn, count - 1))


def _graph(arrays: Mapping[str, Any], name: str) -> KnowledgeGraph:
    """Make a graph from ARRAYS; nodes, relations and classes are named by their ids."""
    node, relation, class_ = (
        Vocabulary(map(str, range(int(arrays[kinds]))), kind=kind)
        for kinds, kind in (("nodes", "node"), ("relations", "relation"), ("classes", "class"))
    )
    train, test = arrays["train"], arrays["test"]
    splits = np.repeat([SPLITS.index("train"), SPLITS.index("test")], [len(train), len(test)]).astype(np.int8)
    labels = NodeLabels(np.concatenate([train, test]), arrays["label"], class_, splits)
    return KnowledgeGraph(arrays["triples"], node, relation, labels=labels, name=name)


def graph_to_npz(graph: KnowledgeGraph, path: Path) -> None:
    """Write a graph's ids to a file that NumPy alone can read; names and features are left out.

    The arrays are triples int64 [num_edges, 3]; the counts nodes, relations and classes; the node ids train and test;
    and label, the classes of train, then of test.
    """
    labels = _require_labels(graph, graph.name).labels
    assert labels is not None
    (train, train_classes), (test, test_classes) = labels.of("train"), labels.of("test")
    counts = (graph.num_nodes, graph.num_relations, labels.num_classes)
    parts: Any = (graph.triples, *counts, train, test, np.concatenate([train_classes, test_classes]))
    content = io.BytesIO()
    np.savez(content, **dict(zip(ARRAYS, parts, strict=True)))
    write_atomically(path, content.getvalue())


def graph_from_npz(path: Path) -> KnowledgeGraph:
    """Read a file of `graph_to_npz`.

    Raises:
        DataError: The file is missing, or does not hold such a graph.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {key: file[key] for key in ARRAYS if key in file}
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} is not an .npz file of plain arrays ({error}): write one with `rgcn bench --write-npz`"
        ) from error
    missing = [key for key in ARRAYS if key not in arrays]
    if missing:
        raise DataError(f"{path} holds no graph: {', '.join(missing)} missing; write one with `rgcn bench --write-npz`")
    _check_arrays(path, arrays)
    return _require_labels(_graph(arrays, path.stem), str(path))


def _check_arrays(path: Path, arrays: Mapping[str, Any]) -> None:
    """Raise DataError for invalid arrays, before names are made for nodes: a wrong count could take all memory."""
    triples, label, counts = arrays["triples"], arrays["label"], {key: arrays[key] for key in ARRAYS[1:4]}
    labeled = np.concatenate([arrays["train"], arrays["test"]])
    whole = all(array.dtype.kind in "iu" for array in (*arrays.values(), labeled))
    if not whole or triples.ndim != 2 or triples.shape[1] != 3 or any(number.ndim for number in counts.values()):
        raise DataError(f"{path}: triples must be integers [edges, 3]; nodes, relations and classes one integer each")
    if not len(triples):
        raise DataError(f"{path}: there are no triples in it")
    for what, number in counts.items():
        if not 0 < number <= 10 * (2 * len(triples) + len(labeled)):
            raise DataError(f"{path}: {number:,} {what} for {len(triples):,} triples: the count is wrong")
    if labeled.ndim != 1 or label.shape != labeled.shape:
        raise DataError(f"{path}: {labeled.size} labeled nodes, but {label.size} labels")
    nodes, relations, classes = counts.values()
    ranges = ((triples[:, [0, 2]], nodes), (triples[:, 1], relations), (labeled, nodes), (label, classes))
    if any(ids.size and (ids.min() < 0 or ids.max() >= bound) for ids, bound in ranges):
        raise DataError(f"{path}: a node, relation or class number lies outside the counts the file gives")
