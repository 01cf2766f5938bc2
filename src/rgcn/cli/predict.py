"""`rgcn predict`, `complete` and `explain`: what a model says of nodes and of triples, and what decided it."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import typer
from numpy.typing import NDArray
from rich.markup import escape
from rich.table import Table

from rgcn.cli.model_commands import AskingOptions, CompleteCommand, ExplainCommand, KnownChoice, PredictCommand
from rgcn.cli.output import late_progress, output, print_json, table, tell_opened
from rgcn.errors import ConfigError
from rgcn.explain import Explanation
from rgcn.explain.methods import QUICK, How
from rgcn.explain.methods import explain as explained
from rgcn.explain.question import Question
from rgcn.graph.titles import readable
from rgcn.links.calibration import Calibration
from rgcn.links.completion import WORTH_ADDING, Completion
from rgcn.links.completion import complete as search
from rgcn.links.relation_constraints import SENSELESS, Permitted
from rgcn.links.reliability import as_text
from rgcn.links.top_k import ScoredTriples, answer_links
from rgcn.pages import save_page
from rgcn.predict import OpenModel, open_model
from rgcn.predict import answer_tables as answers
from rgcn.predict.opened_model import with_new_triples
from rgcn.predict.questions import (
    QuestionTable,
    notes_of,
    question_words,
    read_questions,
    read_table,
    resolve_nodes,
    single_question,
)
from rgcn.runs.worker_pool import Interruption
from rgcn.system.formatting import count, rough_duration
from rgcn.system.progress import progress
from rgcn.system.time_budget import Budget

MOST_ROWS = 20
ANSWERS = 10  # to each question, where nobody says how many
QUERIES_AT_ONCE = 1024
NOTED = 50  # of so many questions it is said of each whether more answers are to be expected
WORTH_SAYING = 30  # seconds: who waits longer than this may want to know beforehand
WRITTEN: dict[str, Callable[[Explanation], str]] = {
    ".html": Explanation.as_page,
    ".svg": Explanation.as_svg_file,
    ".json": lambda found: json.dumps(found.as_dict(), indent=2) + "\n",
    ".txt": Explanation.as_text,
}

Rows = list[dict[str, Any]]


def opened_model(run: str, asked: AskingOptions, quiet: bool = True, classes: bool = False) -> OpenModel:
    """The model of a run or for a graph (`classes`: asked about these); over new triples and their nodes, too."""
    new = asked.new_nodes()
    opened = open_model(run, **asked.opening(), classes=classes)
    tell_opened(opened, quiet)
    if not new:
        return opened
    larger = with_new_triples(opened, **new)
    if not quiet:  # a known node with a slip in its name is a new node: the number shows it
        names = ", ".join(larger.titles.of(node) for node in larger.new_nodes[:5])
        more = ", ..." if len(larger.new_nodes) > 5 else ""
        typer.echo(f"{count(len(larger.new_nodes), 'new node')}: {names}{more}", err=True)
    return larger


def predict(asked: PredictCommand) -> None:
    if asked.out is not None:
        answers.format_of(asked.out)
    about_links = bool(asked.relation) or any(end is not None for end in (asked.subject, asked.object, asked.queries))
    about_nodes = asked.nodes is not None or bool(asked.node) or asked.classes
    if about_nodes and about_links:
        raise ConfigError("ask about nodes (--nodes, --node) or about links (--subject, --object, --queries), not both")
    classes = about_nodes or not (about_links or asked.reliability) or (asked.has_labels and not about_links)
    opened = opened_model(asked.run, asked, asked.quiet or asked.as_json, classes)
    _check(opened, asked, about_nodes, about_links)
    if asked.reliability:
        opened.calibrate(asked.bars, patient=True)
        _show_reliability(opened, asked.as_json)
    elif about_links:
        _predict_links(opened, asked)
    else:
        _predict_nodes(opened, asked)


def _check(opened: OpenModel, asked: PredictCommand, about_nodes: bool, about_links: bool) -> None:
    """A question that fits the run's task, or words on what would."""
    if about_nodes or asked.predicate is not None:
        opened.kind_about("nodes")
    if about_links:
        opened.kind_about("triples")
    elif not asked.reliability and all(kind.about != "nodes" for kind in opened.task.kinds):
        does = " and ".join(kind.does for kind in opened.task.kinds)
        raise ConfigError(
            f"{opened.path} {does}: give --subject or --object, and --relation; or --queries FILE. `rgcn complete` "
            "asks about everything"
        )
    if asked.min_probability is None:
        return
    opened.calibrate(asked.bars)
    if not opened.calibration.fitted:
        raise ConfigError(f"--min-probability needs probabilities. {opened.calibration.words}")


def _about(opened: OpenModel, **counts: int) -> dict[str, Any]:
    return {**opened.source, "task": opened.task.name, **counts, "calibration": opened.calibration.as_dict()}


def _tell(
    opened: OpenModel,
    asked: PredictCommand,
    counts: dict[str, int],
    noun: str,
    answered: tuple[Iterable[pl.DataFrame], Iterable[str]],
    show: Callable[[Rows], None],
    notes: Sequence[str] = (),
) -> None:
    """Answers to the file that was asked for, else as JSON or a table."""
    if asked.out is None:
        found = [row for frame in answered[0] for row in frame.to_dicts()]
        told: dict[str, Any] = {f"{noun}s": found}
    else:
        told = {"out": str(asked.out), "written": _write(asked.out, asked.keep_formulas, *answered)}
    if asked.as_json:
        print_json({**_about(opened, **counts), **told, **({"notes": list(notes)} if notes else {})})
        return
    if asked.out is None:
        show(found)
    else:
        typer.echo(f"Written: {count(told['written'], noun)} to {asked.out}")
        typer.echo(f"{opened.calibration.words} {opened.calibration.meaning}")
    for note in notes[:NOTED]:
        typer.echo(note)
    if len(notes) > NOTED:
        typer.echo(f"and {count(len(notes) - NOTED, 'more note')}; --json prints them all")
    if counts["skipped"]:
        typer.echo(f"rgcn: {count(counts['skipped'], 'name')} not known, skipped", err=True)


def _write(out: Path, keep_formulas: bool, frames: Iterable[pl.DataFrame], lines: Iterable[str]) -> int:
    """How many answers were written, as rows of a table or as N-Triples."""
    if answers.format_of(out) == "nt":
        return answers.write_lines(out, lines)
    return answers.write_table(out, frames, keep_formulas)


def _links(opened: OpenModel, found: Iterable[ScoredTriples]) -> tuple[Iterator[pl.DataFrame], Iterator[str]]:
    """The triples as tables and as N-Triples, of which one is to be used."""
    frames = (frame for rows in found for frame in answers.link_frames(opened, rows))
    return frames, (line for rows in found for line in answers.link_triples(opened, rows))


def _predict_nodes(opened: OpenModel, asked: PredictCommand) -> None:
    tables = opened.kind_about("nodes").to(answers.NodeTables)  # type: ignore[type-abstract]
    ids, skipped = _chosen_nodes(opened, asked)
    opened.calibrate(asked.bars)
    kind = None if asked.out is None else answers.format_of(asked.out)
    chunks = _answered(opened, tables, ids, asked, nested=kind in (None, "jsonl"))
    predicate = asked.predicate or answers.label_relation(opened) or answers.PREDICATE
    term = answers.predicate_term(predicate) if kind == "nt" else ""
    frames = (frame for _, frame in chunks)
    lines = (line for chunk in chunks for line in tables.lines(opened, *chunk, term))
    counts = {"asked": len(ids), "skipped": skipped}
    _tell(opened, asked, counts, "prediction", (frames, lines), lambda found: _print_nodes(opened, tables, found))


def _chosen_nodes(opened: OpenModel, asked: PredictCommand) -> tuple[NDArray[np.int64], int]:
    path, names = asked.nodes, asked.node or []
    if path is None and not names:
        if opened.new_nodes:
            return np.array(opened.new_nodes, dtype=np.int64), 0
        chosen, every = (answers.nodes_to_classify(opened, all_of) for all_of in (asked.all_nodes, True))
        if len(chosen) < len(every) and not asked.quiet:
            others = count(len(every) - len(chosen), "node")
            typer.echo(f"{others} not like labelled ones left out; --all-nodes classifies them too", err=True)
        return chosen, 0
    ids = np.array([opened.node(name) for name in names], dtype=np.int64)
    if path is None:
        return ids, 0
    listed, skipped = listed_nodes(opened, path, asked.skip_unknown)
    return np.concatenate([listed, ids]), skipped


def listed_nodes(opened: OpenModel, path: Path, skip_unknown: bool) -> tuple[NDArray[np.int64], int]:
    """The nodes that the first column of a file names, and how many of its names were skipped."""
    table = read_table(path)
    names = [(row.line, row.cells[0]) for row in table.rows]
    found = resolve_nodes(opened, names, table.source, skip_unknown=skip_unknown)
    return found.ids, found.skipped


def _answered(
    opened: OpenModel, tables: answers.NodeTables, ids: NDArray[np.int64], asked: PredictCommand, nested: bool
) -> Iterator[tuple[NDArray[np.int64], pl.DataFrame]]:
    """(nodes, their answers), some at a time, without those that are to be left out."""
    with progress("asking", len(ids), "nodes", show=asked.bars) as meter:
        for first in range(0, len(ids), answers.CHUNK):
            part = ids[first : first + answers.CHUNK]
            frame, keep = tables.frame(opened, part, nested), np.ones(len(part), dtype=bool)
            if asked.known is KnownChoice.drop:
                keep &= frame["label"].is_null().to_numpy()
            if asked.min_probability is not None:
                keep &= (frame["probability"] >= asked.min_probability).fill_null(False).to_numpy()
            yield part[keep], frame.filter(pl.Series(keep))
            meter.advance(len(part))


def _predict_links(opened: OpenModel, asked: PredictCommand) -> None:
    if asked.queries is None:
        questions = single_question(opened, asked.subject, asked.object, asked.relation)
    elif asked.subject is not None or asked.object is not None or asked.relation:
        raise ConfigError("--queries brings its own subjects, relations and objects: leave the other options out")
    else:
        questions = read_questions(opened, asked.queries, skip_unknown=asked.skip_unknown)
    opened.calibrate(asked.bars)
    size, notes = questions.questions.size, list[str]()

    def show(found: Rows) -> None:
        shown = found if size == 1 or asked.k is not None else found[:MOST_ROWS]
        _print_links(shown, len(found), opened.calibration, f"-k {ANSWERS} shows them all, --out FILE writes them")

    counts = {"asked": size, "skipped": questions.skipped}
    _tell(opened, asked, counts, "answer", _links(opened, _asked(opened, questions, asked, notes)), show, notes)


def _asked(opened: OpenModel, asked: QuestionTable, how: PredictCommand, notes: list[str]) -> Iterator[ScoredTriples]:
    """Question by question; what is to be said of each is added to the notes, with the question where it has others."""
    to_nt = how.out is not None and answers.format_of(how.out) == "nt"
    drop = how.known is KnownChoice.drop or (how.known is None and to_nt)
    size, senseless = asked.questions.size, False
    with progress("asking", size, "questions", show=how.bars) as meter:
        for part in asked.questions.parts(QUERIES_AT_ONCE):
            found = answer_links(opened, part, how.k or ANSWERS, "drop" if drop else "mark", permitted_by(how))
            said = list(notes_of(opened.titles, part, found, brief=size > NOTED))
            senseless |= bool((found.expected == SENSELESS).any())
            for question, note in zip(question_words(opened.titles, part), said, strict=True):
                if note is not None:
                    notes.append(note if size == 1 else f"{question}: {note}")
            rows = ScoredTriples.of_answers(part, found, said)
            yield rows if how.min_probability is None else rows.at_least(how.min_probability)
            meter.advance(part.size)
    if senseless:
        notes.append("--any-node asks all the same")


def _show_reliability(opened: OpenModel, as_json: bool) -> None:
    calibration = opened.calibration
    if as_json:
        print_json(_about(opened))
        return
    typer.echo(calibration.words)
    if calibration.fitted:
        typer.echo(calibration.meaning)
    if calibration.reliability:
        typer.echo("\nWhere it was fitted; the bar is the share that was right, | what was said:\n")
        typer.echo(as_text(calibration.reliability))


def complete(asked: CompleteCommand) -> None:
    if asked.out is not None:
        answers.format_of(asked.out)
    opened = opened_model(asked.run, asked, asked.quiet or asked.as_json)
    opened.kind_about("triples")
    kept, out = _unfinished(opened, asked.out), asked.out
    if asked.restart and kept is not None:
        kept.unlink(missing_ok=True)
    opened.calibrate(asked.bars)
    found = _completed(opened, asked, kept)
    about: dict[str, Any] = {**opened.source, "pairs": found.pairs, "left": found.left, "found": len(found)}
    if out is not None:
        about |= {"out": str(out), "written": _write(out, asked.keep_formulas, *_links(opened, [found]))}
    if kept is not None and not found.left:
        kept.unlink(missing_ok=True)
    if asked.as_json:
        triples = {} if out is not None else {"triples": _rows(opened, found)}
        print_json({**about, **triples, "calibration": found.calibration.as_dict()})
        return
    cut = " (the best of more: --limit)" if found.found > len(found) else ""
    typer.echo(f"{count(len(found), 'missing triple')}{cut}, of {count(found.pairs, 'subject-relation pair')} asked")
    if found.left:
        typer.echo(f"{count(found.left, 'pair')} not asked yet, those with least to find: {_going_on(kept)}")
    if len(found) and out is None:
        _print_links(_rows(opened, found[:MOST_ROWS]), len(found), found.calibration)
        return
    if not len(found):
        typer.echo(_best_of_none(found, asked.min_probability))
    if out is not None:
        typer.echo(f"Written: {out}")
    typer.echo(f"{found.calibration.words} {found.calibration.meaning}")


def _unfinished(opened: OpenModel, out: Path | None) -> Path | None:
    """Where a completion is kept that is stopped: beside its output, else in the run, where that can be written."""
    if out is not None:
        return out.with_name(f"{out.name}.unfinished")
    folder = opened.folder
    return None if folder is None or not os.access(folder, os.W_OK) else folder / "completion.unfinished"


def _going_on(kept: Path | None) -> str:
    return "with --out FILE what was found would be kept, to go on from" if kept is None else "the same command goes on"


def _completed(opened: OpenModel, asked: CompleteCommand, kept: Path | None) -> Completion:
    total = 0

    def begin(pairs: int) -> None:
        nonlocal total
        total = pairs

    def forecast(seconds: float, left: int) -> str:
        before = "" if left == total else f" ({total - left:,} of {total:,} were asked before)"
        words = f"about {rough_duration(seconds)} for {count(left, 'question')}{before}"
        more = "" if kept is None else ", and a second call goes on"
        advice = "" if asked.minutes else f"; --minutes 5 stops earlier{more}"
        return "" if asked.quiet or seconds < WORTH_SAYING else words + advice

    with Interruption() as interruption, late_progress("completing", "pairs", asked.bars, forecast) as meter:

        def progressed(pairs: int) -> bool:
            meter(pairs, total)
            return interruption.received is None

        found = search(
            opened,
            relations=[opened.relation(name) for name in asked.relation] if asked.relation else None,
            k=asked.k,
            min_probability=asked.min_probability,
            limit=asked.limit,
            permitted=permitted_by(asked),
            minutes=asked.minutes,
            resume=kept,
            on_begin=begin,
            on_progress=progressed,
        )
    if found.left and interruption.received is not None:
        raise interruption.error(f" after {found.pairs:,} of {count(total, 'pair')}", _going_on(kept))
    return found


def permitted_by(asked: PredictCommand | CompleteCommand) -> Permitted:
    if asked.only_seen and asked.any_node:
        raise ConfigError("--only-seen and --any-node contradict each other: leave one out")
    return Permitted("seen" if asked.only_seen else "any" if asked.any_node else "fitting", not asked.any_direction)


def _rows(opened: OpenModel, found: ScoredTriples) -> Rows:
    return [row for frame in answers.link_frames(opened, found) for row in frame.to_dicts()]


def _best_of_none(found: Completion, min_probability: float | None) -> str:
    if not math.isfinite(found.best):
        return "There was no unknown triple to look at: every candidate is known, or none is like those seen."
    least = WORTH_ADDING if min_probability is None else min_probability
    return f"The best has probability {found.best:.2g}, below --min-probability {least:g}: lower that to have some."


def explain(asked: ExplainCommand) -> None:
    _check_explained(asked)
    opened = opened_model(asked.run, asked, asked.as_json, classes=asked.node is not None)
    budget = QUICK if asked.minutes is None else Budget(seconds=60 * asked.minutes)
    budget = replace(budget, bars=False if asked.as_json else None)
    kind = opened.kind_about("triples" if asked.node is None else "nodes")  # a wrong one is said before unknown names
    question = kind.part(Question)  # type: ignore[type-abstract]
    names = (asked.node, asked.class_) if asked.node is not None else (asked.subject, asked.relation, asked.object)
    how = How(asked.method, asked.edges, asked.draws, asked.seed, budget)
    found = explained(opened, question, question.numbers(opened, *names), how)
    if asked.out is not None:
        save_page(asked.out, WRITTEN[asked.out.suffix.lower()](found))
    if asked.as_json:
        print_json(found.as_dict())
        return
    typer.echo(found.as_text(), nl=False)
    if asked.out is not None:
        typer.echo(f"\nWritten: {asked.out}")


def _check_explained(asked: ExplainCommand) -> None:
    """Either a node or a whole triple, and a file that can be written; before anything is computed for it."""
    triple = {"--subject": asked.subject, "--relation": asked.relation, "--object": asked.object}
    missing = [name for name, value in triple.items() if value is None]
    if asked.node is not None and len(missing) < 3:
        raise ConfigError("explain either a node's class or a triple: omit NODE, or --subject, --relation, --object")
    if asked.node is None and len(missing) == 3:
        raise ConfigError("say what to explain: a NODE for its class, or a triple by --subject, --relation, --object")
    if asked.node is None and missing:
        verb = "is" if len(missing) == 1 else "are"
        raise ConfigError(f"a triple has three parts: {' and '.join(missing)} {verb} missing")
    if asked.node is None and asked.class_ is not None:
        raise ConfigError("--class belongs to a NODE; a triple has no class")
    out = asked.out
    if out is not None and out.suffix.lower() not in WRITTEN:
        raise ConfigError(f"--out {out}: the name says what to write, and ends in one of {', '.join(WRITTEN)}")
    if out is not None and out.is_dir():
        raise ConfigError(f"{out} is a folder; --out takes the name of a file")


def _print_nodes(opened: OpenModel, tables: answers.NodeTables, rows: Rows) -> None:
    """The first nodes with their answers, and what the probabilities mean."""
    sure = tuple(name for name in _sure(opened.calibration) if rows and name in rows[0])
    drawn = table(("node", tables.answer, *sure, "known label"), sure)
    for row in rows[:MOST_ROWS]:
        label = "" if row["label"] is None else f"{tables.words(opened, row['label'])} ({row['label_split']})"
        cells = (
            _named(row["title"], row["node"]),
            tables.words(opened, row[tables.answer]),
            *_numbers(row, sure),
            label,
        )
        drawn.add_row(*map(escape, cells))
    _show(drawn, opened.calibration, len(rows), MOST_ROWS, "prediction")


def _print_links(
    rows: list[dict[str, Any]], found: int, calibration: Calibration, rest: str = "--out FILE writes them all"
) -> None:
    """The rows; found: how many there are; rest: how to see those that are not shown."""
    sure = _sure(calibration)
    drawn = table(("subject", "relation", "object", *sure, ""), sure)
    for row in rows:
        subject, object_ = (_named(row[f"{end}_title"], row[end]) for end in ("subject", "object"))
        known = "known" if row["known"] and not calibration.fitted else ""
        drawn.add_row(*map(escape, (subject, row["relation_title"], object_, *_numbers(row, sure), known)))
    _show(drawn, calibration, found, len(rows), "answer", rest)


def _show(
    drawn: Table,
    calibration: Calibration,
    found: int,
    shown: int,
    what: str,
    rest: str = "--out FILE writes them all",
) -> None:
    console = output(160)
    console.print(drawn if found else f"No {what} is left.")
    if found > shown:
        console.print(f"and {count(found - shown, what).replace(' ', ' more ', 1)}; {rest}")
    told = "How far probabilities can be trusted: --reliability" if calibration.fitted else calibration.words
    if found:
        console.print(escape(told), soft_wrap=True)


def _named(title: str, name: str) -> str:
    """The title, and the name where it says more: not where the title is the last part of it."""
    last = readable(name)
    return title if title in (name, last) or name.startswith('"') else f"{title} ({last})"


def _sure(calibration: Calibration) -> tuple[str, ...]:
    return ("probability", "score") if calibration.fitted else ("score",)


def _numbers(row: dict[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    """How sure the model is: a score is any number, a probability a share."""
    for name in names:
        value = row[name]
        if value is None:
            yield "in the data"
            continue
        plain = name == "probability" and (value >= 0.01 or value == 0)
        yield f"{value:.2f}" if plain else f"{value:.1g}" if name == "probability" else f"{value:.3g}"
