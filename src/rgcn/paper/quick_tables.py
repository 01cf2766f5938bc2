"""The tables that need no complete training: data sets, numbers of parameters, intermediate tensors, times."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rgcn.config import RunConfig
from rgcn.data.catalog import graph_counts
from rgcn.graph import KnowledgeGraph
from rgcn.paper import published as stated
from rgcn.paper.published import LINK_DATASETS, NODE_DATASETS, TITLES, Judgment, PaperResult, PaperRow, PaperTable
from rgcn.paper.trainings import subject
from rgcn.plugins import ENCODERS
from rgcn.runs.assembly import make_model
from rgcn.runs.configuration import load_configuration, replace_settings
from rgcn.sampling.negatives import corrupt
from rgcn.system.formatting import format_count, format_duration
from rgcn.training.plan import choose_device

DATASETS = (*NODE_DATASETS, *LINK_DATASETS)
WITH_PARAMETERS = (*NODE_DATASETS, "wn18")
TIMED = ("aifb", "am", "wn18")
HOPS = 2
SEEDS = 10
STEPS, WARM_STEPS = 20, 3
# Settings of the published code that our configuration, chosen on validation triples, changes.
PAPER_SETTINGS = ("model.activated_input=true", "training.self_loop_dropout_on=message", "training.schedule=constant")

ProgressCallback = Callable[[str], None]


def quick_tables(mirror: Path | None, device: str | None, say: ProgressCallback) -> list[PaperTable]:
    """Compute all tables but those of trainings; `say` is called with the name of the next step."""
    say("data sets and parameters")
    tables = [datasets_table(mirror=mirror), parameters_table(mirror=mirror)]
    say("intermediate tensors")
    graph = stated.load_or_reason("fb-toy", mirror)
    if not isinstance(graph, str):
        tables.append(tensors_table(tensor_statistics(graph), SEEDS))
    say("times")
    return [*tables, timings_table(mirror=mirror, device=device, on_measure=say)]


# -- data sets ---------------------------------------------------------------------------------------------


def datasets_table(names: Sequence[str] = DATASETS, mirror: Path | None = None) -> PaperTable:
    """Compare the paper's counts of these data sets with ours."""
    return PaperTable(
        "datasets",
        "Data sets",
        [row for name in names for row in _count_rows(name, stated.load_or_reason(name, mirror))],
        rule="equal: the same count.",
        notes=(
            "BGS* and AM* are counted without entities more than two hops from a labeled one.",
            "The paper uses existing splits of labeled entities without stating their sizes: train and test are ours.",
        ),
    )


def _count_rows(name: str, graph: KnowledgeGraph | str) -> list[PaperRow]:
    pruned = name in stated.PRUNED
    subject, where = TITLES[name] + ("*" if pruned else ""), "Table 1" if name in NODE_DATASETS else "Table 3"
    published = {key: PaperResult(n, "", where) for key, n in (NODE_DATASETS.get(name) or LINK_DATASETS[name]).items()}
    row = PaperRow(subject, "", kind="count", digits=0)
    if isinstance(graph, str):
        return [replace(row, quantity=key).without_result([one], graph) for key, one in published.items()]
    ours = count_as_published(graph.prune(HOPS) if pruned else graph)
    verdicts = {key: (Judgment(f, "equal" if ours[key] == f.value else "differs"),) for key, f in published.items()}
    wanted = [*published, *(key for key in ours if key.startswith("labeled, "))]
    return [replace(row, quantity=key, published=verdicts.get(key, ()), ours=ours[key]) for key in wanted]


def count_as_published(graph: KnowledgeGraph) -> dict[str, int]:
    """Return the counts of a graph under the names of the paper's tables."""
    counts = graph_counts(graph)
    ours = {"entities": graph.num_nodes, "relations": graph.num_relations, "edges": graph.num_triples}
    ours |= {f"{split} edges": number for split, number in counts.triples_per_split.items()}
    ours |= {"labeled": counts.labels, "classes": counts.classes or 0}
    return ours | {f"labeled, {split}": number for split, number in counts.labels_per_split.items()}


# -- parameters --------------------------------------------------------------------------------------------


def parameters_table(names: Sequence[str] = WITH_PARAMETERS, mirror: Path | None = None) -> PaperTable:
    """Compare the number of parameters of e-RGCN on each data set, and of c-RGCN on WN18, with that of RGCN."""
    return PaperTable(
        "parameters",
        "Parameters",
        [_share_row(name, stated.load_or_reason(name, mirror)) for name in names],
        rule="equal: the share rounds to the paper's 8 %. The paper does not say of which data set its 8 % is.",
        notes=(
            "Counted as in the paper: a one-hot layer has a row for every relation and node, or with bases for "
            "every basis and node. The stored parameters may be fewer (docs/reference/results.md).",
        ),
    )


def _share_row(name: str, graph: KnowledgeGraph | str) -> PaperRow:
    model, prefix = ("e-rgcn", "nc") if name in NODE_DATASETS else ("c-rgcn", "lp")
    published = stated.PARAMETER_SHARES[model]
    row = PaperRow(f"{TITLES[name]}, {TITLES[model]}", "share of RGCN's parameters, %", kind="percent", digits=1)
    if isinstance(graph, str) and prefix == "lp":
        return row.without_result([published], graph)
    small, large = (_parameters(f"{one}/{prefix}-{name}", graph) for one in (model, "rgcn"))
    share = 100 * small / large
    if published.value is None:  # "fewer than RGCN"
        verdict, remark = "agrees" if small < large else "differs", ", with the built-in configurations"
    else:
        off = "lower" if share < published.value else "higher"
        verdict = "equal" if round(share) == published.value else off
        remark = ", from the published counts, as the data are not here" if isinstance(graph, str) else ""
    return replace(row, published=(Judgment(published, verdict),), ours=share, note=f"{small:,} of {large:,}{remark}")


def _parameters(configuration: str, graph: KnowledgeGraph | str) -> int:
    """Count parameters as the paper does; for node classification without the data, from the published counts."""
    config = load_configuration(configuration, (), {"training.device": "cpu"})
    if not isinstance(graph, str):
        return make_model(config).prepare(graph).num_parameters_as_published_
    counts = NODE_DATASETS[config.data.dataset or ""]
    count_of = ENCODERS.resolve(config.model.encoder).num_published_parameters
    return int(count_of(config.model, counts["entities"], counts["relations"], counts["classes"]))


# -- intermediate tensors of the link predictor on FB-Toy ----------------------------------------------------


def measured_tensors(graph: KnowledgeGraph, seed: int) -> list[Tensor]:
    """Compute the seven tensors of the first forward pass, in the order of TENSORS."""
    config = load_configuration("rgcn/lp-fb-toy", PAPER_SETTINGS, {"seed": seed, "training.device": "cpu"})
    predictor: Any = make_model(config).prepare(graph)
    trainer, network = predictor.trainer(), predictor.network_.train()
    batch = next(trainer.batches())
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nodes = network.encode(trainer.message_graph(batch))
        scores = network.decoder.score_batch(nodes, batch, corrupt(batch, len(nodes), generator=trainer.generator))
    layer = network.encoder.layers[0]
    return [
        network.encoder.source.rows.trained.detach(),
        network.encoder.source().detach(),
        layer.weights.blocks.detach(),
        layer.self_loop.detach(),
        nodes,
        network.decoder.relation.detach(),
        torch.cat([scores.positive, scores.negative]),
    ]


def tensor_statistics(graph: KnowledgeGraph, seeds: int = SEEDS) -> list[list[float]]:
    """Compute the `STATISTICS` of each tensor, in the order of TENSORS, as means over seeds."""
    per_seed = [
        [[float(one) for one in (t.min(), t.max(), t.mean(), t.std())] for t in measured_tensors(graph, seed)]
        for seed in range(seeds)
    ]
    return torch.tensor(per_seed, dtype=torch.float64).mean(0).tolist()


def tensors_table(ours: Sequence[Sequence[float]], seeds: int) -> PaperTable:
    """Compare the statistics of tensors with the published ones."""
    pairs = list(zip(stated.TENSORS, ours, strict=True))
    return PaperTable(
        "tensor-statistics",
        f"Intermediate tensors on FB-Toy, first forward pass; ours: mean of {format_count(seeds, 'seed')}",
        [_statistic_row(published, row, i) for published, row in pairs for i in range(len(stated.STATISTICS))],
        rule="The standard deviation is compared with that of Torch-RGCN: initial ones within 2 %, outputs 10 %. "
        "Minimum, maximum and mean of random numbers differ from seed to seed.",
        notes=("TF-RGCN (inverse): the original stores the blocks of inverse relations in a separate tensor.",),
    )


def _statistic_row(published: stated.PublishedTensor, ours: Sequence[float], number: int) -> PaperRow:
    statistic, verdict = stated.STATISTICS[number], ""
    if statistic == "std":
        off = ours[number] / published.statistics[stated.PAPER][number] - 1.0
        word = "within" if abs(off) <= published.allowed else "outside"
        verdict = f"{off:+.1%}, {word} {published.allowed:.0%}"
    results = tuple(
        Judgment(PaperResult(values[number], by, "Table 4"), verdict if by == stated.PAPER else "")
        for by, values in published.statistics.items()
    )
    return PaperRow(published.name, statistic, results, ours[number], detail=published.shape, digits=5)


# -- times ---------------------------------------------------------------------------------------------------
# Node classification is trained completely. Link prediction takes hours on a CPU, so its time is computed from some
# steps; the note of each row says which.


def timings_table(
    names: Sequence[str] | None = None,
    *,
    mirror: Path | None = None,
    device: str | None = None,
    steps: int = STEPS,
    on_measure: ProgressCallback = lambda name: None,
) -> PaperTable:
    """Compare the times that the paper states with ours.

    Args:
        names: The data sets to measure on; None for all.
        mirror: A folder or address with the data sets.
        device: The device for link prediction.
        steps: The number of steps to measure.
        on_measure: Called with the name of each configuration before it is measured.
    """
    here = choose_device(device or "auto").type
    wanted: list[tuple[str, PaperResult, str, int | None]] = [  # configuration, published, device, epochs of the paper
        *((name, result, "cpu", None) for name, result in stated.NODE_TIMES.items()),
        *((name, stated.GPU_TIME, "cuda", None) for name in stated.NODE_TIMES),
        *((name, result, here, stated.LINK_TIMED_STEPS) for name, result in stated.LINK_TIMES.items()),
        ("distmult/lp-wn18", stated.DISTMULT_TIME, here, None),
    ]
    # Rows on the same data follow each other.
    graph_of = lru_cache(maxsize=1)(partial(stated.load_or_reason, mirror=mirror))
    rows = []
    for name, result, place, epochs in wanted:
        whole = name in stated.NODE_TIMES
        config = load_configuration(name, [] if whole else ["training.evaluate_every=0"], {"training.device": place})
        if names is not None and config.data.dataset not in names:
            continue
        quantity = f"training, {'GPU' if place == 'cuda' else 'CPU'}" if whole else "training and inference"
        row = PaperRow(subject(name), quantity, kind="time")
        has_device = place != "cuda" or torch.cuda.is_available()
        graph = graph_of(config.data.dataset) if has_device else "there is no GPU here"
        if isinstance(graph, str):
            rows.append(row.without_result([result], graph))
            continue
        on_measure(name)
        seconds, note = _whole_training(config, graph) if whole else _steps_and_ranking(config, graph, steps, epochs)
        judged = (stated.judge_time(result, seconds),)
        rows.append(replace(row, published=judged, ours=seconds, extrapolated=not whole, note=note))
    if names is None:
        freebase = PaperRow("FB15k and FB15k-237, RGCN", "a whole run, GPU", kind="time")
        why = "not measured: the paper does not state the number of epochs"
        rows.append(freebase.without_result([stated.FREEBASE_TIME], why))
    return PaperTable(
        "timings",
        "Times",
        rows,
        rule=f"The times are from different machines: the paper's from {stated.CPU} (CPU) and {stated.GPU} (GPU), ours "
        "from this one. ≈ marks a time computed from fewer steps than in the paper; the note says how many.",
    )


def _whole_training(config: RunConfig, graph: KnowledgeGraph) -> tuple[float, str]:
    """Measure the training of a node classifier, after one epoch of warm-up: (seconds, note)."""
    make_model(replace_settings(config, {"training.epochs": 1})).fit(graph)
    seconds = _seconds(lambda: make_model(config).fit(graph), config.training.device)
    return seconds, f"measured: a whole training, {config.training.epochs} epochs, once"


def _steps_and_ranking(config: RunConfig, graph: KnowledgeGraph, steps: int, epochs: int | None) -> tuple[float, str]:
    """Measure some steps and one ranking, of as many validation triples as there are test triples: (seconds, note)."""
    predictor, device = make_model(config), config.training.device
    with predictor.fitting(graph) as fitting:
        for _ in range(WARM_STEPS):
            fitting.trainer.step()
        step = _seconds(lambda: [fitting.trainer.step() for _ in range(steps)], device) / steps
    ranking = _seconds(lambda: predictor.evaluate(split="valid"), device)
    total = epochs or config.training.steps
    place = "on the GPU" if device == "cuda" else f"on {format_count(torch.get_num_threads(), 'CPU thread')}"
    note = (
        f"computed: {format_duration(step)} a step (mean of {steps} measured) × {total:,} + "
        f"{format_duration(ranking)} for one filtered ranking (measured), {place}"
    )
    return total * step + ranking, note


def _seconds(work: Callable[[], object], device: str) -> float:
    start = time.perf_counter()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
