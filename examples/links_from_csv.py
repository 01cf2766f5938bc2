"""Links from a CSV: a table of who trades with whom, and the trade that is probably missing from it.

    python examples/links_from_csv.py                     # facts about countries, written out as a CSV first
    python examples/links_from_csv.py mine.csv subject relation object

A tenth of the rows is held out, so that the model can be judged on facts it never saw.
"""

import sys
import tempfile
from pathlib import Path

import polars as pl

import rgcn


def facts_as_csv(folder: Path) -> Path:
    """The embedded graph as somebody's spreadsheet."""
    world = rgcn.load("world")
    names = [(world.nodes[s], world.relations[r], world.nodes[o]) for s, r, o in world.triples]
    path = folder / "facts.csv"
    pl.DataFrame(names, schema=["who", "does", "whom"], orient="row").write_csv(path)
    return path


def hold_out(path: Path, folder: Path) -> dict[str, Path]:
    """The rows shuffled and cut in two: most to learn from, the last tenth to be judged by."""
    rows = pl.read_csv(path).sample(fraction=1.0, shuffle=True, seed=0)
    cut = len(rows) * 9 // 10
    parts = {"train": rows[:cut], "test": rows[cut:]}
    for name, part in parts.items():
        part.write_csv(folder / f"{name}.csv")
    return {name: folder / f"{name}.csv" for name in parts}


def main(path: Path, columns: list[str], folder: Path) -> float:
    kg = rgcn.read(hold_out(path, folder), columns=columns)
    print(kg)
    predictor = rgcn.LinkPredictor(model="c-rgcn", embedding=64, bottleneck=16, epochs=80, seed=0).fit(kg)
    figures = predictor.evaluate(kg, split="test")
    print(f"held-out facts: mean reciprocal rank {figures['mrr']:.3f}, among the first ten {figures['hits@10']:.0%}\n")

    subject, relation, _ = kg.split_triples("test")[0]
    print(f"{kg.nodes[subject]} — {kg.relations[relation]} → ?")
    test = {tuple(triple) for triple in kg.split_triples("test").tolist()}
    for guess in predictor.predict(subject=int(subject), relation=int(relation), k=8, known="drop"):
        held_out = (subject, relation, kg.nodes.id(guess.object)) in test
        print(f"  {guess.object:40} score {guess.score:6.2f}{'   held out, and true' if held_out else ''}")
    return figures["mrr"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) == 5:
            main(Path(sys.argv[1]), sys.argv[2:], Path(folder))
        else:
            main(facts_as_csv(Path(folder)), ["who", "does", "whom"], Path(folder))
