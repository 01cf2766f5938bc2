"""Compare models for link prediction: metrics, training time and memory.

    python benchmarks/link_comparison.py world codex-s --models popularity distmult rgcn c-rgcn path --seeds 0 1 2
    # Also evaluated on fb237-v1-ind, an unseen graph.
    python benchmarks/link_comparison.py fb237-v1 --models c-rgcn path
    python benchmarks/link_comparison.py codex-s --models distmult complex transe rotate --seeds 0 1 2
    python benchmarks/link_comparison.py world --models rgcn --set training.steps=500 --split valid --out trials.json

A model is trained with its built-in configuration, MODEL/lp-DATASET, and its test triples are ranked among all nodes:
filtered, both directions, ties at the middle. Seconds are those of the whole training, with all its validations. Each
run has its own process, so that peak memory is measured per run: resident (with PyTorch itself, whose share is
`base_bytes`), and on the GPU where there is one.

Where a data set has a partner of new nodes, the model is also evaluated there, with the partner's training triples as
messages. A model without a table of nodes is applied to the new graph; one with a table (rgcn, c-rgcn) has the new
nodes folded in, as `rgcn predict --with` does; DistMult cannot answer.

Every finished run is added to --out at once, and one that is there already is not made again: a benchmark that was
stopped continues when it is called again. `--split valid` measures no test triple: for choosing settings.

On a machine without the readers of data, use a folder of saved graphs:

    python benchmarks/link_comparison.py fb15k-237 wn18rr --save-graphs graphs
    python benchmarks/link_comparison.py fb15k-237 --models rgcn --graphs graphs --out $OUT/link-comparison-h200.json
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _about  # isort: skip  # noqa: F401  before PyTorch

import numpy as np
import torch
from _about import about

import rgcn
from rgcn.data.graph_store import load_graph, save_graph
from rgcn.errors import ConfigError
from rgcn.graph import KnowledgeGraph
from rgcn.graph.vocabulary import renumber_relations
from rgcn.links.ranking import rank_triples, summarize
from rgcn.models.growth import extended
from rgcn.nn.scorer import Questions, Scorer
from rgcn.runs import builtin_configurations, load_configuration
from rgcn.runs.folder import environment
from rgcn.runs.training import train
from rgcn.sampling.known_triples import KnownTriples, splits_up_to
from rgcn.system.atomic_files import write_atomically

if TYPE_CHECKING:
    from rgcn.models.link_predictor import LinkPredictor

MODELS = ("popularity", "distmult", "rgcn", "c-rgcn", "path")
# A graph of the same relations and none of the nodes, for a model that was trained on the first.
PARTNERS = {"fb237-v1": "fb237-v1-ind", "wn18rr-v1": "wn18rr-v1-ind"}
DRAWN = 50  # Hits@10 among so many random nodes, as the authors of the inductive sets measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--models", nargs="+", default=MODELS, help="MODEL or MODEL+VARIANT of a shipped configuration")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="changes")
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--graphs", type=Path, help="folder of saved graphs, one of each data set's name")
    parser.add_argument("--save-graphs", type=Path, help="save the graphs there and stop")
    parser.add_argument("--note", default="", help="a note on the machine, stored with the results")
    parser.add_argument("--out", type=Path, default=Path("results/link-comparison-cpu.json"))
    options = parser.parse_args()
    if options.save_graphs:
        for name in (*options.datasets, *(PARTNERS[each] for each in options.datasets if each in PARTNERS)):
            save_graph(rgcn.load(name), options.save_graphs / name)
        return
    wanted = [(configuration(model, data), data) for data in options.datasets for model in options.models]
    missing = sorted({name for name, _ in wanted} - builtin_configurations().keys())
    if missing:
        raise SystemExit(f"no such configuration: {', '.join(missing)}; `rgcn configs` lists them")
    book = Book(options.out, options.note)
    for name, data in wanted:
        for seed in options.seeds:
            run = {
                "dataset": data,
                "configuration": name,
                "changes": options.changes,
                "split": options.split,
                "seed": seed,
            }
            if book.has(run):
                print(f"{name}, seed {seed}: is in {options.out} already", flush=True)
                continue
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
                measured = alone.submit(one_run, run, options.graphs).result()
            book.add({**run, **measured})
            print(in_a_line({**run, **measured}), flush=True)


def configuration(model: str, dataset: str) -> str:
    model, _, variant = model.partition("+")
    return f"{model}/lp-{dataset}" + (f"-{variant}" if variant else "")


class Book:
    """The file of results: every call of the script that added runs, and the runs, each with the number of its call."""

    def __init__(self, path: Path, note: str) -> None:
        here = environment()
        self.path = path
        self.call = {**about(), "versions": here["versions"], "git": here["git"], "note": note}

    def read(self) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """(calls, runs) as they are in the file now: another process may have added to it since."""
        if not self.path.exists():
            return [], []
        content = json.loads(self.path.read_text(encoding="utf-8"))
        return content["calls"], content["runs"]

    def has(self, run: dict[str, Any]) -> bool:
        return any(all(there.get(key) == value for key, value in run.items()) for there in self.read()[1])

    def add(self, run: dict[str, Any]) -> None:
        calls, runs = self.read()
        if self.call not in calls:
            calls.append(self.call)
        runs.append({**run, "call": calls.index(self.call)})
        lines = ",\n  ".join(json.dumps(each, ensure_ascii=False) for each in runs)
        text = json.dumps(calls, indent=1, ensure_ascii=False).replace("\n", "\n ")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, f'{{\n "calls": {text},\n "runs": [\n  {lines}\n ]\n}}\n')


def one_run(run: dict[str, Any], graphs: Path | None) -> dict[str, Any]:
    config = load_configuration(run["configuration"], run["changes"], {"seed": run["seed"]})
    graph, load = read_graph(run["dataset"], graphs), os.getloadavg()[0]
    if run["split"] == "valid":
        graph = without_test(graph)
    base = peak()
    result = train(config, graph)
    model: LinkPredictor = result.model  # type: ignore[assignment]
    out: dict[str, Any] = {
        "model": config.model.title,
        "seconds": round(result.seconds, 2),
        "peak_bytes": peak(),
        "base_bytes": base,
        "peak_gpu_bytes": torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
        "parameters": result.model.num_parameters_,
        "steps": result.length,
        "load": round(load, 1),
        "metrics": {split: rounded(values) for split, values in result.metrics.items()},
    }
    if run["dataset"] in PARTNERS:
        partner = PARTNERS[run["dataset"]]
        out["unseen"] = {"dataset": partner, **on_unseen(model, read_graph(partner, graphs), run["split"])}
    return out


def read_graph(name: str, graphs: Path | None) -> KnowledgeGraph:
    return rgcn.load(name) if graphs is None else load_graph(graphs / name)


def without_test(graph: KnowledgeGraph) -> KnowledgeGraph:
    """Return the graph for choosing settings: without test triples, with the same nodes and relations."""
    assert graph.triple_splits is not None
    kept = graph.triple_splits != 2
    return replace(graph, triples=graph.triples[kept], triple_splits=graph.triple_splits[kept])


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def rounded(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: round(value, 5) if isinstance(value, float) else value for name, value in metrics.items()}


# -- a graph that training never saw ---------------------------------------------------------------------


def on_unseen(model: LinkPredictor, unseen: KnowledgeGraph, split: str) -> dict[str, Any]:
    """Return the metrics on a split of the unseen graph, ranked among its own nodes, or why there are none."""
    began, graph = time.perf_counter(), renumber_relations(unseen, model.graph_.relations)
    if model.hooks_.why_not_transferable() is None:
        how, scorer = "as it is", model.over(graph).scorer()
    elif (why_not := model.hooks_.why_not_extensible()) is not None:
        return {"how": None, "why_not": why_not}
    else:
        larger = extended(model, joined(model.graph_, graph))
        how, scorer = "folded in", Among(larger.scorer(), torch.arange(model.graph_.num_nodes, larger.graph_.num_nodes))
    seconds = time.perf_counter() - began
    triples = torch.tensor(graph.split_triples(split), device=scorer.device)
    known = KnownTriples.of_graph(graph, *splits_up_to(split), device=scorer.device)
    metrics = summarize(rank_triples(scorer, triples, known), num_candidates=DRAWN).both.as_dict()
    return {"how": how, "seconds": round(seconds, 2), **rounded(metrics)}


def joined(known: KnowledgeGraph, unseen: KnowledgeGraph) -> KnowledgeGraph:
    """Merge both graphs, which share no node: first the known graph, then the training triples of the unseen one."""
    if set(known.nodes) & set(unseen.nodes):
        raise ConfigError("the unseen graph shares nodes with the known one")
    context = unseen.split_triples("train") + np.array([known.num_nodes, 0, known.num_nodes])
    assert known.triple_splits is not None
    return replace(
        known,
        triples=np.concatenate([known.triples, context]),
        triple_splits=np.concatenate([known.triple_splits, np.zeros(len(context), known.triple_splits.dtype)]),
        nodes=type(known.nodes)([*known.nodes, *unseen.nodes], kind="node"),
        node_kinds=None,
    )


class Among(Scorer):
    """A scorer over some of the nodes of another scorer, numbered in their order."""

    def __init__(self, whole: Scorer, nodes: torch.Tensor) -> None:
        self.whole, self.nodes = whole, nodes.to(whole.device)
        self.num_nodes, self.device = len(nodes), whole.device

    def scores(
        self, questions: Questions, candidates: torch.Tensor | None = None, out: torch.Tensor | None = None
    ) -> torch.Tensor:
        node, relation, for_objects = questions.to(self.device)
        nodes = self.nodes if candidates is None else self.nodes[candidates]
        return self.whole.scores(Questions(self.nodes[node], relation, for_objects), nodes)


def in_a_line(run: dict[str, Any]) -> str:
    metrics = run["metrics"][run["split"]]
    words = f"{run['configuration']}, seed {run['seed']}: {run['split']} MRR {metrics['mrr']:.3f}, hits@10"
    words += f" {metrics['hits@10']:.3f} in {run['seconds']:.0f} s"
    there = run.get("unseen")
    if there and there["how"]:
        words += f"; {there['dataset']}: MRR {there['mrr']:.3f}, hits@10 of {DRAWN} {there[f'hits@10_of_{DRAWN}']:.3f}"
    return words


if __name__ == "__main__":
    main()
