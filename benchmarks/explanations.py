"""Measure the fidelity and the time of all explanation methods, in comparison with random triples.

    RGCN_MIRROR=... python benchmarks/explanations.py runs/rgcn-nc-aifb --write results/explanations.json

For each run, `--questions` questions are drawn from the validation split: labeled nodes, whose predicted class is
explained, or triples. A run without a validation split uses the training split. The test split is not read.

Results are means over the questions: by how much the answer drops without the named triples, and with only them, as
probability and as strength (log-odds of a class, score of a triple). For comparison, as many triples are drawn from the
whole computation graph (`random`), and from the triples of the node itself (`random_near`). `ratio` divides
the drop without the named triples by the mean absolute change without random ones. A run without calibration has no
probabilities.
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

from rgcn.explain import Explanation, available_methods, explain_class, explain_link
from rgcn.predict import OpenModel, open_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--edges", type=int, default=10)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    rows = []
    for run in options.runs:
        opened = open_model(run)
        split, questions = draw_questions(opened, options.questions, options.seed)
        for method in available_methods(opened):
            settings = {"method": method, "edges": options.edges, "draws": options.draws, "seed": options.seed}
            explain(opened, questions[0], settings)  # compiles kernels, so that the next calls measure only the method
            rows.append({"run": run.name, "split": split, **measure(opened, questions, settings)})
            print(json.dumps(rows[-1]), flush=True)
    if options.write:
        write_result(options.write, {"edges": options.edges, "draws": options.draws, "rows": rows})


def draw_questions(opened: OpenModel, count: int, seed: int) -> tuple[str, list[tuple[int, ...]]]:
    """Return the split and random nodes or triples of it."""
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


def explain(opened: OpenModel, question: tuple[int, ...], settings: dict[str, Any]) -> Explanation:
    """Explain the class of a node, or a triple."""
    if opened.answers("classes"):
        return explain_class(opened, question[0], **settings)
    return explain_link(opened, question[0], question[1], question[2], **settings)


def measure(opened: OpenModel, questions: list[tuple[int, ...]], settings: dict[str, Any]) -> dict[str, Any]:
    """Explain all questions by one method and return its fidelity and time."""
    explanations, seconds = [], []
    for question in questions:
        start = time.perf_counter()
        explanations.append(explain(opened, question, settings))
        seconds.append(time.perf_counter() - start)
    strength = [explanation.fidelity.strength for explanation in explanations]
    probability = [one.fidelity.probability for one in explanations if one.fidelity.probability is not None]
    return {
        "method": settings["method"],
        "questions": len(explanations),
        "triples_in_reach": statistics.mean(explanation.considered for explanation in explanations),
        "probability": rounded(statistics.mean(change.full for change in probability)) if probability else None,
        "probability_change": all_changes(probability) if probability else None,
        "strength_change": all_changes(strength),
        "median_seconds": rounded(statistics.median(seconds)),
        "slowest_seconds": rounded(max(seconds)),
    }


def all_changes(fidelities: list[Any]) -> dict[str, Any]:
    """Return the mean changes without the named triples, and with only them."""
    return {
        "without": changes([fidelity.without for fidelity in fidelities], "large"),
        "only": changes([fidelity.only for fidelity in fidelities], "small"),
    }


def changes(comparisons: list[Any], wanted: str) -> dict[str, float | None]:
    """Return the mean changes of named and of random triples.

    Args:
        comparisons: The changes for each question.
        wanted: "large" if the named triples should change the answer much, "small" if little.
    """
    columns = {
        name: np.array([getattr(comparison, name) for comparison in comparisons])
        for name in ("named", "random", "random_near")
    }
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
