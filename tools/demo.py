"""`make demo`: the embedded graph asked without training, then with it, side by side.

python tools/demo.py --steps 20
"""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.table import Table

import rgcn
from rgcn.system.progress import progress
from rgcn.system.threads import prepare_process

prepare_process()  # before PyTorch is loaded

from rgcn.models.link_classifier import LinkClassifier  # noqa: E402
from rgcn.models.link_predictor import LinkPredictor  # noqa: E402

RELATIONS, EACH = ("borders", "exports_to", "imports_from"), 2  # facts of these are held back, and asked for
COUNTRIES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="of fine-tuning")
    given = parser.parse_args()
    console, kg = Console(), rgcn.load("world")
    questions = held_back(kg)
    console.print(f"\n[bold]1. {kg}[/bold], asked without training: the model that comes with rgcn has never seen it")
    began = time.perf_counter()
    shipped = LinkPredictor.pretrained(kg)
    before = answers(shipped, questions)
    show(console, ("held back", "the best guesses without training"), before)
    nodes, right = kg.labels.of("test")
    guessed = classes(LinkClassifier.pretrained(kg), nodes)
    console.print(
        f"Regions of {len(nodes)} countries it was not told: {share(kg, guessed, right)} right, from the others'. "
        f"All of this took {time.perf_counter() - began:.1f} s.\n"
    )
    console.print(f"[bold]2. Trained on it[/bold]: {given.steps} steps from the weights that come with rgcn, and RGCN")
    began = time.perf_counter()
    tuned = rgcn.LinkPredictor("universal", epochs=given.steps, dropout=0.1, learning_rate=0.001, clip=1.0)
    with progress("training", given.steps, "steps") as meter, tuned.fitting(kg) as fitting:
        for _ in fitting:
            meter.advance(1)
        fitting.finish()
    trained = rgcn.NodeClassifier("rgcn", epochs=50).fit(kg)
    console.print(f"Trained in {time.perf_counter() - began:.0f} s.\n")
    show(console, ("held back", "without training", "trained"), before, answers(tuned, questions))
    learned = classes(trained, nodes)
    drawn = Table("country", "region", "without training", "trained: RGCN")
    for node, number, first, second in list(zip(nodes, right, guessed, learned, strict=True))[:COUNTRIES]:
        drawn.add_row(kg.nodes[int(node)], kg.labels.names[int(number)], first, second)
    console.print(drawn)
    console.print(
        f"Right of {len(nodes)}: {share(kg, guessed, right)} without training, {share(kg, learned, right)} trained."
    )
    console.print("\nYour own file: [bold]rgcn predict mine.csv --subject … --relation …[/bold], `rgcn serve mine.csv`")


def held_back(kg) -> list[tuple[str, str, str]]:
    """Some test triples by name: the first few of each relation."""
    triples = [(kg.nodes[s], kg.relations[r], kg.nodes[o]) for s, r, o in kg.split_triples("test").tolist()]
    return [each for name in RELATIONS for each in [triple for triple in triples if triple[1] == name][:EACH]]


def answers(model, questions) -> dict[str, str]:
    """The best new answers to each question."""
    found = {}
    for subject, relation, object_ in questions:
        best = model.predict(subject=subject, relation=relation, k=3, known="drop")
        names = [f"[green]{each.object}[/green]" if each.object == object_ else each.object for each in best]
        found[f"{subject} {relation.replace('_', ' ')} [green]{object_}[/green]"] = ", ".join(names)
    return found


def classes(model, nodes) -> list[str]:
    return [model.classes_[number] for number in model.logits(nodes).argmax(1).tolist()]


def share(kg, guessed: list[str], right) -> str:
    return str(sum(kg.labels.names[int(number)] == name for number, name in zip(right, guessed, strict=True)))


def show(console: Console, head: tuple[str, ...], *columns: dict[str, str]) -> None:
    drawn = Table(*head)
    for question in columns[0]:
        drawn.add_row(question, *(column[question] for column in columns))
    console.print(drawn)


if __name__ == "__main__":
    main()
