"""A model card in Markdown: what a run's model is, what it is good for, how it was made and measured.

With the front matter that model hubs read. It names no path of the machine it was made on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rgcn.data.catalog import CATALOG, Dataset
from rgcn.errors import RgcnError
from rgcn.graph import KnowledgeGraph
from rgcn.pages.cards.caveats import one_seed
from rgcn.pages.figures import SPLIT_WORDS, decimal, moment
from rgcn.pages.markdown import bullets, code, text
from rgcn.pages.reporting import Reporting
from rgcn.pages.writing import STATE_WORDS
from rgcn.runs.assembly import load_trained
from rgcn.runs.folder import RunFolder
from rgcn.runs.run_record import RunRecord, read_run
from rgcn.tasks.estimator import Estimator
from rgcn.version import __version__
from rgcn.words import count, duration, memory, setting

PAPER = (
    "T. Thanapalasingam, L. van Berkel, P. Bloem, P. Groth: Relational Graph Convolutional Networks: A Closer Look. "
    "PeerJ Computer Science 8:e1073, 2022."
)
ORIGINAL = (
    "M. Schlichtkrull, T. N. Kipf, P. Bloem, R. van den Berg, I. Titov, M. Welling: Modeling Relational Data with "
    "Graph Convolutional Networks. ESWC 2018."
)


def model_card(run: RunFolder, model: Estimator | None = None) -> str:
    """The card of a run, finished or not; `model` spares loading it again where it is at hand."""
    record = read_run(run.path)
    found = _model_or_reason(run, record, model)
    there = None if isinstance(found, str) else found
    graph, reporting = None if there is None else there.graph_, record.task.to(Reporting)
    parts = [
        _front_matter(record),
        f"# {text(record.title)}",
        *_introduction(record, found),
        "## What it is",
        _what_it_is(record, graph),
        "## What it is for",
        reporting.uses(graph),
        "## What it cannot do",
        _limits(record, there, reporting),
        "## Data",
        _data(record, graph, reporting),
        "## Training",
        _training(record),
        "## Results",
        *_results(record, graph, reporting),
        *_calibration(run.path),
        "## Read with care",
        bullets(_cautions(record, there, reporting)),
        "## How to use it",
        _commands(reporting),
        "## How to cite it",
        bullets(_citations(record)),
    ]
    return "\n\n".join(parts) + "\n"


def _model_or_reason(run: RunFolder, record: RunRecord, model: Estimator | None) -> Estimator | str:
    if record.result is None:
        return "It is not finished, so that there is no model to measure yet."
    try:
        return load_trained(run, device="cpu") if model is None else model
    except RgcnError:  # its words would name a folder of this machine
        return "Its folder `model/` is missing or damaged, so that less is said here."


def _front_matter(run: RunRecord) -> str:
    """What model hubs read."""
    import yaml

    name = run.config.data.title
    about: dict[str, Any] = {
        "library_name": "rgcn",
        "pipeline_tag": "graph-ml",
        "tags": list(dict.fromkeys(["rgcn", run.config.model.title, run.task.name, "knowledge-graph"])),
        "datasets": [Path(name).name],
    }
    figures = [
        {"type": metric, "value": round(float(value), 4), "name": f"{SPLIT_WORDS[split]} {metric}"}
        for split, metrics in (run.result or {}).get("metrics", {}).items()
        for metric, value in metrics.items()
        if split == "test" and metric != "count"
    ]
    if figures:
        task = {"type": run.task.name, "name": run.task.title.capitalize()}
        results = [{"task": task, "dataset": {"name": Path(name).name, "type": Path(name).name}, "metrics": figures}]
        about["model-index"] = [{"name": run.folder.resolve().name, "results": results}]
    dumped = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
    return f"---\n{dumped}---"


def _introduction(run: RunRecord, found: Estimator | str) -> list[str]:
    words = [run.task.about]
    if run.status != "finished":
        words.append(f"**This run is {STATE_WORDS.get(run.status, run.status)}.**")
    return [*words, *([found] if isinstance(found, str) else [])]


def _what_it_is(run: RunRecord, graph: KnowledgeGraph | None) -> str:
    result = run.result or {}
    described = run.config.model.described(graph is not None and graph.features is not None)
    items = [f"{heading}: {text(words)}" for heading, words in described.made_of.items()]
    if result.get("stored_parameters") is not None:
        items.append(f"Parameters: {result['stored_parameters']:,} held, {result['parameters']:,} as the paper counts")
    items.append("Weights: safetensors, beside the graph they were learned from; nothing is pickled")
    return bullets(items)


def _limits(run: RunRecord, model: Estimator | None, reporting: Reporting) -> str:
    """What no figure shows."""
    items = [] if model is None else [_about_new_nodes(model)]
    items += [*reporting.limits(), *run.config.model.described().limits]
    items += [
        "It repeats what its data say, with their gaps, their mistakes and their age.",
        "A probability is no proof. Where an answer has consequences for people, someone must check it.",
    ]
    return bullets(items)


def _about_new_nodes(model: Estimator) -> str:
    reason = model.cannot_extend()
    if reason is not None:
        return f"It knows nothing of a node that was not in its graph: {reason}."
    return (
        "Of a node that was not in its graph it knows only what the node's neighbors tell, and only where the node's "
        "triples are given with the question (`--with`). What it says then is less reliable, and is not in the figures "
        "below."
    )


def _data(run: RunRecord, graph: KnowledgeGraph | None, reporting: Reporting) -> str:
    data, size = run.config.data, run.about.get("data", {})
    known = _catalogued(run)
    items = [f"Source: {text(Path(data.title).name)}"]
    if known is not None:
        items = [f"Source: {text(known.title)}, <{known.homepage}>", f"Licence of the data: {text(known.licence)}"]
    else:
        items.append("Licence of the data: not known to this program. Find out before you pass the model on.")
    items.append(", ".join(count(size[f"{one}s"], one) for one in ("node", "relation", "triple") if f"{one}s" in size))
    if graph is not None:
        for what, sizes in reporting.splits(graph).items():
            parts = [f"{SPLIT_WORDS[split]} {number:,}" for split, number in sizes.items() if number]
            items.append(f"Split ({what}): {', '.join(parts) or 'none'}")
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


def _results(run: RunRecord, graph: KnowledgeGraph | None, reporting: Reporting) -> list[str]:
    figures, best = (run.result or {}).get("metrics", {}), run.best()
    if figures:
        return reporting.results(figures, graph)
    if run.result is not None or best is None:
        return ["Nothing was measured: there was no held-out data, or the run has not come that far."]
    so_far = f"So far {best.metric.best} is {decimal(best.value)}, at epoch {best.epoch:,}."
    return [f"{so_far} The test split is read at the end, once."]


def _calibration(folder: Path) -> list[str]:
    """What `rgcn predict` wrote down of its probabilities, if it did."""
    try:
        kept = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))
        words = str(kept["words"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return ["## Calibration", text(words)]


def _cautions(run: RunRecord, model: Estimator | None, reporting: Reporting) -> list[str]:
    unfinished = "It is not finished: everything here is as far as it has come."
    words = [] if model is None else [text(one) for one in reporting.cautions(model)]
    return [*([] if run.status == "finished" else [unfinished]), *words, one_seed(run)]


def _commands(reporting: Reporting) -> str:
    lines = [*reporting.commands(), "rgcn serve RUN"]
    words = "RUN is the folder of this run; names are those of the data. The last one opens a page to ask and look."
    python = ["import rgcn", "", 'model = rgcn.load_model("RUN/model")']
    return "\n\n".join([code(lines, "sh"), words, code(python, "python")])


def _citations(run: RunRecord) -> list[str]:
    known = _catalogued(run)
    items = [f"The method and its settings: {PAPER}", f"Relational graph convolutions: {ORIGINAL}"]
    if known is not None:
        items.append(f"The data: {text(known.citation)}")
    return [
        *items,
        f"The program: rgcn {text(run.about.get('rgcn', __version__))}, run {text(run.folder.resolve().name)}",
    ]
