"""Does message passing help link prediction? Compare encoders with the same decoder, objective and tuning effort.

    python benchmarks/message_passing.py                  # tune on codex-s, then train with three seeds; resumable
    python benchmarks/message_passing.py --test           # read the test split, once, when all runs are there
    python benchmarks/message_passing.py --table          # print the results as Markdown
    python benchmarks/message_passing.py --time           # seconds per step of each variant; writes nothing
    python benchmarks/message_passing.py --quick --variants mlp random-graph   # a few steps in a temporary folder

The paper says that a scoring function (a decoder) can be used with an RGCN that computes the vectors of nodes. It
leaves open whether messages help, because the decoder alone was trained differently. Here the decoder, its width, the
objective, the sampler, the regularizer and the optimizer are the same for every variant:

    decoder        the decoder alone, over embeddings
    rgcn           RGCN with two bases, and a matrix of its own for self-loops
    c-rgcn         messages through a bottleneck, which the embedding bypasses
    diagonal       RGCN with diagonal matrices
    mlp            RGCN without messages: the same depth and width
    random-graph   RGCN whose messages follow a random graph with the same degrees in each relation

`random-graph` separates what the edges say from what more parameters, degrees and averages do. Its random graph has the
seed of the training. `random-graph-as-rgcn` is the same with the settings that were best for `rgcn`; it is not tuned
and not among the default variants.

Tuning: `rgcn tune` on the first data set, by validation MRR, without its test triples. Every variant has the same
number of trials over the same spaces (`SPACES`), with the same draws, so that trials of equal numbers have equal
settings. Spaces of edges apply to variants with messages. `activated_input` applies to variants that multiply the
embeddings by a full matrix. Trial 0 is the configuration itself.

A trial may take three minutes. The number of epochs is fixed before the first trial of a variant: as many as take
`SECONDS_OF_STEPS` at the measured time of a step, at most `MAX_EPOCHS`; `random-graph` has as many as `rgcn`. Measure
on an idle machine, so that all variants have as many. The time of a step, the epochs and every trial are written to
results/message-passing-trials.json. What is there is not run again. An interrupted study continues from its folder
below --folder.

Runs: the best trial of each variant trains with each seed on the first data set, and with the same settings and epochs
on the others, which are not tuned. Each run has its own process, so that peak memory is measured per run. Training sees
no test triple. The models are stored below --folder for `--test`.

Metrics on validation triples are filtered with training and validation triples, metrics on test triples with all.
Popularity, path and the pretrained model without training are not run: their rows come from the result files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import message_passing_encoders  # noqa: F401  so that its encoders can be chosen by name
from link_comparison import Book, rounded, without_test

import rgcn
from rgcn.config import LinkPredictionRun, RunConfig, SearchSpace, validate_section
from rgcn.graph import KnowledgeGraph
from rgcn.links.ranking import Ties, summarize
from rgcn.models.storage import load_model, save_model
from rgcn.pages.run_comparison import student_t
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import replace_settings
from rgcn.runs.training import train
from rgcn.system.threads import use_threads
from rgcn.tuning import StudyPlan, TrialRecord, TuneResult, check_objective, tune

RESULTS = Path(__file__).parents[1] / "results"
DATASETS = ("codex-s", "world")  # settings are chosen on the first
DECODERS = ("distmult", "complex")
TIES: tuple[Ties, ...] = (
    "realistic",
    "pessimistic",
)  # among equal scores an answer has the middle rank, or the last one
SECONDS_OF_STEPS = 150.0  # of a trial; validations and the preparation take the rest of three minutes
MAX_TRIAL_SECONDS = 180.0
MAX_EPOCHS = 30
NUM_MEASUREMENTS = 8  # on validation triples in a training
TIMED_STEPS = 20
BATCH = 512  # questions in a step, two for each triple
TRAINING: dict[str, Any] = {
    "objective": "softmax-unfiltered",
    "sampler": "grouped",
    "batch_edges": BATCH,
    "optimizer": "adagrad",
    "learning_rate": 0.1,
    "regularizer": "n3",
    "penalty": 0.01,
    "self_loop_dropout": 0.0,
}
CONVOLUTIONS = {"layers": 1, "normalization": "direction", "gain": 0.3}
BASES = {"decomposition": "basis", "bases": 2, "self_loop_apart": True}
SPACES = {
    "training.penalty": SearchSpace(low=0.002, high=0.05, log=True),
    "training.learning_rate": SearchSpace(low=0.01, high=0.2, log=True),
}
EDGE_SPACES = {
    "training.edge_dropout": SearchSpace(low=0.0, high=0.6),
    "training.message_edges": SearchSpace(choices=("batch", "graph", "graph-without-batch")),
}
MATRIX_SPACES = {"model.activated_input": SearchSpace(choices=(True, False))}


@dataclass(frozen=True)
class Variant:
    """What computes the node vectors.

    Attributes:
        title: Its name in tables.
        model: Its settings of the section `model`.
        spaces: Its search spaces besides `SPACES`.
        tuned_as: The variant whose best settings it takes, if it is not tuned itself.
        timed_as: The variant whose number of epochs it takes, so that only their graphs differ.
    """

    title: str
    model: dict[str, Any]
    spaces: dict[str, SearchSpace] = field(default_factory=dict)
    tuned_as: str | None = None
    timed_as: str | None = None

    @property
    def has_messages(self) -> bool:
        """True if it passes messages."""
        return "training.edge_dropout" in self.spaces

    @property
    def has_random_graph(self) -> bool:
        """True if its messages follow a random graph, which has the seed of the training."""
        return self.model is RANDOM


RANDOM = {"encoder": "message_passing_encoders:RandomGraphEncoder", **BASES, **CONVOLUTIONS}
VARIANTS = {
    "decoder": Variant("decoder alone", {"encoder": "none"}),
    "rgcn": Variant("RGCN, 2 bases", {"encoder": "rgcn", **BASES, **CONVOLUTIONS}, EDGE_SPACES | MATRIX_SPACES),
    "c-rgcn": Variant("c-RGCN", {"encoder": "c-rgcn", "bottleneck": 16, **CONVOLUTIONS}, EDGE_SPACES),
    "diagonal": Variant(
        "RGCN, diagonal",
        {"encoder": "rgcn", "decomposition": "diagonal", "activated_input": False, **CONVOLUTIONS},
        EDGE_SPACES,
    ),
    "mlp": Variant("MLP", {"encoder": "message_passing_encoders:MLPEncoder", **CONVOLUTIONS}, MATRIX_SPACES),
    "random-graph": Variant("RGCN, random graph", RANDOM, EDGE_SPACES | MATRIX_SPACES, timed_as="rgcn"),
    "random-graph-as-rgcn": Variant(
        "RGCN's settings, random graph", RANDOM, EDGE_SPACES | MATRIX_SPACES, "rgcn", "rgcn"
    ),
}
DEFAULT_VARIANTS = [name for name, variant in VARIANTS.items() if variant.tuned_as is None]


@dataclass(frozen=True)
class Plan:
    """What is compared, and where results are stored.

    Attributes:
        datasets: Names of data sets, or folders of triples; settings are chosen on the first.
        decoder: The decoder of every variant.
        width: The width of the node embeddings of every variant.
        trials: The file of tuning trials.
        runs: The file of runs.
        folder: The folder of studies and models.
        max_epochs: The ceiling on the epochs of a training.
        timed_steps: Number of steps that are timed.
        in_process: Whether runs share this process.
    """

    datasets: tuple[str, ...]
    decoder: str
    width: int
    trials: Path
    runs: Path
    folder: Path
    max_epochs: int = MAX_EPOCHS
    timed_steps: int = TIMED_STEPS
    in_process: bool = False

    def key(self, variant: str) -> dict[str, Any]:
        """Return the part of a record that says what it is about."""
        return {"variant": variant, "decoder": self.decoder, "width": self.width}

    def configuration(self, name: str, dataset: str, epochs: int, num_triples: int, seed: int = 0) -> RunConfig:
        """Return the configuration of a variant before tuning.

        Args:
            name: The variant.
            dataset: A data set or a folder of triples.
            epochs: Passes over the training triples.
            num_triples: Number of training triples.
            seed: The seed of the training.
        """
        variant = VARIANTS[name]
        start = {"reciprocal": True, "node_deviation": 0.1, "relation_deviation": 0.1}
        steps = epochs * steps_per_epoch(num_triples)
        edges = {"edge_dropout": 0.2, "message_edges": "graph"} if variant.has_messages else {"edge_dropout": 0.0}
        measured = {"steps": steps, "evaluate_every": max(1, steps // NUM_MEASUREMENTS)}
        model = {"decoder": self.decoder, "embedding": self.width, **start, **variant.model}
        if variant.has_random_graph:
            model["options"] = {"graph_seed": seed}
        values = {
            "task": "link-prediction",
            "data": {"path" if Path(dataset).is_dir() else "dataset": dataset},
            "model": model,
            "training": {**TRAINING, **edges, **measured},
            "seed": seed,
        }
        config: RunConfig = validate_section(LinkPredictionRun, values, f"variant {name}")
        return config


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    if options.threads:
        use_threads(options.threads)
    if options.quick:
        quick(options)
        return
    folder = options.folder / f"{options.decoder}-{options.width}"
    files = options.results / "message-passing-trials.json", options.results / "message-passing.json"
    plan = Plan(DATASETS, options.decoder, options.width, *files, folder)
    if options.time:
        print_times(plan, options.variants)
    elif options.table:
        print_tables(plan, options.variants, options.seeds)
    elif options.test:
        test(plan, options.variants, options.seeds)
    else:
        compare(plan, options.variants, options.trials, options.seeds)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=DEFAULT_VARIANTS, metavar="VARIANT")
    parser.add_argument("--decoder", choices=DECODERS, default=DECODERS[0])
    parser.add_argument("--width", type=int, default=128, help="width of the node embeddings of every variant")
    parser.add_argument("--trials", type=int, default=5, help="tuning trials of each variant")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, help="threads of each process; default: one per core")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the result files")
    parser.add_argument("--folder", type=Path, default=Path("runs/message-passing"), help="studies and models")
    parser.add_argument("--quick", action="store_true", help="run everything with a few steps, in a temporary folder")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--time", action="store_true", help="time steps, and stop")
    what.add_argument("--test", action="store_true", help="measure the stored models on the test split, and stop")
    what.add_argument("--table", action="store_true", help="print tables, and stop")
    return parser.parse_args(arguments)


def quick(options: argparse.Namespace) -> None:
    """Run every part with a few steps on parts of `world`, and keep the files for a look."""
    folder = Path(tempfile.mkdtemp(prefix="message-passing-"))
    whole = rgcn.load("world")
    datasets = tuple(write_part(whole, folder / f"part-{number}", number) for number in range(2))
    files = folder / "message-passing-trials.json", folder / "message-passing.json"
    plan = Plan(datasets, options.decoder, 8, *files, folder / "work", 1, 2, True)
    compare(plan, options.variants, min(options.trials, 2), options.seeds[:2])
    test(plan, options.variants, options.seeds[:2])
    print_tables(plan, options.variants, options.seeds[:2])
    print(f"Written to {folder}")


def write_part(graph: KnowledgeGraph, folder: Path, number: int, every: int = 20) -> str:
    """Write each `every`-th triple, from `number` on, as a folder of triples with splits; return the folder."""
    folder.mkdir(parents=True)
    for split in ("train", "valid", "test"):
        rows = graph.split_triples(split)[number::every].tolist()
        lines = [f"{graph.nodes[s]}\t{graph.relations[r]}\t{graph.nodes[o]}\n" for s, r, o in rows]
        (folder / f"{split}.txt").write_text("".join(lines), encoding="utf-8")
    return str(folder)


# -- tuning and training ---------------------------------------------------------------------------------


def compare(plan: Plan, variants: Iterable[str], num_trials: int, seeds: Iterable[int]) -> None:
    """Tune the variants on the first data set, and train each with its best settings on all data sets."""
    chosen = list(variants)
    for name in dict.fromkeys(VARIANTS[name].tuned_as or name for name in chosen):
        tune_variant(plan, name, num_trials)
    book = Book(plan.runs, "")
    for dataset in plan.datasets:
        for seed in seeds:
            for name in chosen:
                run = run_key(plan, name, dataset, seed, "valid")
                if book.has(run):
                    continue
                config = best_configuration(plan, name, dataset, seed)
                measured = in_own_process(plan, one_run, config, model_folder(plan, run))
                book.add({**run, **measured})
                print(f"{name}, {dataset}, seed {seed}: {in_words(measured)}", flush=True)


def tune_variant(plan: Plan, name: str, num_trials: int) -> None:
    """Run the trials of a variant that are not in the file yet."""
    book = Book(plan.trials, "")
    if len(trials_of(plan, name)) >= num_trials:
        return
    epochs, variant = epochs_of(plan, name), VARIANTS[name]
    config = plan.configuration(name, plan.datasets[0], epochs, num_training_triples(plan.datasets[0]))
    spaces = {**SPACES, **variant.spaces}
    folder = plan.folder / "studies" / name
    folder.mkdir(parents=True, exist_ok=True)
    study = StudyPlan(f"message_passing.py, {name}", config, spaces, check_objective(config, "mrr", 1, 0), folder)

    def on_trial(trial: TrialRecord, _: TuneResult) -> None:
        record = {**plan.key(name), "dataset": plan.datasets[0], "trial": trial.number}
        if book.has(record):
            return
        found: dict[str, Any] = {
            "state": trial.state,
            "valid_mrr": trial.value,
            "seconds": round(trial.seconds or 0.0, 1),
        }
        found |= {"best_step": trial.epoch, "error": trial.error, "epochs": epochs, "settings": trial.settings}
        book.add({**record, **found})
        late = "" if (trial.seconds or 0.0) <= MAX_TRIAL_SECONDS else f", more than {MAX_TRIAL_SECONDS:.0f} s"
        value = "no MRR" if trial.value is None else f"validation MRR {trial.value:.4f}"
        print(f"{name}, trial {trial.number} {trial.state}: {value} in {trial.seconds:.0f} s{late}", flush=True)

    if tune(study, num_trials, on_trial=on_trial).interrupted:
        raise SystemExit(f"interrupted; the same command continues from {folder}")


def trials_of(plan: Plan, name: str) -> list[dict[str, Any]]:
    """Return the trials of a variant that are in the file."""
    return [each for each in records(plan.trials, plan.key(name)) if "trial" in each]


def records(path: Path, key: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the records of a result file that have these values."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"runs": []}
    return [each for each in content["runs"] if all(each.get(name) == key[name] for name in key)]


def epochs_of(plan: Plan, name: str) -> int:
    """Return the epochs of each training of a variant; measured and recorded the first time."""
    name = VARIANTS[name].timed_as or name
    key = {**plan.key(name), "dataset": plan.datasets[0], "of": "time of a step"}
    known = records(plan.trials, key)
    if known:
        return int(known[0]["epochs"])
    seconds = in_own_process(plan, seconds_per_step, plan, name)
    steps = steps_per_epoch(num_training_triples(plan.datasets[0]))
    epochs = max(1, min(plan.max_epochs, int(SECONDS_OF_STEPS / (seconds * steps))))
    load = round(os.getloadavg()[0], 1)
    measured = {"seconds_per_step": round(seconds, 5), "steps_per_epoch": steps, "epochs": epochs, "load": load}
    Book(plan.trials, "").add({**key, **measured})
    print(f"{name}: {seconds:.4f} s per step, {epochs} epochs of {steps} steps", flush=True)
    return epochs


def steps_per_epoch(num_triples: int) -> int:
    """Return the number of steps in which each training triple is asked about in both directions."""
    return math.ceil(2 * num_triples / BATCH)


def seconds_per_step(plan: Plan, name: str) -> float:
    """Return the median time of a step, with the edges of a batch hidden, which takes longest."""
    graph = without_test(read_graph(plan.datasets[0]))
    config = plan.configuration(name, plan.datasets[0], 1, graph.num_triples_in("train"))
    if VARIANTS[name].has_messages:
        config = replace_settings(config, {"training.message_edges": "graph-without-batch"})
    trainer, times = make_model(config).prepare(graph).trainer(), []
    with trainer.running():
        for _ in range(3 + plan.timed_steps):  # the first ones compile kernels
            began = time.perf_counter()
            trainer.step()
            times.append(time.perf_counter() - began)
    return statistics.median(times[3:])


def best_trial(plan: Plan, name: str) -> dict[str, Any]:
    """Return the trial with the best validation MRR, of equal ones the first."""
    source = VARIANTS[name].tuned_as or name
    finished = [each for each in trials_of(plan, source) if each["state"] == "finished"]
    if not finished:
        raise SystemExit(f"{plan.trials} has no finished trial of {source}: run the script without --test and --table")
    return max(finished, key=lambda each: (each["valid_mrr"], -each["trial"]))


def best_configuration(plan: Plan, name: str, dataset: str, seed: int) -> RunConfig:
    """Return the configuration of a variant with the settings of its best trial."""
    best = best_trial(plan, name)
    config = plan.configuration(name, dataset, best["epochs"], num_training_triples(dataset), seed)
    return replace_settings(config, best["settings"])


def run_key(plan: Plan, name: str, dataset: str, seed: int, split: str) -> dict[str, Any]:
    """Return the part of a run's record that says what it is about; other trials may make another one the best."""
    about = {"trial": best_trial(plan, name)["trial"], "dataset": dataset, "seed": seed, "split": split}
    return {**plan.key(name), **about}


def in_own_process(plan: Plan, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, so that its memory and time do not depend on what ran before."""
    if plan.in_process:
        return function(*arguments)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        return alone.submit(function, *arguments).result()


def one_run(config: RunConfig, folder: Path) -> dict[str, Any]:
    """Train without test triples, store the model, and return what was measured."""
    dataset = config.data.dataset or str(config.data.path)
    load, graph = os.getloadavg()[0], without_test(read_graph(dataset))
    base = peak_bytes()
    result = train(config, graph, measure=lambda model: {"valid": metrics(model, graph, "valid")})
    save_model(result.model, folder)
    return {
        "settings": {name: getattr(config.training, name) for name in ("penalty", "learning_rate", "steps")}
        | {name: getattr(config.training, name) for name in ("edge_dropout", "message_edges")}
        | {"activated_input": getattr(config.model, "activated_input", None)},
        "encoder": config.model.encoder,
        "seconds": round(result.seconds, 2),
        "peak_bytes": peak_bytes(),
        "base_bytes": base,
        "parameters": result.model.num_parameters_,
        "load": round(load, 1),
        "metrics": result.metrics["valid"],
    }


def peak_bytes() -> int | None:
    """Return the peak memory of this process; None where the system does not say.

    Linux counts in `resource.getrusage` the memory that the parent process had when it started this one.
    """
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="utf-8").splitlines() if status.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)


def metrics(model: Any, graph: KnowledgeGraph, split: str) -> dict[str, dict[str, Any]]:
    """Return the filtered metrics on a split for each treatment of ties."""
    ranks = model.ranks(graph, split)
    return {ties: rounded(summarize(ranks, ties=ties).both.as_dict()) for ties in TIES}


def in_words(measured: dict[str, Any]) -> str:
    mrr = measured["metrics"]["realistic"]["mrr"]
    return f"validation MRR {mrr:.4f} in {measured['seconds']:.0f} s, {measured['parameters']:,} parameters"


def model_folder(plan: Plan, run: dict[str, Any]) -> Path:
    return plan.folder / "models" / f"{run['variant']}-{Path(run['dataset']).name}-{run['seed']}"


def read_graph(dataset: str) -> KnowledgeGraph:
    return rgcn.read(dataset) if Path(dataset).is_dir() else rgcn.load(dataset)


def num_training_triples(dataset: str) -> int:
    return read_graph(dataset).num_triples_in("train")


def print_times(plan: Plan, variants: Iterable[str]) -> None:
    """Print the time of a step of each variant, and how long a training of `MAX_EPOCHS` epochs would take."""
    steps = steps_per_epoch(num_training_triples(plan.datasets[0]))
    for name in variants:
        seconds = in_own_process(plan, seconds_per_step, plan, name)
        epochs = max(1, min(plan.max_epochs, int(SECONDS_OF_STEPS / (seconds * steps))))
        text = f"{1 / seconds:.1f} steps/s, {epochs} epochs of {steps} steps, {epochs * steps * seconds:.0f} s of steps"
        print(f"{name}: {text}; load {os.getloadavg()[0]:.1f}", flush=True)


# -- the test split --------------------------------------------------------------------------------------


def test(plan: Plan, variants: Sequence[str], seeds: Sequence[int]) -> None:
    """Measure the stored models on test triples. Refused until all runs are there, so that it happens once."""
    book = Book(plan.runs, "")
    every = itertools.product(plan.datasets, variants, seeds)
    wanted = [run_key(plan, name, dataset, seed, "valid") for dataset, name, seed in every]
    missing = [f"{run['variant']} on {run['dataset']}, seed {run['seed']}" for run in wanted if not book.has(run)]
    if missing:
        raise SystemExit(f"{plan.runs} lacks {'; '.join(missing)}: run the script without --test first")
    graphs = {dataset: read_graph(dataset) for dataset in plan.datasets}
    for run in wanted:
        if not book.has({**run, "split": "test"}):
            graph, model = graphs[run["dataset"]], load_model(model_folder(plan, run))
            before = records(plan.runs, run)[0]["metrics"]["realistic"]["mrr"]
            again = metrics(model, without_test(graph), "valid")["realistic"]["mrr"]
            if abs(before - again) > 1e-4:
                raise SystemExit(
                    f"the stored model of {run} has validation MRR {again}, and had {before}: train it again"
                )
            book.add({**run, "split": "test", "metrics": metrics(model, graph, "test")})


# -- tables ----------------------------------------------------------------------------------------------


def print_tables(plan: Plan, variants: Sequence[str], seeds: Sequence[int]) -> None:
    """Print a Markdown table for each data set."""
    for number, dataset in enumerate(plan.datasets):
        how = "settings chosen on its validation triples" if number == 0 else f"settings of {plan.datasets[0]}"
        print(f"\n**{Path(dataset).name}**: {plan.decoder}, width {plan.width}; {how}\n")
        print("| variant | test MRR | ties last | less the decoder alone | seconds | peak memory | parameters |")
        print("|---|---:|---:|---:|---:|---:|---:|")
        for name in variants:
            print(row_of(plan, name, dataset, seeds))
        for row in reference_rows(Path(dataset).name):
            print(row)


def row_of(plan: Plan, name: str, dataset: str, seeds: Sequence[int]) -> str:
    """Return the table's row of a variant."""
    runs = runs_by_seed(plan, name, dataset, "valid", seeds)
    cells = [VARIANTS[name].title]
    if not runs:
        return " | ".join(["", *cells, *["not run"] * 6, ""]).strip()
    for ties in TIES:
        values = list(test_mrr(plan, name, dataset, ties, seeds).values())
        cells.append(with_interval(values) if values else "not measured")
    own, alone = (test_mrr(plan, each, dataset, TIES[0], seeds) for each in (name, "decoder"))
    paired = [own[seed] - alone[seed] for seed in sorted(own.keys() & alone.keys())]
    cells.append("" if name == "decoder" or not paired else with_interval(paired, "+"))
    cells.append(f"{statistics.fmean(run['seconds'] for run in runs.values()):.0f}")
    cells.append(f"{max(run['peak_bytes'] or 0 for run in runs.values()) / 1e6:.0f} MB")
    cells.append(f"{next(iter(runs.values()))['parameters']:,}")
    return f"| {' | '.join(cells)} |"


def runs_by_seed(plan: Plan, name: str, dataset: str, split: str, seeds: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Return the records of a variant's runs by seed."""
    if not trials_of(plan, VARIANTS[name].tuned_as or name):
        return {}
    found = {seed: records(plan.runs, run_key(plan, name, dataset, seed, split)) for seed in seeds}
    return {seed: runs[0] for seed, runs in found.items() if runs}


def test_mrr(plan: Plan, name: str, dataset: str, ties: Ties, seeds: Sequence[int]) -> dict[int, float]:
    """Return the test MRR of a variant by seed."""
    found = runs_by_seed(plan, name, dataset, "test", seeds)
    return {seed: run["metrics"][ties]["mrr"] for seed, run in found.items()}


def with_interval(values: Sequence[float], sign: str = "") -> str:
    """Return the mean with half of its 95 % confidence interval, by Student's t.

    >>> with_interval([0.4, 0.5, 0.6])
    '0.500 ± 0.248'
    """
    mean = f"{statistics.fmean(values):{sign}.3f}"
    if len(values) < 2:
        return f"{mean} (one seed)"
    return f"{mean} ± {student_t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values)):.3f}"


def reference_rows(dataset: str) -> list[str]:
    """Return rows of popularity, path and the pretrained model without training, from the committed result files."""
    rows = []
    for title, model in (("popularity", "popularity"), ("path", "path")):
        found = [
            (path, runs)
            for path in sorted(RESULTS.glob("link-comparison-*.json"))
            if (runs := of(path, model, dataset))
        ]
        if not found:
            rows.append(f"| {title} | not in the result files |  |  |  |  |  |")
            continue
        path, runs = max(found, key=lambda each: len(each[1]))
        cells = [f"{title} ({path.name})", with_interval([run["metrics"]["test"]["mrr"] for run in runs]), "", ""]
        cells.append(f"{statistics.fmean(run['seconds'] for run in runs):.0f}")
        cells.append(f"{max(run['peak_bytes'] for run in runs) / 1e6:.0f} MB")
        rows.append(f"| {' | '.join([*cells, format(runs[0]['parameters'], ',')])} |")
    content = json.loads((RESULTS / "any-graph.json").read_text(encoding="utf-8"))
    mrr = [row["mrr"] for row in content["rows"] if (row["dataset"], row["task"]) == (dataset, "links")]
    title, text = "pretrained model, without training", "not in the result files"
    if mrr and content["split"] == "test":
        title, text = f"{title} (any-graph.json)", f"{mrr[0]:.3f}"
    return [*rows, f"| {title} | {text} |  |  |  |  |  |"]


def of(path: Path, model: str, dataset: str) -> list[dict[str, Any]]:
    """Return the runs of a model's built-in configuration on a data set, measured on test triples."""
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"]
    key = {"configuration": f"{model}/lp-{dataset}", "dataset": dataset, "split": "test", "changes": []}
    return [run for run in runs if all(run.get(name) == key[name] for name in key)]


if __name__ == "__main__":
    main()
