"""What can be said to commands that train models, look at runs, ask and serve models: read on, it is their help.

The first sentence of a class is the command's line in `rgcn --help`.
"""

from inspect import Parameter
from pathlib import Path
from typing import Any, Literal

from rgcn.cli import commands
from rgcn.cli.commands import AskingOptions, Command, GraphOptions, TellingOptions, TrainingOptions, flag, option

RUN = commands.argument("Folder of a run; `rgcn runs` lists them.")
CONFIGURATION = commands.argument(
    "A shipped configuration, such as rgcn/nc-aifb (see `rgcn configs`), or a YAML file; or a graph, whose missing "
    "links are learned: a file, a folder or a data set's name."
)
ASKED = commands.argument(
    "Folder of a run; or a graph, which the model that comes with rgcn answers for without training: a file or folder "
    "of triples, or a data set's name.",
    metavar="RUN_OR_GRAPH",
)
CLASSES = flag("--classes", "Of a graph with labels: classes of nodes, instead of links.")
KEEP_FORMULAS = flag("--keep-formulas", "CSV, TSV: no ' before names that a spreadsheet would compute (=..., @...).")
ONLY_SEEN = flag("--only-seen", "Only nodes that already are subject, or object, of the relation.")
ANY_NODE = flag("--any-node", "Any node at either end, also where none of its like was ever seen, or one is enough.")
ANY_DIRECTION = flag("--any-direction", "Also known triples turned round, in a relation that only goes one way.")


class TrainCommand(Command, TrainingOptions, GraphOptions, name="train", calls="train:train"):
    """Train a model, measure it on every split, and show some of its predictions.

    Of a graph, such as data.csv, several models are tried in --minutes, against baselines without a graph; the one that
    is best on validation data is kept, and measured on test data. With --labels or --labels-from they tell classes
    of nodes, else missing links. --set model.name=path trains that one alone.

    Ctrl-C saves and stops; `rgcn resume FOLDER` goes on, also after a crash or kill -9, and ends with the very same
    weights. How often a run is saved: --set checkpoints.every_minutes=1, checkpoints.every_steps=500.
    """

    configuration: str = CONFIGURATION
    seed: int | None = commands.SEED
    changes: list[str] | None = commands.CHANGES
    out: Path | None = option("Folder to keep the run in. By default a new one under runs/.")
    no_keep: bool = flag("--no-keep", "Keep nothing: no folder, no checkpoints.")
    dry_run: bool = flag("--dry-run", "Print what the training would do, with every default filled in, and stop.")
    runs: int = option(
        "Train with so many seeds, a folder each; mean, deviation and error.", default=1, min=1, max=commands.MOST_RUNS
    )
    jobs: int = commands.JOBS
    minutes: float | None = option(
        "How long to train, about; it becomes a number of steps, which the run writes down. To choose a model: 3 by "
        "default; of a configuration: as many steps as it says."
    )
    memory: str | None = option(
        "Memory that the training may take, such as 8GiB: batches and tables are planned to fit; refused with settings "
        "that would, where they do not. By default what is free."
    )
    track: list[str] | None = option("Also report to tensorboard, mlflow, wandb or package.module:Class. Repeatable.")


class PretrainCommand(Command, TrainingOptions, name="pretrain", calls="train:pretrain"):
    """Learn weights for any graph from several graphs: how the model that comes with rgcn was made.

    Ctrl-C saves and stops; the same command with the same --out goes on, as often as needed. `--set
    model.start=shipped` begins with the weights that come with rgcn instead of anew. The graph it is watched on (data)
    is never learned from. A GPU is the place for it: the shipped configuration takes a day on two cores.
    """

    configuration: str = commands.argument(
        "A shipped configuration or a YAML file.", "universal/pretraining", metavar="CONFIG"
    )
    seed: int | None = commands.SEED
    changes: list[str] | None = commands.CHANGES
    out: Path = option("Folder of the run.", default=commands.RUNS / "universal")


class ResumeCommand(
    Command, commands.ReadingOptions, commands.SharedOptions, TellingOptions, name="resume", calls="train:resume"
):
    """Go on with a run that was stopped, killed or cut off, from its newest checkpoint.

    The end is that of an undisturbed run, to the last bit, on the same machine with the same versions (on a GPU with
    training.deterministic=true). A finished run is only shown. A folder of several seeds goes on with all of them.

    --processes may be another number than the run was begun with, or none: then it goes on in one process.
    """

    folder: Path = RUN
    no_track: bool = flag("--no-track", "Report to no tracker this time.")


class SplitCommand(Command, commands.ReadingOptions, GraphOptions, name="split", calls="data:split"):
    """Write a graph's triples as train, valid and test: a folder that `rgcn train` reads.

    At random, or by time: the latest for test. Every node and relation keeps a training triple, and triples that say
    the same thing (inverse and duplicate relations between two nodes) go to one side. Labels without a split are held
    out too, class by class. `rgcn train` on a graph without splits does the same by itself (data.split).
    """

    source: str = commands.argument("A file or folder of triples, or a data set's name.", metavar="GRAPH")
    out: Path = option("Folder to write, new or empty.", default=Parameter.empty)
    valid: float = option("Share for validation.", default=0.1, min=0, max=0.99)
    test: float = option("Share for test.", default=0.1, min=0, max=0.99)
    seed: int = option("Another seed draws others.", default=0, min=0)
    by: str | None = option("Column of a table that says when: a number, a year, a date.", metavar="COLUMN")
    as_json: bool = commands.AS_JSON


class EvaluateCommand(
    Command, commands.ReadingOptions, commands.SharedOptions, GraphOptions, name="evaluate", calls="train:evaluate"
):
    """Measure a model on one split: accuracy, or filtered ranks by direction and relation, as its task has it.

    Of a graph (train, valid and test in a folder, or a data set) the links are measured, with --classes the classes:
    the model that comes with rgcn hears the training triples or labels and is asked about the split.

    Of a run that is not finished the best weights of its newest checkpoint are measured. With --on a model that holds
    nothing of nodes (encoder path) is measured on a graph it has never seen: it hears that graph's training triples and
    is asked about the split.
    """

    folder: str = ASKED
    classes: bool = CLASSES
    split: str | None = option("train, valid or test; by default test, or valid while the run is not finished.")
    on: str | None = option(
        "Another graph, whose relations the model knows: a data set's name, a file or a folder.", metavar="GRAPH"
    )
    of: int | None = option(
        "Also hits@10 among so many answers drawn at random that make no known triple, with replacement: the mean over "
        "all draws. With --on, and of a graph, 50 by default.",
        min=1,
        max=10_000,
    )
    at_most: int | None = option(
        "Measure on so many of the split's triples or labels, drawn with the seed, where all would take too long: the "
        "figures come with their standard errors.",
        min=2,
    )
    as_json: bool = commands.AS_JSON


class RunsCommand(Command, name="runs", calls="runs:list_runs"):
    """List runs: task, data, model, metric, how far, time, state. What is not finished can be resumed."""

    folder: Path = commands.argument("Folder to look in, and in the folders inside it.", commands.RUNS)
    as_json: bool = commands.AS_JSON


class ReportCommand(Command, TellingOptions, name="report", calls="report:report"):
    """Write a report of a run: curves, mistakes, predictions by name, settings. One HTML file, nothing loaded."""

    run: Path = commands.argument("Folder of a run, finished or not.")
    out: Path | None = option("File to write; by default RUN/report.html.")
    split: Literal["test", "valid"] | None = option(
        "What to measure on; by default test where there is one. An unfinished run: valid."
    )
    mirror: Path | None = option("Folder to take the data set of an unfinished run from (else RGCN_MIRROR).")
    as_json: bool = flag("--json", "Print what was measured as one JSON object.")


class CompareCommand(Command, name="compare", calls="report:compare"):
    """Compare runs: settings that differ, figures side by side, curves. A series counts as mean ± standard error."""

    runs: list[Path] = commands.argument("Folders of runs, or of series (FOLDER/seed-0/, FOLDER/seed-1/, ...).")
    out: Path | None = option("Also write the comparison as one HTML file.")
    as_json: bool = commands.AS_JSON


class PredictCommand(
    Command, commands.SkippingOptions, AskingOptions, TellingOptions, name="predict", calls="predict:predict"
):
    """Predict classes of nodes, or the missing end of triples. Trained models, or any graph without training.

    Of a run its task decides which. Of a graph, say mine.csv, --subject, --object or --queries asks for links; without
    them classes are predicted: rgcn predict mine.csv --labels people.csv. By default nodes are classified that are like
    labelled ones, of a graph those without a label.
    """

    run: str = ASKED
    classes: bool = CLASSES
    nodes: Path | None = option(
        "Nodes to classify: a name a line, or the first column of .csv, .tsv, .parquet; - reads standard input.",
        metavar="FILE",
    )
    node: list[str] | None = option("A node to classify. May be repeated.")
    all_nodes: bool = flag("--all-nodes", "Classify all nodes, also those that are not like labelled ones.")
    subject: str | None = option("Which objects does this subject lack?")
    relation: list[str] | None = option("By which relation; by default each of them. May be repeated.")
    object: str | None = option("Which subjects does this object lack?")
    queries: Path | None = option(
        "Table of questions: columns subject and relation, or relation and object; - reads standard input.",
        metavar="FILE",
    )
    k: int | None = option(
        "How many answers to each question, 10 by default; all are shown where it is given.", "-k", min=1, max=1_000_000
    )
    known: Literal["mark", "drop"] | None = option(
        "Known triples, or nodes with a known label: mark or drop them. By default marked, but no known triple is "
        "written to .nt."
    )
    min_probability: float | None = option("Leave out what is less probable than this.", min=0.0, max=1.0)
    only_seen: bool = ONLY_SEEN
    any_node: bool = ANY_NODE
    any_direction: bool = ANY_DIRECTION
    out: Path | None = option("File to write: its name ends in .csv, .tsv, .parquet, .jsonl, .nt or .nt.gz.")
    keep_formulas: bool = KEEP_FORMULAS
    predicate: str | None = option(
        "Predicate of classes written as .nt; by default the relation the labels came from.", metavar="IRI"
    )
    reliability: bool = flag("--reliability", "Show how far probabilities can be trusted, and stop.")


class CompleteCommand(Command, AskingOptions, TellingOptions, name="complete", calls="predict:complete"):
    """Find all missing triples worth adding, over every subject and relation, best first.

    What is most worth asking is asked first. Stopped by Ctrl-C, --minutes or kill, the same command goes on where it
    stood, and ends with the same triples as if it had never been stopped. What was found is kept beside --out, or in
    the run's folder; of a graph without --out it is not kept.
    """

    run: str = ASKED
    relation: list[str] | None = option("Only triples of this relation. May be repeated; by default all.")
    k: int = option("At most so many objects for each subject and relation.", "-k", default=10, min=1, max=10_000)
    min_probability: float | None = option(
        "Least probability, calibrated on validation triples; 0.01 by default. A model that is not calibrated "
        "has none.",
        min=0.0,
        max=1.0,
    )
    limit: int = option("At most so many triples, the best of all.", default=1_000_000, min=1, max=100_000_000)
    only_seen: bool = ONLY_SEEN
    any_node: bool = ANY_NODE
    any_direction: bool = ANY_DIRECTION
    minutes: float | None = option("Stop after so many minutes with what is found; the same command goes on.", min=0.01)
    restart: bool = flag("--restart", "Begin anew, and forget what a call that was stopped has found.")
    out: Path | None = option("File to write: its name ends in .nt, .nt.gz, .csv, .tsv, .parquet or .jsonl.")
    keep_formulas: bool = KEEP_FORMULAS


class ExplainCommand(Command, AskingOptions, name="explain", calls="predict:explain"):
    """Say which triples decided a node's class or make a triple likely, and whether that holds.

    A model that walks from the asked node to the answer is explained by its best paths, the asked triple hidden.
    """

    run: str = ASKED
    node: str | None = commands.argument("A node, by name or title: why is it of its class?", None)
    class_: str | None = option("Explain this class instead of the predicted one.", "--class")
    subject: str | None = option("With --relation and --object: why this triple?")
    relation: str | None = option("See --subject.")
    object: str | None = option("See --subject.")
    method: str | None = option(
        "How importances are found: paths, integrated-gradients, edge-mask, or a class, package.module:Class; by "
        "default paths where the model walks along them, else integrated-gradients."
    )
    edges: int = option("How many triples to name.", default=10, min=1, max=1000)
    draws: int = option("Random choices of as many triples, to compare with.", default=20, min=1, max=1000)
    seed: int = option("Decides these choices.", default=0, min=0)
    minutes: float | None = option(
        "Time for these choices and the method's steps; by default a few seconds, and it is said what was left out.",
        min=0.01,
    )
    out: Path | None = option("Also write it as a page, a picture or data: a name in .html, .svg, .json, .txt.")
    as_json: bool = commands.AS_JSON


class EmbedCommand(Command, commands.SkippingOptions, TellingOptions, name="embed", calls="report:embed"):
    """Write the vectors a model gives to nodes and relations, and a page to look at them.

    The model that comes with rgcn computes every answer anew: of a graph there are vectors of relations alone.
    """

    run: str = ASKED
    out: Path | None = option("File for the nodes' vectors: a name in .parquet, .csv, .jsonl or .npz.")
    keep_formulas: bool = KEEP_FORMULAS
    nodes: Path | None = option("Only these nodes: a file of names, one a line; - is standard input.")
    layer: int | None = option("Of a classifier: states after this layer; -2 the last hidden one, -1 the logits.")
    relations: Path | None = option("File for the relations' vectors; endings as for --out.")
    plot: Path | None = option("Page to write: map of the nodes, likeness of relations, mistakes.")
    map_: Literal["tsne", "umap", "pca"] = option(
        "How the map is made; umap needs the extra `look`, the others nothing.", "--map", default="tsne"
    )
    # Every point pushes every other: with more of them a map takes hours, and nobody sees a single one any more.
    most: int = option("Nodes on the map at most: labelled ones first.", default=5000, min=1, max=50_000)
    split: Literal["train", "valid", "test"] | None = option(
        "Nodes a classifier's mistakes are shown on; by default valid, or train where there is none."
    )
    seed: int = option("Decides the map: the same one, the same page.", default=0, min=0, max=2**32 - 1)


def _limit(name: str, default: float, words: str, least: float, most: float) -> Any:
    return option(words, name, default=default, min=least, max=most, rich_help_panel="Limits")


class LimitOptions(commands.Options):
    """Bounds of the server, under the names that `rgcn.serve.Limits` has for them."""

    seconds: float = _limit("--timeout", 30.0, "Seconds until an unanswered request gets 503.", 0.1, 3600)
    body: int = _limit("--max-body", 1 << 20, "Bytes of a request's body.", 1024, 1 << 30)
    items: int = _limit("--max-items", 1000, "Questions in one request.", 1, 100_000)
    k: int = _limit("--max-k", 1000, "Answers to one question, rows of a page.", 1, 100_000)
    links: int = _limit("--max-links", 20_000, "Links in one answer, of all its questions.", 1, 10_000_000)
    waiting: int = _limit("--max-waiting", 512, "Requests that may wait for the model.", 1, 1_000_000)
    questions: int = _limit("--max-questions", 20_000, "Questions of all requests together that may wait.", 1, 10**8)
    explaining: int = _limit("--max-explaining", 16, "Requests that may wait for an explanation.", 1, 10_000)
    connections: int = _limit("--max-connections", 1000, "Connections open at once.", 1, 1_000_000)
    slow: float = _limit("--slow-client", 10.0, "Seconds a client may take to send a request or to read.", 0.1, 3600)
    idle: float = _limit("--idle", 30.0, "Seconds an unused connection stays open.", 1, 3600)
    stopping: float = _limit("--grace", 10.0, "Seconds to finish requests when asked to stop.", 0, 3600)


class ServeCommand(Command, AskingOptions, LimitOptions, name="serve", calls="serve:serve"):
    """Serve models over HTTP: an API, and a page to look around and ask why. Runs, or graphs without training.

    Ctrl-C or SIGTERM stops it after what is under way; a second one stops at once. Docs: docs/serving.md.
    """

    runs: list[str] = commands.argument(
        "Folders of runs or of saved models; files or folders of triples, or data sets' names, which the model that "
        "comes with rgcn answers for.",
        metavar="RUN_OR_GRAPH...",
    )
    classes: bool = CLASSES
    host: str = option("Address to listen on. Any but this machine's own needs a token.", default="127.0.0.1")
    port: int = option("Port to listen on; 0 takes a free one.", default=8000, min=0, max=65535)
    token_file: Path | None = option("File with the token that whoever asks must send (else RGCN_TOKEN).")
    allow_host: list[str] | None = option("A further name to answer to, behind a proxy say. May be repeated.")
    open_browser: bool = flag("--open", "Open the page in a browser.")
    threads: int | None = option(
        "Threads one computation uses; by default as PyTorch chooses.", min=1, max=commands.MOST_THREADS
    )
    quiet: bool = commands.QUIET


class CardCommand(Command, name="card", calls="report:card"):
    """Write a model card: what the model is and cannot do, its data, training and figures, with the limits of both."""

    run: Path = RUN
    out: Path | None = option("File to write, such as MODEL_CARD.md; by default it is printed.")


class ExportCommand(Command, name="export", calls="report:export"):
    """Write the trained encoder as one file that PyTorch alone runs: node numbers in, logits or node vectors out."""

    run: Path = RUN
    out: Path = option("File to write; its name ends in .pt2.", default=Parameter.empty)
    mirror: Path | None = commands.MIRROR
    accept_changed_data: bool = commands.ACCEPT_CHANGED_DATA
    as_json: bool = commands.AS_JSON


class TuneCommand(Command, commands.ComputingOptions, TellingOptions, name="tune", calls="studies:tune"):
    """Look for better settings. The test split is taken out before the first trial.

    Writes best.yaml, which `rgcn train` takes, tune.html, trials.csv, and study.db: the same command goes on from it.
    """

    configuration: str = CONFIGURATION
    trials: int = option("Trials of the study; more can be added later.", default=50, min=1, max=commands.MOST_RUNS)
    jobs: int = commands.JOBS
    out: Path | None = option("Folder of the study. The same command goes on with it.")
    metric: str | None = option("A validation figure that trainings report: accuracy, loss, mrr, hits@10, ...")
    folds: int | None = option("Trainings a trial, with different seeds and hold-outs. By default what the task needs.")
    search: list[str] | None = option(
        "Search a setting: training.learning_rate=0.001:0.1:log or model.hidden=8,16. Repeatable."
    )
    fix: list[str] | None = option("Leave a setting as it is; `all`: every one without --search. Repeatable.")
    changes: list[str] | None = commands.CHANGES
    seed: int | None = commands.SEED
    minutes: float | None = option("Begin no trial after so many minutes.", "--timeout")
