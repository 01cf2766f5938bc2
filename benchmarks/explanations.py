"""Do explanations name what decided? Fidelity of all methods beside random triples, and how long one takes.

    RGCN_MIRROR=... python benchmarks/explanations.py runs/rgcn-nc-aifb --write results/explanations.json

For each run as many questions as asked for are drawn from its validation split: labelled nodes, whose predicted class
is explained, or triples. Where there is no validation split the training nodes serve; the test split is not read.

Figures are means over the questions: how far the answer falls without the named triples, and with only them, in
probability and in the network's own strength (log-odds of a class, score of a triple). Beside them the same for as many
triples drawn from all in reach (`random`), and from those that touch the node itself (`random_near`). `ratio` divides
the fall without the named triples by the mean size of the change without random ones, whatever its sign. A run that is
not calibrated has no probabilities.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from _about import write_result

from rgcn.explain import Explanation, explain_class, explain_link, methods_of
from rgcn.predict import OpenModel, open_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--edges", type=int, default=10)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    given = parser.parse_args()
    rows = []
    for run in given.runs:
        opened = open_model(run)
        split, asked = questions(opened, given.questions, given.seed)
        for method in methods_of(opened):
            settings = {"method": method, "edges": given.edges, "draws": given.draws, "seed": given.seed}
            explained(opened, asked[0], settings)  # the first one compiles
            rows.append({"run": run.name, "split": split, **measured(opened, asked, settings)})
            print(json.dumps(rows[-1]), flush=True)
    if given.write:
        write_result(given.write, {"edges": given.edges, "draws": given.draws, "rows": rows})


def questions(opened: OpenModel, count: int, seed: int) -> tuple[str, list[tuple[int, ...]]]:
    """(split, nodes or triples of it)."""
    graph = opened.graph
    for split in ("valid", "train"):
        if opened.answers("classes"):
            assert graph.labels is not None
            every = graph.labels.of(split)[0].reshape(-1, 1)
        else:
            every = graph.split_triples(split)
        if len(every):
            break
    chosen = np.random.default_rng(seed).permutation(len(every))[:count]
    return split, [tuple(row) for row in every[chosen].tolist()]


def explained(opened: OpenModel, asked: tuple[int, ...], settings: dict[str, Any]) -> Explanation:
    if opened.answers("classes"):
        return explain_class(opened, asked[0], **settings)
    return explain_link(opened, asked[0], asked[1], asked[2], **settings)


def measured(opened: OpenModel, asked: list[tuple[int, ...]], settings: dict[str, Any]) -> dict[str, Any]:
    made, seconds = [], []
    for one in asked:
        start = time.perf_counter()
        made.append(explained(opened, one, settings))
        seconds.append(time.perf_counter() - start)
    strength = [one.fidelity.strength for one in made]
    probability = [one.fidelity.probability for one in made if one.fidelity.probability is not None]
    return {
        "method": settings["method"],
        "questions": len(made),
        "triples_in_reach": statistics.mean(one.considered for one in made),
        "probability": rounded(statistics.mean(one.full for one in probability)) if probability else None,
        "probability_change": all_changes(probability) if probability else None,
        "strength_change": all_changes(strength),
        "median_seconds": rounded(statistics.median(seconds)),
        "slowest_seconds": rounded(max(seconds)),
    }


def all_changes(found: list[Any]) -> dict[str, Any]:
    return {
        "without": changes([one.without for one in found], "large"),
        "only": changes([one.only for one in found], "small"),
    }


def changes(found: list[Any], wanted: str) -> dict[str, float | None]:
    """wanted: "large" where the named triples should change much, "small" where they should change little."""
    columns = {name: np.array([getattr(one, name) for one in found]) for name in ("named", "random", "random_near")}
    means = {name: rounded(float(column.mean())) for name, column in columns.items()}
    named, random = columns["named"], columns["random"]
    if wanted == "small":
        return {**means, "better_than_random": rounded(float((named < random).mean()))}
    size, near = (float(np.abs(columns[name]).mean()) for name in ("random", "random_near"))
    return {
        **means,
        "random_size": rounded(size),
        "ratio": rounded(float(named.mean()) / size) if size else None,
        "ratio_near": rounded(float(named.mean()) / near) if near else None,
        "better_than_random": rounded(float((named > random).mean())),
    }


def rounded(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    main()
