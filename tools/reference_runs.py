"""Check that small trainings and zero-shot scores still give the recorded results, to be run around a refactoring.

    python tools/reference_runs.py --keep NEW                 # run all, compare with results/reference-runs.json
    python tools/reference_runs.py --keep NEW --against OLD   # also compare the weights with those in folder OLD
    python tools/reference_runs.py --write                    # replace results/reference-runs.json

A training is compared by its metrics and by the SHA-256 of every saved tensor. Hashes are compared as a sorted list,
because names of tensors may change. Where a hash differs, `--against` prints the largest difference of the weights.
Zero-shot scores may differ by at most 1e-6. Everything runs on the CPU with one thread. Data sets other than `world`
come from the mirror (RGCN_MIRROR, by default ../shared/data).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "results" / "reference-runs.json"
SELECTION = Path(__file__).with_name("reference_selection.json")
NUM_SCORES, TOLERANCE = 200, 1e-6

NODES, LINKS = "rgcn/nc-world", "rgcn/lp-world"
SHORT_LINKS = ("training.steps=12", "training.evaluate_every=6", "training.evaluate_at_most=100")
SMALL = ("model.embedding=16", *SHORT_LINKS)
BY_ROWS = (
    "training.batch_edges=500", "training.sampler=scattered", "training.objective=sampled-softmax",
    "training.shared_by=100", "training.negatives=20",
)  # fmt: skip
# The settings that distmult/lp-world had when the results were recorded.
PLAIN = (
    "model.reciprocal=false", "model.node_deviation=null", "model.relation_deviation=null",
    "training.objective=sampled-bce", "training.sampler=neighborhood", "training.regularizer=l2",
    "training.penalty=0.01", "training.optimizer=adam", "training.learning_rate=0.01", "training.batch_edges=5000",
    "training.schedule=cosine",
)  # fmt: skip
PLAIN_BY_ROWS = (*PLAIN, *SMALL, *BY_ROWS)
# name: (configuration, settings, number of processes)
TRAININGS: dict[str, tuple[str, tuple[str, ...], int]] = {
    "nodes rgcn": (NODES, ("training.epochs=6",), 1),
    "nodes rgcn, aifb": ("rgcn/nc-aifb", ("training.epochs=6",), 1),
    "nodes rgcn, bases, penalty": ("rgcn/nc-mutag", ("training.epochs=3", "model.bases=4"), 1),
    "nodes rgcn, early stopping": (
        NODES, ("training.epochs=40", "training.validation=0.2", "training.patience=3", "training.edge_dropout=0.2"), 1,
    ),
    "nodes e-rgcn": ("e-rgcn/nc-world", ("training.epochs=6", "training.weight_decay=0.01"), 1),
    "nodes e-rgcn, batches, fan-out": (
        "e-rgcn/nc-world", ("training.epochs=2", "training.batch_labels=40", "training.fan_out=2"), 1,
    ),
    "nodes e-rgcn, sharded, 2": ("e-rgcn/nc-world", ("training.epochs=4", "training.validation=0.2"), 2),
    "nodes e-rgcn, sharded, 4": ("e-rgcn/nc-world", ("training.epochs=4", "training.validation=0.2"), 4),
    "nodes e-rgcn, batches, sharded, 2": (
        "e-rgcn/nc-world", ("training.epochs=2", "training.batch_labels=40", "training.fan_out=2"), 2,
    ),
    "nodes e-rgcn, data-parallel, 2": ("e-rgcn/nc-world", ("training.epochs=4", "training.sharded=false"), 2),
    "nodes rgcn, data-parallel, 2": (NODES, ("training.epochs=4",), 2),
    "links rgcn, bases": (LINKS, (*SMALL, "model.decomposition=basis", "model.bases=2", "model.blocks=null"), 1),
    "links rgcn, blocks": ("rgcn/lp-fb-toy", ("model.embedding=20", "model.blocks=4", *SHORT_LINKS), 1),
    "links c-rgcn": ("c-rgcn/lp-world", (*SMALL, "model.bottleneck=8"), 1),
    "links distmult": ("distmult/lp-world", (*PLAIN, *SMALL), 1),
    "links distmult, softmax": (
        "distmult/lp-world",
        (
            *PLAIN, *SMALL, "training.objective=softmax", "training.sampler=shuffled", "training.batch_edges=512",
            "training.weight_decay=0.0005",
        ),
        1,
    ),
    "links distmult, rows, adagrad": ("distmult/lp-world", (*PLAIN_BY_ROWS, "training.optimizer=row-adagrad"), 1),
    "links distmult, rows, lazy adam": ("distmult/lp-world", (*PLAIN_BY_ROWS, "training.optimizer=lazy-adam"), 1),
    "links distmult, tables on disk": (
        "distmult/lp-world", (*PLAIN_BY_ROWS, "training.optimizer=row-adagrad", "training.tables=disk"), 1,
    ),
    "links distmult, rows, sharded, 2": ("distmult/lp-world", (*PLAIN_BY_ROWS, "training.optimizer=row-adagrad"), 2),
    "links distmult, rows, sharded, 4": ("distmult/lp-world", (*PLAIN_BY_ROWS, "training.optimizer=row-adagrad"), 4),
    "links distmult, data-parallel, 2": ("distmult/lp-world", (*PLAIN, *SMALL, "training.sharded=false"), 2),
    "links rgcn, sharded, 2": (
        LINKS, (*SMALL, "model.decomposition=basis", "model.bases=2", "model.blocks=null", "training.clip=1.0"), 2,
    ),
    "links c-rgcn, sharded, 2": ("c-rgcn/lp-world", (*SMALL, "model.bottleneck=8"), 2),
    "links popularity": ("popularity/lp-umls", (), 1),
    "links path": ("path/lp-umls", ("model.width=8", "training.warmup=0", *SHORT_LINKS), 1),
    "links path, 2": ("path/lp-umls", ("model.width=8", "training.warmup=0", *SHORT_LINKS), 2),
    "links pretrained, fine-tuned": (
        "universal/lp-nations", ("training.steps=3", "training.evaluate_every=3", "training.warmup=0"), 1,
    ),
    "classes by links": ("path/cl-world", ("model.width=8", "training.steps=4", "training.warmup=0"), 1),
    "classes by c-rgcn": ("c-rgcn/cl-world", ("model.embedding=8", "model.bottleneck=4", "training.steps=6"), 1),
}  # fmt: skip
ZERO_SHOT = ("world", "umls", "codex-s")


def run_command(*arguments: str | Path, folder: Path) -> str:
    """Run an rgcn command in `folder` and return its standard output."""
    process = subprocess.run(
        [sys.executable, "-m", "rgcn", *map(str, arguments)], cwd=folder, capture_output=True, text=True, timeout=1800
    )
    if process.returncode:
        raise SystemExit(f"rgcn {' '.join(map(str, arguments))}\n{process.stdout}{process.stderr}")
    return process.stdout


def set_options(settings: Iterable[str]) -> list[str]:
    """Return the command line options that change these settings, each "KEY=VALUE"."""
    return [argument for setting in settings for argument in ("--set", setting)]


def folder_name(name: str) -> str:
    """Return the name of a task's folder below `--keep`."""
    return name.replace(", ", "-").replace(" ", "-")


def train(name: str, folder: Path) -> dict[str, Any]:
    """Run a training of `TRAININGS`."""
    configuration, settings, num_processes = TRAININGS[name]
    processes = ["--processes", str(num_processes)] if num_processes > 1 else []
    options = [*set_options(settings), *processes, "--threads", "1", "--quiet", "--out", "run"]
    run_command("train", configuration, *options, folder=folder)
    return read_results(folder / "run")


def kill_and_resume(folder: Path) -> dict[str, Any]:
    """Kill a training after its first checkpoint and resume it."""
    changes = set_options(("training.epochs=40", "checkpoints.every_steps=2", "training.edge_dropout=0.2"))
    command = ["-m", "rgcn", "train", "e-rgcn/nc-world", *changes, "--threads", "1", "--quiet", "--out", "run"]
    process = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and not list((folder / "run").glob("checkpoints/step-*.json")):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run_command("resume", "run", "--quiet", folder=folder)
    return read_results(folder / "run")


def select_model(folder: Path) -> dict[str, Any]:
    """Run a model selection with fixed numbers of steps, from a file like that of `rgcn train nations --minutes`."""
    (folder / "run").mkdir()
    shutil.copy(SELECTION, folder / "run" / "selection.json")
    run_command("resume", "run", "--quiet", folder=folder)
    selection = json.loads((folder / "run" / "selection.json").read_text())
    metrics = {candidate["name"]: candidate["value"] for candidate in selection["candidates"]}
    return {**read_results(folder / "run"), "chosen": selection["chosen"], "figures": metrics}


def tune(folder: Path) -> dict[str, Any]:
    """Tune the hyperparameters of an e-RGCN."""
    run_command("tune", "e-rgcn/nc-world", "--trials", "4", "--set", "training.epochs=4", "--fix", "training.epochs",
        "--folds", "1", "--threads", "1", "--quiet", "--out", "study", folder=folder)  # fmt: skip
    best = "".join(
        line for line in (folder / "study" / "best.yaml").read_text().splitlines(True) if not line.startswith("#")
    )
    return {"best": best, "weights": [], "metrics": {}}


def pretrain(folder: Path) -> dict[str, Any]:
    """Pretrain a small path network for a few steps."""
    settings = (
        "training.graphs={umls: 0.5}", "training.pairs_hidden_in=[]", "training.round_steps=4",
        "training.round_views=2", "training.steps=8", "training.batch_edges=4", "training.warmup=0",
        "model.width=16", "training.evaluate_every=8", "training.evaluate_at_most=20",
    )  # fmt: skip
    run_command("pretrain", *set_options(settings), "--threads", "1", "--quiet", "--out", "run", folder=folder)
    return read_results(folder / "run")


OTHER_TASKS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "resumed after a kill": kill_and_resume,
    "selection": select_model,
    "tuning": tune,
    "pretraining": pretrain,
}


def read_results(folder: Path) -> dict[str, Any]:
    """Return {"weights": sorted hashes of the saved tensors, "metrics"} of a finished run."""
    from safetensors.numpy import load_file

    metrics = json.loads((folder / "result.json").read_text())["metrics"]
    hashes = []
    for file in sorted((folder / "model").glob("**/*.safetensors")):
        for tensor in load_file(file).values():
            data = np.ascontiguousarray(tensor)
            head = f"{data.dtype}{list(data.shape)}".encode()
            hashes.append(hashlib.sha256(head + data.tobytes()).hexdigest()[:16])
    return {"weights": sorted(hashes), "metrics": metrics}


def zero_shot(name: str) -> list[float]:
    """Return the scores of the correct answers to random questions (subject, relation, ?) of the test split."""
    import torch

    import rgcn
    from rgcn.nn.scorer import Questions

    graph = rgcn.load(name)
    if graph.triple_splits is None:  # no test split: use known triples, each hidden while it is scored
        triples = graph.triples
    else:
        triples = graph.split_triples("test")
    sample = np.sort(np.random.default_rng(0).choice(len(triples), NUM_SCORES, replace=False))
    subject, relation, object_ = torch.from_numpy(np.array(triples[sample], dtype=np.int64)).unbind(1)
    scorer, answer_scores = rgcn.open_model(graph).model.scorer(), []
    for batch in torch.split(torch.arange(NUM_SCORES), 8):
        scores = scorer.scores_hiding_answers(Questions(subject[batch], relation[batch]), object_[batch])
        answer_scores += scores.gather(1, object_[batch, None]).squeeze(1).tolist()
    return [round(float(score), 9) for score in answer_scores]


def differences(recorded: Mapping[str, Any], result: Mapping[str, Any], name: str) -> list[str]:
    """Return a message for each recorded value that the result does not have."""
    return [
        f"{name}: {key} differ" + (f": {recorded[key]} → {result.get(key)}" if key != "weights" else "")
        for key in recorded
        if recorded[key] != result.get(key)
    ]


def largest_difference(old_run: Path, new_run: Path) -> str:
    """Return a message about the largest difference between the saved weights of two runs, tensor by tensor."""
    from safetensors.numpy import load_file

    worst = 0.0
    for file in sorted((new_run / "model").glob("**/*.safetensors")):
        old, new = load_file(old_run / "model" / file.relative_to(new_run / "model")), load_file(file)
        if old.keys() != new.keys():
            return f"the tensors have different names: {sorted(old.keys() ^ new.keys())}"
        for key, tensor in new.items():
            if tensor.shape != old[key].shape:
                return f"{key} has shape {tensor.shape} instead of {old[key].shape}"
            if tensor.size:
                worst = max(worst, float(np.abs(tensor.astype(np.float64) - old[key].astype(np.float64)).max()))
    return f"the largest difference of a weight is {worst:.2g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="folder to keep the runs in")
    parser.add_argument("--against", type=Path, help="folder of an earlier --keep, to compare weights with")
    parser.add_argument("--write", action="store_true", help=f"replace {RECORD.relative_to(ROOT)}")
    parser.add_argument("--only", default="", help="run only tasks whose name contains this text")
    parser.add_argument("--jobs", type=int, default=2, help="number of trainings that run at the same time")
    options = parser.parse_args()
    os.environ.setdefault("RGCN_MIRROR", str(ROOT.parent / "shared" / "data"))
    temporary = TemporaryDirectory() if options.keep is None else None
    root = Path(temporary.name) if temporary else options.keep.resolve()
    all_tasks: dict[str, Callable[[Path], dict[str, Any]]] = {
        **{name: lambda folder, name=name: train(name, folder) for name in TRAININGS},
        **OTHER_TASKS,
    }
    tasks = {name: task for name, task in all_tasks.items() if options.only in name}

    def run_task(name: str) -> dict[str, Any]:
        folder = root / folder_name(name)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        start = time.monotonic()
        result = tasks[name](folder)
        print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
        return result

    with ThreadPoolExecutor(options.jobs) as pool:
        runs = dict(zip(tasks, pool.map(run_task, tasks), strict=True))
    scores = {name: zero_shot(name) for name in ZERO_SHOT if options.only in f"zero-shot {name}"}
    if options.write:
        sys.path.insert(0, str(ROOT / "benchmarks"))
        from _about import about

        old = json.loads(RECORD.read_text()) if RECORD.exists() else {"runs": {}, "zero_shot": {}}
        head = {**about(), "command": "python tools/reference_runs.py --write"}
        record = {**head, "runs": {**old["runs"], **runs}, "zero_shot": {**old["zero_shot"], **scores}}
        RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    record = json.loads(RECORD.read_text())
    problems = []
    for name, result in runs.items():
        changes = differences(record["runs"][name], result, name)
        if changes and options.against:
            old_run, new_run = (folder / folder_name(name) / "run" for folder in (options.against, root))
            changes.append(f"{name}: {largest_difference(old_run, new_run)}")
        problems += changes
    for name, values in scores.items():
        worst = float(np.abs(np.array(values) - np.array(record["zero_shot"][name])).max())
        print(f"zero-shot {name}: {len(values)} scores, largest difference {worst:.2g}")
        if worst > TOLERANCE:
            problems.append(f"zero-shot {name}: scores differ by up to {worst:.2g}")
    print("\n".join(problems) or f"{len(runs)} runs and {sum(map(len, scores.values()))} scores are as recorded")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
