"""Predict links in a CSV file: facts about countries, and the facts that are probably missing.

    python examples/links_from_csv.py                     # facts about countries, written out as a CSV first
    python examples/links_from_csv.py mine.csv subject relation object

A tenth of the rows is held out to measure the model.
"""

import sys
import tempfile
from pathlib import Path

import polars as pl

import rgcn


def facts_as_csv(folder: Path) -> Path:
    """Write the graph `world` as a CSV file and return its path."""
    world = rgcn.load("world")
    names = [(world.nodes[s], world.relations[r], world.nodes[o]) for s, r, o in world.triples]
    path = folder / "facts.csv"
    pl.DataFrame(names, schema=["who", "does", "whom"], orient="row").write_csv(path)
    return path


def hold_out(path: Path, folder: Path) -> dict[str, Path]:
    """Shuffle the rows and write nine tenths for training and one tenth for testing."""
    rows = pl.read_csv(path).sample(fraction=1.0, shuffle=True, seed=0)
    cut = len(rows) * 9 // 10
    parts = {"train": rows[:cut], "test": rows[cut:]}
    for name, part in parts.items():
        part.write_csv(folder / f"{name}.csv")
    return {name: folder / f"{name}.csv" for name in parts}


def main(path: Path, columns: list[str], folder: Path) -> float:
    kg = rgcn.read(hold_out(path, folder), columns=columns)
    print(kg)
    predictor = rgcn.LinkPredictor(model="c-rgcn", embedding=64, bottleneck=16, steps=80, seed=0).fit(kg)
    metrics = predictor.evaluate(kg, split="test")
    print(f"held-out facts: mean reciprocal rank {metrics['mrr']:.3f}, among the first ten {metrics['hits@10']:.0%}\n")

    subject, relation, _ = kg.split_triples("test")[0]
    print(f"{kg.nodes[subject]} — {kg.relations[relation]} → ?")
    test = {tuple(triple) for triple in kg.split_triples("test").tolist()}
    answers = predictor.predict_frame(subject=int(subject), relation=int(relation), k=8, known="drop")
    for name, score in answers.select("object", "score").iter_rows():
        held_out = (subject, relation, kg.nodes.id(name)) in test
        print(f"  {name:40} score {score:6.2f}{'   held out, correct' if held_out else ''}")
    return metrics["mrr"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) == 5:
            main(Path(sys.argv[1]), sys.argv[2:], Path(folder))
        else:
            main(facts_as_csv(Path(folder)), ["who", "does", "whom"], Path(folder))
