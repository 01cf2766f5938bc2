"""Commands that train, evaluate, query and serve models. Their docstrings are their help."""

# ruff: noqa: B008, RUF009 - typer reads the options of a command from defaults

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from typer import Argument, Option

from rgcn.cli import commands
from rgcn.cli.commands import AS_JSON, CHANGES, MIRROR, GraphOptions, NewNodeOptions, OutputOptions, app, command
from rgcn.serve.address import Limits

CLASSES = Option(False, "--classes", help="For a graph with labels: predict classes instead of links.")
KEEP_FORMULAS = Option(
    False, "--keep-formulas", help="In CSV and TSV, put no ' before names that a spreadsheet would compute."
)
TRIPLE_PART = Option(None, help="Part of the triple to explain; all three are needed.")
OUT_FILE = Option(None, help="File to write, ending in .csv, .tsv, .parquet, .jsonl, .nt or .nt.gz.")


@dataclass
class TrainOptions(commands.TrainingOptions, GraphOptions):
    """Options of `rgcn train`.

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


@command(app)
def train(options: TrainOptions) -> None:
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
    """
    from rgcn.cli.train import train_model

    train_model(options)


@dataclass
class PretrainOptions(commands.TrainingOptions):
    """Options of `rgcn pretrain`.

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


@command(app)
def pretrain(options: PretrainOptions) -> None:
    """Pretrain a model on several graphs, for use on any other graph.

    The pretrained model of rgcn was made by this command. Ctrl-C saves and stops; the same command with the same --out
    continues. --set model.start=shipped begins with the weights of the pretrained model. The validation graph (data)
    is not trained on. The built-in configuration takes a day on two cores: use a GPU.

    Examples:
      rgcn pretrain --device cuda
      rgcn pretrain mine.yaml --out runs/mine --set model.start=shipped
    """
    from rgcn.cli.train import pretrain_model

    pretrain_model(options)


@dataclass
class ResumeOptions(commands.DataOptions, commands.DistributedOptions, OutputOptions):
    """Options of `rgcn resume`.

    Attributes:
        folder: Folder of a run; `rgcn runs` lists them.
        no_track: Report to no tracker.
    """

    folder: Path = Argument(...)
    no_track: bool = Option(False, "--no-track")


@command(app)
def resume(options: ResumeOptions) -> None:
    """Resume a run from its newest checkpoint.

    The result is bit for bit that of an uninterrupted run on the same machine with the same versions (on a GPU with
    training.deterministic=true). A finished run is only shown. A folder of several seeds continues with all of them.

    The number of --processes may differ from that of the original run.

    Examples:
      rgcn resume runs/rgcn-nc-aifb
      rgcn resume runs/large --processes 4
    """
    from rgcn.cli.train import resume_run

    resume_run(options)


@dataclass
class SplitOptions(commands.DataOptions, GraphOptions):
    """Options of `rgcn split`.

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


@command(app)
def split(options: SplitOptions) -> None:
    """Split a graph into training, validation and test triples.

    The split is random, or by time with the latest triples for testing. Every node and relation keeps a training
    triple, and triples that repeat each other (inverse and duplicate relations) stay in one split. Labels without a
    split are split too, class by class. `rgcn train` does the same for a graph without splits (data.split).

    Examples:
      rgcn split mine.nt --out split/
      rgcn split events.csv --by year --out split/
    """
    from rgcn.cli.data import split_graph

    split_graph(options)


@dataclass
class EvaluateOptions(commands.DataOptions, commands.DistributedOptions, GraphOptions):
    """Options of `rgcn evaluate`.

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


@command(app)
def evaluate(options: EvaluateOptions) -> None:
    """Evaluate a model on one split.

    Prints accuracy, or filtered ranks by direction and relation, as the task defines.

    For a graph with splits the pretrained model is evaluated: on links, or on classes with --classes. It is given the
    training triples or labels.

    For a run that is not finished, the best weights of the newest checkpoint are used. With --on, a model without node
    embeddings (encoder path) is evaluated on a graph it was not trained on, given that graph's training triples.

    Examples:
      rgcn evaluate runs/rgcn-lp-world --split valid
      rgcn evaluate fb15k-237 --at-most 1000
    """
    from rgcn.cli.train import evaluate_model

    evaluate_model(options)


@command(app)
def runs(
    folder: Path = Argument(commands.RUNS),
    as_json: bool = AS_JSON,
) -> None:
    """List runs with their task, data, model, metric, progress, time and state.

    Args:
        folder: Folder to search, with the folders inside it.
        as_json: Print one JSON object on standard output, and nothing else.

    Examples:
      rgcn runs
      rgcn runs experiments/ --json
    """
    from rgcn.cli.runs import print_runs

    print_runs(folder, as_json)


@dataclass
class ReportOptions(OutputOptions):
    """Options of `rgcn report`.

    Attributes:
        run: Folder of a run, finished or not.
        out: File to write. Default: RUN/report.html.
        split: Split to evaluate. Default: test if there is one; valid for a run that is not finished.
    """

    run: Path = Argument(...)
    out: Path | None = None
    split: Literal["test", "valid"] | None = None
    mirror: Path | None = MIRROR


@command(app)
def report(options: ReportOptions) -> None:
    """Write a report of a run as one HTML file.

    It has curves, errors, predictions by name and all settings, and loads nothing from the web.

    Examples:
      rgcn report runs/rgcn-nc-aifb
      rgcn report runs/rgcn-nc-aifb --split valid --out aifb.html
    """
    from rgcn.cli.report import write_report

    write_report(options)


@command(app)
def compare(
    runs: list[Path] = Argument(...),
    out: Path | None = None,
    as_json: bool = AS_JSON,
) -> None:
    """Compare runs: different settings, metrics and curves.

    A series of seeds counts as mean ± standard error.

    Args:
        runs: Folders of runs, or of series (FOLDER/seed-0/, FOLDER/seed-1/, ...).
        out: Also write the comparison as one HTML file.
        as_json: Print one JSON object on standard output, and nothing else.

    Examples:
      rgcn compare runs/a runs/b
      rgcn compare runs/* --out comparison.html
    """
    from rgcn.cli.report import print_comparison

    print_comparison(runs, out, as_json)


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


@dataclass
class PredictOptions(
    QuestionOptions, AnswerOptions, AnswerFilterOptions, commands.SkippingOptions, NewNodeOptions, OutputOptions
):
    """Options of `rgcn predict`."""


@command(app)
def predict(options: PredictOptions) -> None:
    """Predict classes of nodes, or missing links.

    For a run, its task decides. For a graph, the pretrained model answers without training: --subject, --object or
    --queries ask for links; without them classes are predicted. By default the nodes to classify are those like labeled
    ones, for a graph those without a label.

    Examples:
      rgcn predict runs/rgcn-nc-aifb --out classes.csv
      rgcn predict mine.csv --subject Anna --relation worksFor
    """
    from rgcn.cli.predict import predict_answers

    predict_answers(options)


@dataclass
class CompleteOptions(AnswerFilterOptions, NewNodeOptions, OutputOptions):
    """Options of `rgcn complete`.

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


@command(app)
def complete(options: CompleteOptions) -> None:
    """Find missing triples, over all subjects and relations.

    The triples are ranked, the best first. The most promising questions are asked first. After Ctrl-C, --minutes or a
    crash, the same command continues, with the same result as without interruption. Its state is kept beside --out, or
    in the folder of the run; for a graph without --out it is lost.

    Examples:
      rgcn complete runs/rgcn-lp-world --out new.nt
      rgcn complete mine.nt --relation worksFor --min-probability 0.5
    """
    from rgcn.cli.predict import complete_graph

    complete_graph(options)


@dataclass
class ExplainCommandOptions(NewNodeOptions):
    """Options of `rgcn explain`.

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


@command(app)
def explain(options: ExplainCommandOptions) -> None:
    """Explain a predicted class or link by the triples that decided it.

    The fidelity tells how far the explanation holds. A model that follows paths from the question to the answer is
    explained by its best paths, with the triple itself hidden.

    Examples:
      rgcn explain runs/rgcn-nc-world Switzerland
      rgcn explain runs/rgcn-lp-world --subject Peru --relation borders --object Chile
    """
    from rgcn.cli.predict import explain_answer

    explain_answer(options)


@dataclass
class EmbedOptions(commands.SkippingOptions, OutputOptions):
    """Options of `rgcn embed`.

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


@command(app)
def embed(options: EmbedOptions) -> None:
    """Write node and relation vectors, and a page that shows them.

    The pretrained model has no node vectors: for a graph, there are only relation vectors.

    Examples:
      rgcn embed runs/rgcn-nc-world --out nodes.parquet
      rgcn embed runs/rgcn-nc-world --plot map.html --map pca
    """
    from rgcn.cli.report import write_embeddings

    write_embeddings(options)


@dataclass
class ServeOptions(NewNodeOptions):
    """Options of `rgcn serve`.

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


@command(app)
def serve(options: ServeOptions, limits: Limits) -> None:
    """Serve models over HTTP, with an API and an explorer page.

    For graphs the pretrained model answers without training. Ctrl-C or SIGTERM stops the server after running requests;
    a second signal stops it at once. See docs/guides/serve.md.

    Examples:
      rgcn serve runs/rgcn-lp-world --open
      rgcn serve mine.nt --port 9000
    """
    from rgcn.cli.serve import serve_models

    serve_models(options, limits)


@command(app)
def card(
    run: Path = Argument(...),
    out: Path | None = None,
) -> None:
    """Write a model card: the model, its data, training, metrics and limits.

    Args:
        run: Folder of a run; `rgcn runs` lists them.
        out: File to write, such as MODEL_CARD.md. Default: print it.

    Examples:
      rgcn card runs/rgcn-nc-aifb
      rgcn card runs/rgcn-nc-aifb --out MODEL_CARD.md
    """
    from rgcn.cli.report import write_card

    write_card(run, out)


@command(app)
def export(
    run: Path = Argument(...),
    out: Path = Option(...),
    mirror: Path | None = MIRROR,
    accept_changed_data: bool = commands.ACCEPT_CHANGED_DATA,
    as_json: bool = AS_JSON,
) -> None:
    """Export a trained encoder as one file that PyTorch alone runs.

    Its input are node ids, its output logits or node vectors.

    Args:
        run: Folder of a run; `rgcn runs` lists them.
        out: File to write, ending in .pt2.
        mirror: Folder to take data sets from. Default: RGCN_MIRROR.
        accept_changed_data: Use the training graph even if its files have changed since.
        as_json: Print one JSON object on standard output, and nothing else.

    Examples:
      rgcn export runs/rgcn-nc-aifb --out aifb.pt2
      rgcn export runs/rgcn-lp-world --out world.pt2 --json
    """
    from rgcn.cli.report import export_encoder

    export_encoder(run, out, mirror, accept_changed_data, as_json)


@dataclass
class TuneOptions(commands.ComputingOptions, OutputOptions):
    """Options of `rgcn tune`.

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


@command(app)
def tune(options: TuneOptions) -> None:
    """Search for better settings.

    The test split is removed before the first trial. The command writes best.yaml, which `rgcn train` takes, tune.html,
    trials.csv and study.db, from which the same command continues.

    Examples:
      rgcn tune rgcn/nc-aifb --trials 20 --jobs 2
      rgcn tune mine.yaml --search model.hidden=8,16,32 --fix all
    """
    from rgcn.cli.studies import tune_settings

    tune_settings(options)
