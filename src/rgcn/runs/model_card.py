"""A model card in Markdown: what a run's model is, what it is good for, how it was made and measured.

With the front matter that model hubs read. It names no path of the machine it was made on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rgcn
from rgcn.config import LinkModelConfig, NodeModelConfig
from rgcn.data.catalog import CATALOG, Dataset
from rgcn.data.graph_store import load_graph
from rgcn.errors import RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.graph.titles import Titles
from rgcn.runs.folder import RunFolder
from rgcn.runs.report.cards.caveats import one_seed
from rgcn.runs.report.cards.model import architecture, decomposition, messages
from rgcn.runs.report.evaluation import NodeEvaluation, evaluate_nodes, reversed_share
from rgcn.runs.report.figures import decimal, moment, percent, three_places
from rgcn.runs.report.link_sections import ranking_cautions
from rgcn.runs.report.markup import escaped
from rgcn.runs.report.node_sections import node_cautions
from rgcn.runs.report.record import RunRecord, read_run
from rgcn.runs.report.writing import STATE_WORDS, TASK_WORDS
from rgcn.words import count, duration, memory, setting

if TYPE_CHECKING:
    from rgcn.runs.assembly import Model

SPLIT_WORDS = {"train": "training", "valid": "validation", "test": "test"}
SHOWN_CLASSES = 20
PAPER = (
    "T. Thanapalasingam, L. van Berkel, P. Bloem, P. Groth: Relational Graph Convolutional Networks: A Closer Look. "
    "PeerJ Computer Science 8:e1073, 2022."
)
ORIGINAL = (
    "M. Schlichtkrull, T. N. Kipf, P. Bloem, R. van den Berg, I. Titov, M. Welling: Modeling Relational Data with "
    "Graph Convolutional Networks. ESWC 2018."
)
# What Markdown reads as more than text, what a page would make a link or a mention of.
_MARKDOWN = re.compile(r"([\\`*_\[\]#|~$]|(?<=www)\.|:(?=//)|@(?=\w))")


def model_card(run: RunFolder, model: Model | None = None) -> str:
    """The card of a run, finished or not; `model` spares loading it again where it is at hand."""
    record = read_run(run.path)
    found, reason = _find(run, record, model)
    parts = [
        _front_matter(record),
        f"# {text(record.title)}",
        *_introduction(record, reason),
        "## What it is",
        _what_it_is(record, found),
        "## What it is for",
        _uses(record, found.graph),
        "## What it cannot do",
        _limits(record, found),
        "## Data",
        _data(record, found.graph),
        "## Training",
        _training(record),
        "## Results",
        *_results(record, found),
        *_calibration(run.path),
        "## Read with care",
        bullets(_cautions(record, found)),
        "## How to use it",
        _commands(record),
        "## How to cite it",
        bullets(_citations(record)),
    ]
    return "\n\n".join(parts) + "\n"


# -- Markdown ---------------------------------------------------------------------------------------------


def text(words: object) -> str:
    """Words from the data or from a file, so that they are read as they are, in one line.

    >>> print(text("a*b_c <b>|\\nwww.example.org"))
    a\\*b\\_c &lt;b&gt;\\| www\\.example.org
    """
    plain = " ".join(str(words).split())
    return _MARKDOWN.sub(r"\\\1", escaped(plain).replace("&quot;", '"').replace("&#x27;", "'"))


def bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column holds words, and the others figures."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def code(lines: Iterable[str], language: str = "") -> str:
    """A block of code; a line that could end it is of no kind that we write."""
    return "\n".join([f"```{language}", *lines, "```"])


# -- what is known of the run ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """What a card tells from the model itself: its graph, and for a classifier how each split went."""

    graph: KnowledgeGraph | None = None
    by_split: dict[str, NodeEvaluation] = field(default_factory=dict)

    @property
    def has_features(self) -> bool:
        return self.graph is not None and self.graph.features is not None


def _find(run: RunFolder, record: RunRecord, model: Model | None) -> tuple[_Found, str | None]:
    """What there is, or why there is nothing; links are not ranked again, the run wrote down how that went."""
    from rgcn.runs.trained import load_trained
    from rgcn.tasks import NodeClassifier

    if record.result is None:
        return _Found(), "It is not finished, so that there is no model to measure yet."
    try:
        if record.task == "link-prediction":
            return _Found(load_graph(run.path / "model" / "graph") if model is None else model.graph_), None
        classifier = load_trained(run, device="cpu") if model is None else model
        assert isinstance(classifier, NodeClassifier)
        labels = classifier.graph_.labels
        splits = [] if labels is None else list(labels.counts())
        return _Found(classifier.graph_, {split: evaluate_nodes(classifier, split) for split in splits}), None
    except RgcnError:  # its words would name a folder of this machine
        return _Found(), "Its folder `model/` is missing or damaged, so that less is said here."


# -- sections ---------------------------------------------------------------------------------------------


def _front_matter(run: RunRecord) -> str:
    """What model hubs read."""
    import yaml

    name = run.config.data.title
    about: dict[str, Any] = {
        "library_name": "rgcn",
        "pipeline_tag": "graph-ml",
        "tags": list(dict.fromkeys(["rgcn", run.config.model.title, run.task, "knowledge-graph"])),
        "datasets": [Path(name).name],
    }
    figures = [
        {"type": metric, "value": round(float(value), 4), "name": f"{SPLIT_WORDS[split]} {metric}"}
        for split, metrics in (run.result or {}).get("metrics", {}).items()
        for metric, value in metrics.items()
        if split == "test" and metric != "count"
    ]
    if figures:
        task = {"type": run.task, "name": run.task.replace("-", " ").capitalize()}
        results = [{"task": task, "dataset": {"name": Path(name).name, "type": Path(name).name}, "metrics": figures}]
        about["model-index"] = [{"name": run.folder.resolve().name, "results": results}]
    dumped = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
    return f"---\n{dumped}---"


def _introduction(run: RunRecord, reason: str | None) -> list[str]:
    state = STATE_WORDS.get(run.status, run.status)
    words = [TASK_WORDS[run.task]]
    if run.status != "finished":
        words.append(f"**This run is {state}.**")
    return [*words, *([reason] if reason else [])]


def _what_it_is(run: RunRecord, found: _Found) -> str:
    model, result = run.config.model, run.result or {}
    items = [
        f"Architecture: {architecture(run.config, found.has_features)}",
        f"Weight matrices: {decomposition(model)}",
        f"Messages: {messages(model)}",
    ]
    if result.get("stored_parameters") is not None:
        items.append(f"Parameters: {result['stored_parameters']:,} held, {result['parameters']:,} as the paper counts")
    items.append("Weights: safetensors, beside the graph they were learned from; nothing is pickled")
    return bullets(items)


def _uses(run: RunRecord, graph: KnowledgeGraph | None) -> str:
    if run.task == "link-prediction":
        return (
            "To rank what may be missing between the nodes of its graph, as candidates that someone looks at: facts to "
            "add, or known ones to doubt."
        )
    words = "To say which class a node of its graph likely belongs to."
    if graph is None or graph.labels is None:
        return words
    titles = Titles(graph)
    names = [text(titles.class_(number)) for number in range(min(SHOWN_CLASSES, graph.labels.num_classes))]
    more = graph.labels.num_classes - len(names)
    return f"{words}\n\nClasses: {', '.join(names)}{f' and {more} more' if more else ''}."


def _limits(run: RunRecord, found: _Found) -> str:
    """What no figure shows."""
    model = run.config.model
    items = [_about_new_nodes(model, found.has_features)]
    if isinstance(model, NodeModelConfig):
        items.append("It gives each node one of its classes, also a node that belongs to none of them.")
    else:
        items.append("It knows the relations it was trained on, and no other.")
        if not model.decoder_biases:
            items.append(
                "DistMult scores (a, relation, b) and (b, relation, a) alike: it cannot tell which way a relation "
                "points."
            )
    items += [
        "It repeats what its data say, with their gaps, their mistakes and their age.",
        "A probability is no proof. Where an answer has consequences for people, someone must check it.",
    ]
    return bullets(items)


def _about_new_nodes(model: NodeModelConfig | LinkModelConfig, features: bool) -> str:
    own = "Every node it knows has learned numbers of its own"
    nothing = "it knows nothing of a node that was not in its graph. Train anew."
    if model.name == "distmult":
        return f"{own}, and no message is passed: {nothing}"
    looked_up = not features if isinstance(model, NodeModelConfig) else model.input == "one-hot"
    if model.name == "rgcn" and looked_up:
        return f"{own} for each relation (one-hot input): {nothing}"
    return (
        "Of a node that was not in its graph it knows only what the node's neighbors tell, and only where the node's "
        "triples are given with the question (`--with`). What it says then is less reliable, and is not in the figures "
        "below."
    )


def _data(run: RunRecord, graph: KnowledgeGraph | None) -> str:
    data, size = run.config.data, run.about.get("data", {})
    known = _catalogued(run)
    items = [f"Source: {text(Path(data.title).name)}"]
    if known is not None:
        items = [f"Source: {text(known.title)}, <{known.homepage}>", f"Licence of the data: {text(known.licence)}"]
    else:
        items.append("Licence of the data: not known to this program. Find out before you pass the model on.")
    items.append(", ".join(count(size[f"{one}s"], one) for one in ("node", "relation", "triple") if f"{one}s" in size))
    if graph is not None:
        statistics = graph.statistics()
        linked = run.task == "link-prediction"
        splits = statistics.triples_per_split if linked else statistics.labels_per_split
        parts = [f"{SPLIT_WORDS[split]} {number:,}" for split, number in splits.items() if number]
        items.append(f"Split ({'triples' if linked else 'labelled nodes'}): {', '.join(parts) or 'none'}")
        if data.prune:
            items.append(f"Of it the model keeps what labelled nodes can hear: {count(graph.num_nodes, 'node')}")
    items.append(f"Fingerprint (sha256): `{run.fingerprint}`")
    return bullets(items)


def _catalogued(run: RunRecord) -> Dataset | None:
    return CATALOG.get((run.config.data.dataset or "").lower())


def _training(run: RunRecord) -> str:
    from rgcn.runs.configuration import WITHOUT_EFFECT, changed_settings, flat_settings

    besides = ("task", "seed", "data", *WITHOUT_EFFECT)
    changed = flat_settings(changed_settings(run.config), besides)
    items = [f"Seed: {run.config.seed}", f"Epochs: {run.epochs:,} of at most {run.config.training.epochs:,}"]
    if run.seconds is not None:
        items.append(f"Time: {duration(run.seconds)}")
    if run.about.get("created"):
        items.append(f"Date: {moment(run.about['created'])}")
    if run.environment:
        items += _machine(run.environment[-1])
    else:
        items.append(f"Version: rgcn {text(run.about.get('rgcn', '?'))}")
    settings = [f"{key}: {setting(value)}" for key, value in changed.items()]
    words = "Settings that differ from the defaults:" if settings else "Every setting has its default."
    return "\n\n".join([bullets(items), words, *([code(settings, "yaml")] if settings else [])])


def _machine(session: dict[str, Any]) -> list[str]:
    hardware, versions = session.get("hardware") or {}, session.get("versions") or {}
    parts = [hardware.get("gpu"), hardware.get("cpu")]
    if hardware.get("cores"):
        parts.append(count(hardware["cores"], "core"))
    if hardware.get("memory_bytes"):
        parts.append(memory(hardware["memory_bytes"]))
    named = ", ".join(text(part) for part in parts if part)
    return [
        f"Hardware: {named or 'not written down'}",
        f"Versions: {', '.join(text(f'{name} {version}') for name, version in versions.items() if version)}",
    ]


def _results(run: RunRecord, found: _Found) -> list[str]:
    metrics = (run.result or {}).get("metrics", {})
    if not metrics:
        best = run.best()
        if run.result is not None or best is None:
            return ["Nothing was measured: there was no held-out data, or the run has not come that far."]
        column, epoch, value = best
        words = {"valid_mrr": "the highest validation MRR", "valid_loss": "the lowest validation loss"}[column]
        return [f"So far {words} is {decimal(value)}, at epoch {epoch:,.0f}. The test split is read at the end, once."]
    if run.task == "link-prediction":
        return _link_results(metrics, run.about["data"].get("nodes") or 1)
    rows = []
    for split, figures in metrics.items():
        measured = found.by_split.get(split)
        row = [SPLIT_WORDS[split], percent(figures["accuracy"])]
        if found.by_split:
            row += ["", ""] if measured is None else [percent(measured.majority_accuracy), f"{measured.count:,}"]
        rows.append(row)
    head = ["split", "accuracy", *(["always the most frequent class", "nodes"] if found.by_split else [])]
    return [table(head, rows)]


def _link_results(metrics: dict[str, dict[str, Any]], num_nodes: int) -> list[str]:
    """Filtered ranks of each split; below them what a choice at random gives."""
    hits = ("hits@1", "hits@3", "hits@10")
    rows = [
        [
            SPLIT_WORDS[split],
            three_places(figures["mrr"]),
            *(percent(figures[name]) for name in hits),
            decimal(figures["mean_rank"]),
            f"{figures['count']:,}",
        ]
        for split, figures in metrics.items()
    ]
    expected = sum(1 / rank for rank in range(1, num_nodes + 1)) / num_nodes
    chances = [percent(min(1.0, int(name.split("@")[1]) / num_nodes)) for name in hits]
    rows.append(["at random", f"{expected:.2g}", *chances, decimal((num_nodes + 1) / 2), ""])
    return [
        table(["split", "MRR", *hits, "mean rank", "questions"], rows),
        "A question is a triple without its object, or without its subject; any of "
        f"{count(num_nodes, 'node')} may be the answer.",
    ]


def _calibration(folder: Path) -> list[str]:
    """What `rgcn predict` wrote down of its probabilities, if it did."""
    try:
        kept = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
        words = str(kept["words"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return ["## Calibration", text(words)]


def _cautions(run: RunRecord, found: _Found) -> list[str]:
    words: list[str] = []
    if run.status != "finished":
        words.append("It is not finished: everything here is as far as it has come.")
    held_out = next((found.by_split[split] for split in ("test", "valid") if split in found.by_split), None)
    if held_out is not None:
        words += [text(one) for one in node_cautions(held_out)]
    graph = found.graph
    if run.task == "link-prediction" and graph is not None and graph.triple_splits is not None:
        from rgcn.known import repeated_across_splits, splits_up_to

        split = next((split for split in ("test", "valid") if len(graph.split_triples(split))), None)
        share = 0.0 if split is None else reversed_share(graph, graph.split_triples(split))
        known = splits_up_to(split or "test")
        words += [text(one) for one in ranking_cautions(known, share, repeated_across_splits(graph))]
    return [*words, one_seed(run)]


def _commands(run: RunRecord) -> str:
    asked = ["rgcn predict RUN --nodes names.txt --out classes.csv", "rgcn explain RUN NODE"]
    if run.task == "link-prediction":
        asked = [
            "rgcn predict RUN --subject NODE --relation RELATION -k 10",
            "rgcn complete RUN --relation RELATION --out missing.nt",
        ]
    lines = [*asked, "rgcn serve RUN"]
    words = "RUN is the folder of this run; names are those of the data. The last one opens a page to ask and look."
    python = ["import rgcn", "", 'model = rgcn.load_model("RUN/model")']
    return "\n\n".join([code(lines, "sh"), words, code(python, "python")])


def _citations(run: RunRecord) -> list[str]:
    model = "DistMult" if run.config.model.title == "distmult" else run.config.model.title
    known = _catalogued(run)
    items = [f"The model ({model}) and its settings: {PAPER}", f"Relational graph convolutions: {ORIGINAL}"]
    if known is not None:
        items.append(f"The data: {text(known.citation)}")
    return [
        *items,
        f"The program: rgcn {text(run.about.get('rgcn', rgcn.__version__))}, run {text(run.folder.resolve().name)}",
    ]
