"""Ask a trained model from Python, by names, and print probabilities and explanations.

    python examples/ask_a_trained_model.py              # trains a small model first
    python examples/ask_a_trained_model.py runs/mine    # a run of `rgcn train`, or a folder that `save` wrote

The answers are those of `rgcn predict` and `rgcn explain`.
"""

import sys
import tempfile

import rgcn


def train(folder: str) -> str:
    world = rgcn.load("world")
    rgcn.NodeClassifier(model="e-rgcn", seed=0, epochs=100).fit(world).save(folder)
    return folder


def main(path: str, *questions: str) -> None:
    opened = rgcn.open_model(path)
    labels = opened.graph.labels
    print(f"{opened.model}\n")
    for text in questions or [opened.titles.of(int(node)) for node in labels.of("test")[0][:3]]:
        node = opened.node(text)  # part of a name suffices; an unknown name is an error with close matches
        answer = opened.model.predict_frame([node]).row(0, named=True)
        share = "" if answer["probability"] is None else f", {answer['probability']:.0%} sure"
        print(f"{opened.titles.of(node)}: {answer['class']}{share}")
        print(rgcn.explain.explain_class(opened, node, edges=3).as_text())
        print()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(train(folder), "Switzerland", "Kenya")
