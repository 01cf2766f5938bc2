"""Write docs/reference/reproduction.md from the files under results/.

    python tools/reproduction_page.py           # rewrite it
    python tools/reproduction_page.py --check   # exit 1 if it is not what the results say

The text is here; our numbers come from results/, the published ones from rgcn.paper.published.
"""

from __future__ import annotations

import statistics
import sys
import textwrap
from typing import Any

from result_files import ROOT, place, result, result_file
from rgcn.paper import LINK, NODE
from rgcn.paper.published import (
    CPU,
    DESCRIBED,
    DISTMULT_TIME,
    FREEBASE_TIME,
    GPU,
    GPU_TIME,
    LINK_TIMED_STEPS,
    LINK_TIMES,
    NODE_TIMES,
    RULE,
    PaperResult,
    PaperRow,
    PaperTable,
    about_text,
    judge_time,
    markdown_table,
)
from rgcn.paper.trainings import CONFIGURATIONS, TrainingResult, subject, training_table
from rgcn.runs import load_configuration
from rgcn.system.formatting import format_duration, format_setting

PAGE = ROOT / "docs" / "reference" / "reproduction.md"
STEPS_ONLY = "no whole training was timed on a GPU; [performance.md](performance.md) has its steps"
UNKNOWN_EPOCHS = "not measured: the paper does not say how many epochs these runs had"
NO_DATA = "the data are on no machine we had; the configuration is built in and runs where the data are"

HEAD = """\
<!-- Written by tools/reproduction_page.py from the files under results/. Change those, not this. -->

# The paper's results beside ours

Every table and every stated number of *Relational Graph Convolutional Networks: A Closer Look*. Torch-RGCN is the
paper's own code. TF-RGCN is the original code, with the results that the paper quotes. To make these tables on your
machine (the second command takes minutes on two cores, and keeps 6 GB of runs):

```sh
rgcn reproduce datasets     # seconds
rgcn reproduce node-classification --datasets aifb mutag --runs 100
rgcn reproduce all          # hours without a GPU
```

{rule}

The ± of the paper's Table 2 are called standard deviations there, but are standard errors: e-RGCN's 89.17 ± 0.28
on AIFB is nine runs with 32 of 36 test nodes right and one with 33, whose deviation is 0.88 and whose error is 0.28.

## In short

{summary}
"""

NODE_PROSE = """
## Node classification (Table 2)

{table}
The configurations are the paper's. Test splits have 36 (AIFB) and 68 (MUTAG) nodes: one node is 2.8 or 1.5 points, and
ten seeds, the default of `rgcn reproduce`, say little; ours are all seeds from 0 to 99.
[Results](results.md#node-classification) has their distribution, and says how often a test split was read.

{sources}
"""

LINK_PROSE = """
## Link prediction (Tables 5 and 6)

{table}
The built-in configurations differ from the paper's description. On validation triples other settings were better, and
most of these are in the original code, although the paper does not mention them.
[Results](results.md#link-prediction) has the effect of each. The paper's description, as we understand it, reached less
on WN18 than the paper reports. The differences:

{differences}
With `evaluate_every` the weights with the best validation metric are kept. The paper did not stop early, and does not
mention keeping other weights than the last. The text of its Section 6.2 gives FB-Toy's encoder two layers. Its
published configuration has one, as ours.

{sources}
"""

DATASETS_PROSE = """
## Data sets (Tables 1 and 3)

{table}
{notes}

{sources}
"""

TENSORS_PROSE = """
## Intermediate tensors (Table 4)

{rule}

{table}
{sources}
"""

PARAMETERS_PROSE = """
## Parameters (Sections 5.2, 6.3 and 7.1)

{table}
{rule}

{sources}
"""

TIMES_PROSE = """
## Times (Sections 5.3 and 7.2)

The paper's are from {cpu} (training on a CPU) and {gpu} (everything else; WN18 with inference);
ours are from the machines named below. They compare implementations only as far as the machines compare.

{table}
"""


def main() -> None:
    page = compose()
    if "--check" in sys.argv:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page:
            sys.exit("docs/reference/reproduction.md does not show what results/ holds: run tools/reproduction_page.py")
    else:
        PAGE.write_text(page, encoding="utf-8")


def compose() -> str:
    nodes = training_table(NODE, {name: trained(name) for name in CONFIGURATIONS[NODE]})
    links = training_table(LINK, {name: trained(name) for name in CONFIGURATIONS[LINK]})
    datasets, tensors, parameters = (kept(n) for n in ("datasets", "tensor-statistics", "parameters"))
    parts = [
        HEAD.format(rule=wrapped(RULE), summary=summary(nodes, links, datasets[0], tensors[0])),
        NODE_PROSE.format(table=markdown_table(nodes), sources=sources(CONFIGURATIONS[NODE])),
        LINK_PROSE.format(
            table=markdown_table(links), differences=differences_table(), sources=sources(CONFIGURATIONS[LINK])
        ),
        DATASETS_PROSE.format(
            table=markdown_table(datasets[0]), notes="\n".join(datasets[0].notes), sources=datasets[1]
        ),
        TENSORS_PROSE.format(
            rule=wrapped(f"{tensors[0].title}.", tensors[0].rule, *tensors[0].notes),
            table=markdown_table(tensors[0]),
            sources=tensors[1],
        ),
        PARAMETERS_PROSE.format(
            table=markdown_table(parameters[0]),
            rule=wrapped(parameters[0].rule, eight_percent(parameters[0]), *parameters[0].notes),
            sources=parameters[1],
        ),
        TIMES_PROSE.format(cpu=CPU, gpu=GPU, table=markdown_table(times_table())),
    ]
    return "".join(parts)


# -- results -----------------------------------------------------------------------------------------------


def trained(name: str) -> TrainingResult | str:
    data = result(name)
    return NO_DATA if data is None else TrainingResult.of(data["runs"])


def kept(name: str) -> tuple[PaperTable, str]:
    """A table that `rgcn reproduce NAME --json` wrote, and where it comes from."""
    file = f"reproduction-{name}"
    data = result(file)
    if data is None:
        sys.exit(f"results/{file}.json is missing: rgcn reproduce {name} --json > results/{file}.json")
    return PaperTable.from_dict(data["tables"][0]), f"[{file}.json](../../{result_file(file)}): {about_text(data)}."


def sources(names: Any) -> str:
    """Return where the numbers of some configurations come from."""
    lines = []
    for name in names:
        data = result(name)
        if data is not None:
            lines.append(f"- [{name}](../../{result_file(name)}): `{data['command']}`, {place(data)}, {data['date']}")
    return "\n".join(lines)


# -- what they say -----------------------------------------------------------------------------------------


VERDICTS = {
    "agrees": "agrees with the paper",
    "above": "above",
    "below": "below",
    "higher": "higher, but one run",
    "lower": "lower, but one run",
    "none": "no result, because the data are missing",
}


def summary(nodes: PaperTable, links: PaperTable, datasets: PaperTable, tensors: PaperTable) -> str:
    """A line for each verdict on accuracies and MRR, then how many counts and tensors agree."""
    lines = []
    for verdict, words in VERDICTS.items():
        rows = [row for table in (nodes, links) for row in table.rows if row.quantity in ("MRR", "test accuracy, %")]
        comparison = "; ".join(filter(None, (_stand(row, verdict) for row in rows)))
        if comparison:
            lines.append(f"- **{words}**: {comparison}")
    counted = [judged.verdict for row in datasets.rows for judged in row.published]
    lines.append(
        f"- **data sets**: of {len(counted)} counts {counted.count('equal')} are equal, {counted.count('differs')} "
        f"differ, {counted.count('none')} could not be made, because the data are missing"
    )
    stds = [row.published[0].verdict for row in tensors.rows if row.quantity == "std"]
    within = sum("within" in verdict for verdict in stds)
    lines.append(f"- **intermediate tensors**: {within} of {len(stds)} standard deviations are within what is allowed")
    return "\n".join(lines) + "\n\nAccuracies in percent and MRR; hits are in the tables below."


def _stand(row: PaperRow, verdict: str) -> str:
    """ "WN18 RGCN 0.809 (Torch-RGCN 0.749)", of the published results with this verdict."""
    compared = [j.figure for j in row.published if j.verdict == verdict and j.figure.value is not None]
    what = row.subject.replace(",", "")
    if not compared or row.ours is None:
        return what if compared else ""
    values = ", ".join(f"{figure.by} {figure.value:.{row.digits}f}" for figure in compared)
    return f"{what} {row.ours:.{row.digits}f} ({values})"


def eight_percent(parameters: PaperTable) -> str:
    equal = [row.subject.split(",")[0] for row in parameters.rows for j in row.published if j.verdict == "equal"]
    return f"Only that on {' and '.join(equal)} rounds to it." if equal else "None rounds to it."


def differences_table() -> str:
    lines = ["| | setting | the paper | built in |", "|---|---|---|---|"]
    for name, described in DESCRIBED.items():
        config = load_configuration(name)
        what = subject(name)
        for key, theirs in described.items():
            section, field = key.split(".")
            ours = getattr(getattr(config, section), field)
            if ours != theirs:
                lines.append(f"| {what} | {key} | {format_setting(theirs)} | {format_setting(ours)} |")
                what = ""
    return "\n".join(lines) + "\n"


def times_table() -> PaperTable:
    rows = [_time_row(name, figure, None) for name, figure in NODE_TIMES.items()]
    rows += [
        PaperRow("RGCN on a GPU", "training", kind="time").without_result([GPU_TIME], STEPS_ONLY),
        *(_time_row(name, figure, LINK_TIMED_STEPS) for name, figure in LINK_TIMES.items()),
        _time_row("distmult/lp-wn18", DISTMULT_TIME, None),
        PaperRow("FB15k and FB15k-237, RGCN", "training", kind="time").without_result([FREEBASE_TIME], UNKNOWN_EPOCHS),
    ]
    return PaperTable("timings", "Times", rows, rule="")


def _time_row(name: str, figure: PaperResult, epochs: int | None) -> PaperRow:
    """Whole runs where they had the paper's epochs, else computed from the epochs that were measured."""
    data = result(name)
    row = PaperRow(subject(name), "training", kind="time")
    if data is None:
        return row.without_result([figure], NO_DATA)
    seconds, taken = statistics.median(run["seconds"] for run in data["runs"]), data["runs"][0]["epochs"]
    note = f"measured: {taken:,} epochs, {place(data)}"
    if epochs is not None:
        note += ", with the validation rankings, without the last ranking of the test triples"
    computed = epochs is not None and epochs != taken
    if computed:
        assert epochs is not None
        time = format_duration(seconds)
        note = f"computed from {taken:,} epochs in {time}, {place(data)}: {epochs:,} epochs at the same pace"
        seconds *= epochs / taken
    judged = (judge_time(figure, seconds),)
    return PaperRow(row.subject, row.quantity, judged, seconds, extrapolated=computed, note=note, kind="time")


def wrapped(*texts: str) -> str:
    """Sentences as a paragraph of the page's width."""
    return textwrap.fill(" ".join(text[0].upper() + text[1:] for text in texts), 120)


if __name__ == "__main__":
    main()
