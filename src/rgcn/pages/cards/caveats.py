"""What a reader should know before believing the figures of a report."""

from __future__ import annotations

from rgcn.pages.markup import Html, prose, tag
from rgcn.pages.reporting import Measured
from rgcn.runs.run_record import RunRecord


def caveats(run: RunRecord, measured: Measured | str) -> Html:
    """A list; `measured` may be the reason why nothing was."""
    words: list[str] = []
    if run.status != "finished":
        words.append(f"This run is not finished ({run.status}): it shows what there is so far.")
    if isinstance(measured, str):
        words.append(f"Nothing was measured beyond the curves: {measured}.")
    else:
        words += [*_about_the_split(run, measured), *measured.cautions, *_disagreement(run, measured)]
    words.append(one_seed(run))
    return tag("ul", *(tag("li", prose(one)) for one in words), class_="care")


def one_seed(run: RunRecord) -> str:
    return (
        f"This is one run with one seed ({run.config.seed}). Another seed gives other figures; "
        "only several runs tell how much they vary (`rgcn compare` shows mean and standard error)."
    )


def _about_the_split(run: RunRecord, measured: Measured) -> list[str]:
    words = []
    if run.result is None:
        words.append("Measured were the best weights of its newest checkpoint. The test split had no part in it.")
    if measured.split == "valid":
        words.append(
            "These figures are of the validation split, which may have had a say in the training; they flatter."
        )
    return words


def _disagreement(run: RunRecord, measured: Measured) -> list[str]:
    """Whether the model, measured again, still gives what the run wrote down."""
    metric = run.task.headline
    written = (run.result or {}).get("metrics", {}).get(measured.split, {}).get(metric.name)
    now = measured.values.get(metric.name)
    if written is None or now is None or abs(written - now) < 5e-4:
        return []
    return [
        f"Measured again for this report, {metric.title} is {now:.4f}; the run wrote down {written:.4f}. They should "
        "agree."
    ]
