"""`rgcn predict`, `complete` and `explain`: answers about nodes and triples, and explanations."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import typer
from numpy.typing import NDArray
from rich.markup import escape

from rgcn.cli.commands import NewNodeOptions, refuse_if
from rgcn.cli.options import AnswerFilterOptions, CompleteOptions, ExplainCommandOptions, PredictOptions
from rgcn.cli.output import late_progress, output, print_json, print_opened, print_result, table
from rgcn.errors import ConfigError
from rgcn.explain import Explanation
from rgcn.explain.methods import DEFAULT_BUDGET, ExplainOptions, explain
from rgcn.explain.question import Question
from rgcn.graph.titles import readable_name
from rgcn.links.calibration import Calibration, format_reliability
from rgcn.links.completion import DEFAULT_MIN_PROBABILITY, Completion, CompletionSession, complete
from rgcn.links.relation_constraints import IMPLAUSIBLE, AnswerFilter
from rgcn.links.top_k import ScoredTriples, answer_links
from rgcn.pages import save_page
from rgcn.predict import OpenModel, answer_tables, open_model
from rgcn.predict import questions as question_tables
from rgcn.predict.opened_model import with_new_triples
from rgcn.runs.worker_pool import InterruptHandler
from rgcn.system.formatting import format_count, format_rough_duration
from rgcn.system.progress import Budget, progress

MAX_ROWS, USE_OUT = 20, "--out FILE writes them all"
NO_ROWS = {
    "prediction": "No node is left: all of them have a label (--known mark shows these, --all-nodes adds others).",
    "answer": "No answer is left: all are known (--known mark shows them) or ruled out (--any-node allows them).",
}
DEFAULT_K = 10
QUESTIONS_PER_BATCH = 1024
MAX_NOTES = 50  # with more questions, notes are brief
MIN_FORECAST_S = 30  # shorter forecasts are not printed
WRITERS: dict[str, Callable[[Explanation], str]] = {
    ".html": Explanation.as_page,
    ".svg": Explanation.as_svg_file,
    ".json": lambda explanation: json.dumps(explanation.as_dict(), indent=2) + "\n",
    ".txt": Explanation.as_text,
}

Rows = list[dict[str, Any]]
Ids = NDArray[np.int64]
Answers = tuple[Iterable[pl.DataFrame], Iterable[str]]  # as tables and as lines of N-Triples; only one is consumed


def open_for(run: str, options: NewNodeOptions, quiet: bool = True, classes: bool = False) -> OpenModel:
    """Open the model of a run or for a graph, with new nodes.

    Args:
        run: The run or the graph.
        options: How to open it.
        quiet: Print nothing about new nodes.
        classes: Predict classes on a graph.
    """
    new_nodes = options.new_nodes()
    opened = open_model(run, **options.open_arguments(), classes=classes)
    print_opened(opened, quiet)
    if not new_nodes:
        return opened
    opened = with_new_triples(opened, **new_nodes)
    if not quiet:  # a known node with a misspelled name is a new node: the number shows it
        names = ", ".join(opened.titles.of(node) for node in opened.new_nodes[:5])
        more = ", ..." if len(opened.new_nodes) > 5 else ""
        typer.echo(f"{format_count(len(opened.new_nodes), 'new node')}: {names}{more}", err=True)
    return opened


def predict_answers(options: PredictOptions) -> None:
    """Predict classes or links."""
    if options.out is not None:
        answer_tables.format_of(options.out)
    ends = (options.subject, options.object, options.queries)
    is_about_links = bool(options.relation) or any(end is not None for end in ends)
    is_about_nodes = options.nodes is not None or bool(options.node) or options.classes
    conflict = "ask about nodes (--nodes, --node) or about links (--subject, --object, --queries), not both"
    refuse_if({conflict: is_about_nodes and is_about_links})
    classes = is_about_nodes or (not is_about_links and (options.has_labels or not options.reliability))
    opened = open_for(options.run, options, options.quiet or options.as_json, classes)
    if is_about_nodes or options.predicate is not None:
        opened.require_kind_for("nodes")
    if is_about_links:
        opened.require_kind_for("triples")
    elif not options.reliability and all(kind.topic != "nodes" for kind in opened.task.kinds):
        abilities = " and ".join(kind.ability for kind in opened.task.kinds)
        raise ConfigError(
            f"{opened.path} {abilities}: give --subject or --object, and --relation; or --queries FILE. "
            "`rgcn complete` asks about everything"
        )
    if options.reliability:
        _print_reliability(opened, options)
    elif is_about_links:
        _predict_links(opened, options)
    else:
        _predict_nodes(opened, options)


def _calibrate(opened: OpenModel, options: PredictOptions) -> Calibration:
    """Calibrate first, so that its progress bar does not mix with those of the answers."""
    opened.calibrate(options.show_progress, patient=options.reliability)
    conflict = f"--min-probability needs probabilities. {opened.calibration.words}"
    refuse_if({conflict: options.min_probability is not None and not opened.calibration.fitted})
    return opened.calibration


def _print_reliability(opened: OpenModel, options: PredictOptions) -> None:
    calibration = _calibrate(opened, options)
    lines = [calibration.words, calibration.meaning] if calibration.fitted else [calibration.words]
    if calibration.reliability:
        bars = format_reliability(calibration.reliability)
        lines.append(f"\nOn the calibration data; the bar is the share of right answers, | the probability:\n\n{bars}")
    print_result(options.as_json, _description(opened, {}), *lines)


def _description(opened: OpenModel, counts: dict[str, int]) -> dict[str, Any]:
    return {**opened.source, "task": opened.task.name, **counts, "calibration": opened.calibration.as_dict()}


def _deliver(
    opened: OpenModel,
    options: PredictOptions,
    counts: dict[str, int],
    noun: str,
    answers: Answers,
    print_rows: Callable[[Rows], None],
    notes: Sequence[str] = (),
) -> None:
    """Write answers to --out, or print them as JSON or with `print_rows`."""
    result = _write_or_collect(options, f"{noun}s", answers)
    if options.as_json:
        print_json({**_description(opened, counts), **result, **({"notes": list(notes)} if notes else {})})
        return
    if options.out is None:
        print_rows(result[f"{noun}s"])
    else:
        typer.echo(f"Written: {format_count(result['written'], noun)} to {options.out}")
        typer.echo(f"{opened.calibration.words} {opened.calibration.meaning}")
    for note in notes[:MAX_NOTES]:
        typer.echo(note)
    if len(notes) > MAX_NOTES:
        typer.echo(f"and {format_count(len(notes) - MAX_NOTES, 'more note')}; --json prints them all")
    if counts["skipped"]:
        typer.echo(f"rgcn: {format_count(counts['skipped'], 'unknown name')} left out", err=True)


def _write_or_collect(options: PredictOptions | CompleteOptions, noun: str, answers: Answers) -> dict[str, Any]:
    """Write answers to a file and return their number, or without a file return their rows."""
    (frames, lines), out = answers, options.out
    if out is None:
        return {noun: [row for frame in frames for row in frame.to_dicts()]}
    if answer_tables.format_of(out) == "nt":
        return {"out": str(out), "written": answer_tables.write_lines(out, lines)}
    return {"out": str(out), "written": answer_tables.write_table(out, frames, options.keep_formulas)}


def _link_answers(opened: OpenModel, triples: Iterable[ScoredTriples]) -> Answers:
    frames = (frame for part in triples for frame in answer_tables.link_frames(opened, part))
    return frames, (line for part in triples for line in answer_tables.link_triples(opened, part))


def _predict_nodes(opened: OpenModel, options: PredictOptions) -> None:
    tables = opened.require_kind_for("nodes").make_part(answer_tables.NodeTables)  # type: ignore[type-abstract]
    ids, skipped = _nodes_to_classify(opened, options)
    _calibrate(opened, options)
    kind = None if options.out is None else answer_tables.format_of(options.out)
    parts = _node_answers(opened, tables, ids, options, kind in (None, "jsonl"))
    predicate = options.predicate or answer_tables.label_relation(opened) or answer_tables.PREDICATE
    term = answer_tables.predicate_term(predicate) if kind == "nt" else ""
    frames = (frame for _, frame in parts)
    lines = (line for part in parts for line in tables.lines(opened, *part, term))
    counts = {"asked": len(ids), "skipped": skipped}
    _deliver(opened, options, counts, "prediction", (frames, lines), lambda rows: _print_nodes(opened, tables, rows))


def _nodes_to_classify(opened: OpenModel, options: PredictOptions) -> tuple[Ids, int]:
    """Return ids of the nodes to classify, and the number of unknown names that were left out."""
    if options.nodes is None and not options.node:
        if opened.new_nodes:
            return np.array(opened.new_nodes, dtype=np.int64), 0
        chosen, every = (answer_tables.nodes_to_classify(opened, is_all) for is_all in (options.all_nodes, True))
        if len(chosen) < len(every):
            others = format_count(len(every) - len(chosen), "node")
            options.print_note(f"{others} not like labeled ones left out; --all-nodes classifies them too")
        return chosen, 0
    ids = np.array([opened.node(name) for name in options.node or ()], dtype=np.int64)
    listed, skipped = ids[:0], 0
    if options.nodes is not None:
        listed, skipped = listed_nodes(opened, options.nodes, options.skip_unknown)
    return np.concatenate([listed, ids]), skipped


def listed_nodes(opened: OpenModel, path: Path, skip_unknown: bool) -> tuple[Ids, int]:
    """Return ids of the nodes in the first column of a file, and the number of unknown names that were left out."""
    names = question_tables.read_table(path)
    cells = [(row.line, row.cells[0]) for row in names.rows]
    found = question_tables.resolve_nodes(opened, cells, names.source, skip_unknown=skip_unknown)
    return found.ids, found.skipped


def _node_answers(
    opened: OpenModel, tables: answer_tables.NodeTables, ids: Ids, options: PredictOptions, nested: bool
) -> Iterator[tuple[Ids, pl.DataFrame]]:
    """Yield nodes with their answers in parts, after --known and --min-probability."""
    with progress("asking", len(ids), "nodes", show=options.show_progress) as meter:
        for first in range(0, len(ids), answer_tables.CHUNK_ROWS):
            part = ids[first : first + answer_tables.CHUNK_ROWS]
            frame, keep = tables.frame(opened, part, nested), np.ones(len(part), dtype=bool)
            if options.known == "drop":
                keep &= frame["label"].is_null().to_numpy()
            if options.min_probability is not None:
                keep &= (frame["probability"] >= options.min_probability).fill_null(False).to_numpy()
            yield part[keep], frame.filter(pl.Series(keep))
            meter.advance(len(part))


def _predict_links(opened: OpenModel, options: PredictOptions) -> None:
    if options.queries is None:
        questions = question_tables.single_question(opened, options.subject, options.object, options.relation)
    elif options.subject is not None or options.object is not None or options.relation:
        raise ConfigError("--queries has its own subjects, relations and objects: leave the other options out")
    else:
        questions = question_tables.read_questions(opened, options.queries, skip_unknown=options.skip_unknown)
    _calibrate(opened, options)
    num_questions, notes = questions.questions.size, list[str]()
    answers = _link_answers(opened, _answer_questions(opened, questions, options, notes))

    def print_rows(rows: Rows) -> None:
        shown = rows if num_questions == 1 or options.k is not None else rows[:MAX_ROWS]
        _print_links(opened, shown, len(rows), f"-k {DEFAULT_K} shows them all, --out FILE writes them")

    counts = {"asked": num_questions, "skipped": questions.skipped}
    _deliver(opened, options, counts, "answer", answers, print_rows, notes)


def _answer_questions(
    opened: OpenModel, questions: question_tables.QuestionTable, options: PredictOptions, notes: list[str]
) -> Iterator[ScoredTriples]:
    """Yield answers in batches, and append remarks to `notes`, with the question unless it is the only one."""
    is_nt = options.out is not None and answer_tables.format_of(options.out) == "nt"
    known = options.known or ("drop" if is_nt else "mark")
    size, is_implausible = questions.questions.size, False
    with progress("asking", size, "questions", show=options.show_progress) as meter:
        for batch in questions.questions.parts(QUESTIONS_PER_BATCH):
            best = answer_links(opened, batch, options.k or DEFAULT_K, known, answer_filter(options))
            batch_notes = list(question_tables.answer_notes(opened.titles, batch, best, brief=size > MAX_NOTES))
            is_implausible |= bool((best.status == IMPLAUSIBLE).any())
            for question, note in zip(question_tables.format_questions(opened.titles, batch), batch_notes, strict=True):
                if note is not None:
                    notes.append(note if size == 1 else f"{question}: {note}")
            triples = ScoredTriples.of_answers(batch, best, batch_notes)
            yield triples if options.min_probability is None else triples.at_least(options.min_probability)
            meter.advance(batch.size)
    if is_implausible:
        notes.append("--any-node shows answers all the same")


def complete_graph(options: CompleteOptions) -> None:
    """Find missing triples over all subjects and relations."""
    if options.out is not None:
        answer_tables.format_of(options.out)
    opened = open_for(options.run, options, options.quiet or options.as_json)
    opened.require_kind_for("triples")
    # The state of an interrupted completion is stored next to --out, or in the run if it is writable.
    state = None if options.out is None else options.out.with_name(f"{options.out.name}.unfinished")
    if state is None and opened.folder is not None and os.access(opened.folder, os.W_OK):
        state = opened.folder / "completion.unfinished"
    if options.restart and state is not None:
        state.unlink(missing_ok=True)
    opened.calibrate(options.show_progress)
    found = _search(opened, options, state)
    triples = found if options.as_json or options.out is not None else found[:MAX_ROWS]
    result = _write_or_collect(options, "triples", _link_answers(opened, [triples]))
    if state is not None and not found.num_skipped:
        state.unlink(missing_ok=True)
    if options.as_json:
        counts = {"pairs": found.num_asked, "left": found.num_skipped, "found": len(found)}
        print_json({**opened.source, **counts, **result, "calibration": found.calibration.as_dict()})
        return
    cut = " (the best of more: --limit)" if found.num_found > len(found) else ""
    pairs = format_count(found.num_asked, "subject-relation pair")
    typer.echo(f"{format_count(len(found), 'missing triple')}{cut}, from {pairs}")
    if found.num_skipped:
        left = format_count(found.num_skipped, "less promising pair")
        typer.echo(f"{left} not searched yet: {_resume_hint(state)}")
    if len(found) and options.out is None:
        _print_links(opened, result["triples"], len(found), USE_OUT)
        return
    if not len(found) and not math.isfinite(found.best):
        typer.echo("There is no candidate: every triple is known, or none is like the known ones.")
    elif not len(found):
        least = DEFAULT_MIN_PROBABILITY if options.min_probability is None else options.min_probability
        typer.echo(f"The best candidate has probability {found.best:.2g}: lower --min-probability, which is {least:g}.")
    if options.out is not None:
        typer.echo(f"Written: {options.out}")
    typer.echo(f"{found.calibration.words} {found.calibration.meaning}")


def _resume_hint(state: Path | None) -> str:
    return "with --out FILE a later call could continue" if state is None else "the same command continues"


def _search(opened: OpenModel, options: CompleteOptions, state: Path | None) -> Completion:
    total = 0

    def forecast(seconds: float, left: int) -> str:
        before = "" if left == total else f" ({total - left:,} of {total:,} are done)"
        text = f"about {format_rough_duration(seconds)} for {format_count(left, 'question')}{before}"
        resumable = "" if state is None else ", and a second call continues"
        advice = "" if options.minutes else f"; --minutes 5 stops earlier{resumable}"
        return "" if options.quiet or seconds < MIN_FORECAST_S else text + advice

    with InterruptHandler() as interrupt, late_progress("completing", "pairs", options.show_progress, forecast) as show:

        def on_progress(pairs: int, all_pairs: int) -> bool:
            nonlocal total
            total = all_pairs
            show(pairs, total)
            return interrupt.received is None

        found = complete(
            opened,
            relations=[opened.relation(name) for name in options.relation] if options.relation else None,
            answer_filter=answer_filter(options),
            session=CompletionSession(options.minutes, state, on_progress),
            **{name: getattr(options, name) for name in ("k", "min_probability", "limit")},
        )
    if found.num_skipped and interrupt.received is not None:
        raise interrupt.error(f" after {found.num_asked:,} of {format_count(total, 'pair')}", _resume_hint(state))
    return found


def answer_filter(options: AnswerFilterOptions) -> AnswerFilter:
    """Return which links may be answers."""
    conflict = "--only-seen and --any-node contradict each other: leave one out"
    refuse_if({conflict: options.only_seen and options.any_node})
    nodes: Literal["seen", "any", "fitting"] = "seen" if options.only_seen else "any" if options.any_node else "fitting"
    return AnswerFilter(nodes, not options.any_direction)


def explain_answer(options: ExplainCommandOptions) -> None:
    """Explain a class of a node, or a triple."""
    out, parts = options.out, {name: getattr(options, name) for name in ("subject", "relation", "object")}
    missing, triple = [f"--{name}" for name, value in parts.items() if value is None], "--subject, --relation, --object"
    is_class, has_triple = options.node is not None, len(missing) < 3
    is_triple = not is_class and has_triple
    conflicts = {
        f"give either NODE or {triple}: a class or a triple is explained": is_class and has_triple,
        f"nothing to explain: give a NODE for its class, or {triple} for a triple": not is_class and not has_triple,
        f"the triple is not complete: add {' and '.join(missing)}": is_triple and missing,
        "--class needs a NODE: a triple has no class": is_triple and options.class_ is not None,
        f"--out {out}: the name must end in one of {', '.join(WRITERS)}": out and out.suffix.lower() not in WRITERS,
        f"{out} is a folder; --out takes the name of a file": out and out.is_dir(),
    }
    refuse_if(conflicts)
    opened = open_for(options.run, options, options.as_json, classes=is_class)
    budget = DEFAULT_BUDGET if options.minutes is None else Budget(seconds=60 * options.minutes)
    budget = replace(budget, show_progress=False if options.as_json else None)
    kind = opened.require_kind_for("nodes" if is_class else "triples")  # reported before unknown names
    question = kind.part_class(Question)  # type: ignore[type-abstract]
    names = (options.node, options.class_) if is_class else tuple(parts.values())
    explain_options = ExplainOptions(options.method, options.edges, options.draws, options.seed, budget)
    explanation = explain(opened, question, question.find_ids(opened, *names), explain_options)
    if out is not None:
        save_page(out, WRITERS[out.suffix.lower()](explanation))
    text = explanation.as_text() + ("" if out is None else f"\nWritten: {out}\n")
    print_result(options.as_json, explanation.as_dict(), text.removesuffix("\n"))


def _print_nodes(opened: OpenModel, tables: answer_tables.NodeTables, rows: Rows) -> None:
    """Print the first nodes with their answers."""
    numbers, cells = tuple(name for name in _confidence_columns(opened) if rows and name in rows[0]), []
    for row in rows[:MAX_ROWS]:
        label = "" if row["label"] is None else f"{tables.words(opened, row['label'])} ({row['label_split']})"
        values = [_format_number(name, row[name]) for name in numbers]
        answer = tables.words(opened, row[tables.answer])
        cells.append((_format_node(row["title"], row["node"]), answer, *values, label))
    _print_table(opened, ("node", tables.answer, *numbers, "known label"), cells, len(rows), "prediction", USE_OUT)


def _print_links(opened: OpenModel, rows: Rows, total: int, hint: str) -> None:
    """Print the first of `total` triples, and how to see the others."""
    numbers, cells = _confidence_columns(opened), []
    for row in rows:
        subject, object_ = (_format_node(row[f"{end}_title"], row[end]) for end in ("subject", "object"))
        known = "known" if row["known"] and not opened.calibration.fitted else ""
        values = [_format_number(name, row[name]) for name in numbers]
        cells.append((subject, row["relation_title"], object_, *values, known))
    _print_table(opened, ("subject", "relation", "object", *numbers, ""), cells, total, "answer", hint)


def _print_table(
    opened: OpenModel, columns: tuple[str, ...], cells: Sequence[tuple[str, ...]], total: int, noun: str, hint: str
) -> None:
    calibration, console = opened.calibration, output(160)
    console.print(table(columns, cells, _confidence_columns(opened)) if total else NO_ROWS[noun])
    if total > len(cells):
        console.print(f"and {format_count(total - len(cells), noun).replace(' ', ' more ', 1)}; {hint}")
    if total:
        advice = "How reliable probabilities are: --reliability" if calibration.fitted else calibration.words
        console.print(escape(advice), soft_wrap=True)


def _confidence_columns(opened: OpenModel) -> tuple[str, ...]:
    return ("probability", "score") if opened.calibration.fitted else ("score",)


def _format_node(title: str, name: str) -> str:
    """Return the title, with the name if the title is not its last part."""
    last = readable_name(name)
    return title if title in (name, last) or name.startswith('"') else f"{title} ({last})"


def _format_number(name: str, value: float | None) -> str:
    if value is None:
        return "in the data"
    if name == "score":
        return f"{value:.3g}"
    return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.1g}"
