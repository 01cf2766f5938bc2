"""Small trained models for visualizations."""

import pytest

import rgcn
from rgcn.predict import open_model

HOSTILE = "</script><script>alert(1)</script>\u2028'\"&"


def small_graph():
    """Return two kinds of readers, with types and labels in three splits; one name contains HTML."""
    triples, labels = [], {"train": {}, "valid": {}, "test": {}}
    for number in range(24):
        reader = HOSTILE if number == 0 else f"http://x.org/reader{number}"
        kind = number % 2
        triples += [(reader, "http://x.org/reads", f"http://x.org/book{kind}-{number % 3}")]
        triples += [(reader, "http://x.org/type", "http://x.org/Reader")]
        triples += [(f"http://x.org/author{kind}", "http://x.org/wrote", f"http://x.org/book{kind}-{number % 3}")]
        split = "train" if number < 14 else "valid" if number < 19 else "test"
        labels[split][reader] = f"http://x.org/class{kind}"
    return rgcn.KnowledgeGraph.from_triples(triples, name="readers").with_labels(labels)


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    rgcn.NodeClassifier(hidden=6, epochs=20, seed=0).fit(small_graph()).save(str(folder))
    return open_model(folder)


@pytest.fixture(scope="session")
def predictor(tmp_path_factory):
    """With a decoder that keeps biases behind its vectors."""
    folder = tmp_path_factory.mktemp("predictor")
    settings = {"embedding": 8, "steps": 2, "decoder_biases": True, "seed": 0}
    rgcn.LinkPredictor(encoder="none", **settings).fit(small_graph()).save(str(folder))
    return open_model(folder)
