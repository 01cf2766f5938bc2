"""Show what rgcn answers about the embedded graph `world`, without training and after training: `make demo`.

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

RELATIONS = ("borders", "exports_to", "imports_from")
QUESTIONS_PER_RELATION = 2
NUM_COUNTRIES_SHOWN = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20, help="number of fine-tuning steps")
    options = parser.parse_args()
    console, kg = Console(), rgcn.load("world")
    questions = test_questions(kg)
    console.print(f"\n[bold]1. Without training.[/bold] {kg}")
    console.print("The pretrained model has never seen this graph. Correct answers are green.")
    start = time.perf_counter()
    zero_shot_answers = format_answers(LinkPredictor.pretrained(kg), questions)
    print_answers(console, ("test triple", "best 3 answers, without training"), zero_shot_answers)
    nodes, labels = kg.labels.of("test")
    zero_shot_classes = predict_classes(LinkClassifier.pretrained(kg), nodes)
    console.print(
        f"It also predicts the region of the {len(nodes)} test countries from the training labels: "
        f"{count_correct(kg, zero_shot_classes, labels)} are correct. Time: {time.perf_counter() - start:.1f} s.\n"
    )
    console.print(
        f"[bold]2. With training.[/bold] Fine-tune the pretrained model for {options.steps} steps (links), "
        "and train an RGCN (regions)."
    )
    start = time.perf_counter()
    fine_tuned = rgcn.LinkPredictor("universal", steps=options.steps, dropout=0.1, learning_rate=0.001, clip=1.0)
    with progress("training", options.steps, "steps") as meter, fine_tuned.fitting(kg) as fitting:
        for _ in fitting:
            meter.advance(1)
        fitting.finish()
    classifier = rgcn.NodeClassifier("rgcn", epochs=50).fit(kg)
    console.print(f"Training time: {time.perf_counter() - start:.0f} s.\n")
    head = ("test triple", "without training", "fine-tuned")
    print_answers(console, head, zero_shot_answers, format_answers(fine_tuned, questions))
    trained_classes = predict_classes(classifier, nodes)
    table = Table("country", "region", "without training", "trained RGCN")
    rows = list(zip(nodes, labels, zero_shot_classes, trained_classes, strict=True))
    for node, label, zero_shot, trained in rows[:NUM_COUNTRIES_SHOWN]:
        table.add_row(kg.nodes[int(node)], kg.labels.names[int(label)], zero_shot, trained)
    console.print(table)
    console.print(
        f"Correct regions, of {len(nodes)} test countries: {count_correct(kg, zero_shot_classes, labels)} without "
        f"training, {count_correct(kg, trained_classes, labels)} with the trained RGCN."
    )
    console.print(
        "\nTry your own file: [bold]rgcn predict mine.csv --subject … --relation …[/bold], or "
        "[bold]rgcn serve mine.csv[/bold]"
    )


def test_questions(kg) -> list[tuple[str, str, str]]:
    """Return the names in the first few test triples of each relation."""
    triples = [(kg.nodes[s], kg.relations[r], kg.nodes[o]) for s, r, o in kg.split_triples("test").tolist()]
    return [
        triple
        for relation in RELATIONS
        for triple in [triple for triple in triples if triple[1] == relation][:QUESTIONS_PER_RELATION]
    ]


def format_answers(model, questions) -> dict[str, str]:
    """Return the best three new answers to each question as text, with the correct one in green."""
    answers = {}
    for subject, relation, object_ in questions:
        best = model.predict(subject=subject, relation=relation, k=3, known="drop")
        names = [f"[green]{name}[/green]" if name == object_ else name for name in best]
        answers[f"{subject} {relation.replace('_', ' ')} [green]{object_}[/green]"] = ", ".join(names)
    return answers


def predict_classes(model, nodes) -> list[str]:
    """Return the name of the most probable class of each node."""
    return [model.classes_[number] for number in model.logits(nodes).argmax(1).tolist()]


def count_correct(kg, classes: list[str], labels) -> int:
    """Count the predicted class names that equal the labels."""
    return sum(kg.labels.names[int(label)] == name for label, name in zip(labels, classes, strict=True))


def print_answers(console: Console, head: tuple[str, ...], *columns: dict[str, str]) -> None:
    """Print a table with a row per question and a column per model."""
    table = Table(*head)
    for question in columns[0]:
        table.add_row(question, *(column[question] for column in columns))
    console.print(table)


if __name__ == "__main__":
    main()
