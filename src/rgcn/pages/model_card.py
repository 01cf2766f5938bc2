"""A model card in Markdown: what a run's model is, what it is good for, how it was made and measured.

With the front matter that model hubs read. It names no path of the machine it was made on.
"""

import json
from pathlib import Path
from typing import Any

import yaml

from rgcn.data.catalog import CATALOG
from rgcn.errors import RgcnError
from rgcn.models.estimator import Estimator
from rgcn.pages.layout import SPLIT_WORDS, render
from rgcn.pages.reporting import Reporting
from rgcn.pages.run_report import STATE_WORDS, one_seed
from rgcn.runs.assembly import load_trained
from rgcn.runs.configuration import WITHOUT_EFFECT, changed_settings, flat_settings
from rgcn.runs.folder import RunFolder
from rgcn.runs.run_record import RunRecord, read_run
from rgcn.version import __version__


def model_card(run: RunFolder, model: Estimator | None = None) -> str:
    """The card of a run, finished or not; `model` spares loading it again where it is at hand."""
    record = read_run(run.path)
    reporting, missing = record.task.to(Reporting), ""
    if record.result is None:
        model, missing = None, "It is not finished, so that there is no model to measure yet."
    elif model is None:
        try:
            model = load_trained(run, device="cpu")
        except RgcnError:  # its words would name a folder of this machine
            missing = "Its folder `model/` is missing or damaged, so that less is said here."
    config = record.config
    card = render(
        "model_card.md",
        front_matter=_front_matter(record),
        run=record,
        version=record.about.get("rgcn", __version__),
        state=STATE_WORDS.get(record.status, record.status),
        missing=missing,
        reporting=reporting,
        model=model,
        dataset=CATALOG.get((config.data.dataset or "").lower()),
        source=config.data.title,
        settings=flat_settings(changed_settings(config), ("task", "seed", "data", *WITHOUT_EFFECT)),
        calibration=_calibration(run.path),
        one_seed=one_seed(record),
    )
    return str(card)


def _front_matter(run: RunRecord) -> str:
    source = run.config.data.title
    about: dict[str, Any] = {
        "library_name": "rgcn",
        "pipeline_tag": "graph-ml",
        "tags": list(dict.fromkeys(["rgcn", run.config.model.title, run.task.name, "knowledge-graph"])),
        "datasets": [source],
    }
    figures = [
        {"type": metric, "value": round(float(value), 4), "name": f"{SPLIT_WORDS['test']} {metric}"}
        for metric, value in (run.result or {}).get("metrics", {}).get("test", {}).items()
        if metric != "count"
    ]
    if figures:
        task = {"type": run.task.name, "name": run.task.title.capitalize()}
        results = [{"task": task, "dataset": {"name": source, "type": source}, "metrics": figures}]
        about["model-index"] = [{"name": run.folder.resolve().name, "results": results}]
    return yaml.safe_dump(about, sort_keys=False, allow_unicode=True)


def _calibration(folder: Path) -> str | None:
    """What `rgcn predict` wrote down of its probabilities, if it did."""
    try:
        return str(json.loads((folder / "calibration.json").read_text(encoding="utf-8"))["words"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
