"""Compare methods for the map of a model's nodes: PCA, t-SNE (ours, scikit-learn's, openTSNE's) and UMAP.

python benchmarks/maps.py RUN ... [--out results/maps.json]

Each method projects the nodes that the map of a run shows (at most 5,000). Columns:

  trustworthiness  of the 15 nearest on the map (1: all are near by their vectors, 0.5: about chance)
  same_class       of the 10 nearest labeled nodes, the share of the same class; labels of train and valid only
  seconds          of one core (processor time, so that other work on the machine does not count); compiling apart
  same_bits        whether the same seed gives the same places twice

Methods whose package is not installed are skipped with a message.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from _about import write_result
from numpy.typing import NDArray

from rgcn.predict import open_model
from rgcn.visualization.node_map import CLASS_NEIGHBORS, MAX_NODES, TRUST_NEIGHBORS, select_nodes, visible_classes
from rgcn.visualization.projection import initial_places, project_to_plane, same_class_share, trustworthiness
from rgcn.visualization.vectors import NodeVectors

Floats = NDArray[np.float32]


def scikit_learn(vectors: Floats, seed: int) -> Floats:
    from sklearn.manifold import TSNE

    start = initial_places(vectors, 1e-4, seed)
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    return TSNE(perplexity=perplexity, init=start, random_state=seed, n_jobs=1).fit_transform(vectors)


def open_tsne(vectors: Floats, seed: int) -> Floats:
    from openTSNE import TSNE

    start = initial_places(vectors, 1e-4, seed)
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    made = TSNE(perplexity=perplexity, initialization=start, random_state=seed, n_jobs=1, neighbors="exact")
    return np.asarray(made.fit(vectors), np.float32)


METHODS: dict[str, tuple[str | None, Callable[[Floats, int], Floats]]] = {
    "pca": (None, lambda vectors, seed: project_to_plane(vectors, "pca", seed)),
    "tsne": (None, lambda vectors, seed: project_to_plane(vectors, "tsne", seed)),
    "tsne (scikit-learn)": ("scikit-learn", scikit_learn),
    "tsne (openTSNE)": ("openTSNE", open_tsne),
    "umap": ("umap-learn", lambda vectors, seed: project_to_plane(vectors, "umap", seed)),
}


def version(package: str | None) -> str | None:
    """Return the installed version of a package: "" if the method needs no package, None if it is not installed."""
    if package is None:
        return ""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def measure(
    vectors: Floats, rows: NDArray[np.int64], classes: NDArray[np.int64], place: Callable[[Floats, int], Floats]
) -> dict[str, Any]:
    place(vectors[:60], 0)  # compiles the kernels
    begun = time.process_time()
    places = place(vectors, 0)
    seconds = time.process_time() - begun
    return {
        "trustworthiness": round(trustworthiness(vectors, places, TRUST_NEIGHBORS), 4),
        "same_class": round(same_class_share(places[rows], classes, CLASS_NEIGHBORS), 4),
        "seconds": round(seconds, 2),
        "same_bits": bool(np.array_equal(places, place(vectors, 0))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    versions = {name: version(package) for name, (package, _) in METHODS.items()}
    results: dict[str, Any] = {}
    for folder in arguments.runs:
        opened = open_model(folder, device="cpu", accept_changed_data=True)
        nodes = select_nodes(opened.graph, np.arange(opened.graph.num_nodes), MAX_NODES)
        vectors = NodeVectors.of(opened).gather(nodes)
        known = visible_classes(opened.graph)[nodes]
        labels = opened.graph.labels
        rows = np.flatnonzero((known >= 0) & (known < (0 if labels is None else labels.num_classes)))
        classes = known[rows]
        whole = round(same_class_share(vectors[rows], classes, CLASS_NEIGHBORS), 4)
        found = results[opened.name] = {"nodes": len(nodes), "width": vectors.shape[1], "same_class_by_vectors": whole}
        for name, (_, place) in METHODS.items():
            if versions[name] is None:
                continue
            found[name] = measure(vectors, rows, classes, place)
            print(f"{opened.name:<18} {name:<20} {found[name]}", flush=True)
    missing = [name for name, found_version in versions.items() if found_version is None]
    if missing:
        print("skipped, because their package is not installed:", ", ".join(missing))
    if arguments.out:
        used = {METHODS[name][0]: found for name, found in versions.items() if found}
        write_result(arguments.out, {"packages": used, "runs": results})


if __name__ == "__main__":
    main()
