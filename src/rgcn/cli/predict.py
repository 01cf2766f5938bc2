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

from rgcn.cli.commands import AskingOptions, refuse_if
from rgcn.cli.model_commands import CompleteCommand, ExplainCommand, PredictCommand
from rgcn.cli.output import late_progress, output, print_json, table, tell, tell_opened
from rgcn.errors import ConfigError
from rgcn.explain import Explanation
from rgcn.explain.methods import QUICK, How
from rgcn.explain.methods import explain as explained
from rgcn.explain.question import Question
from rgcn.graph.titles import readable
from rgcn.links.calibration import as_text
from rgcn.links.completion import WORTH_ADDING, Completion, CompletionSession
from rgcn.links.completion import complete as search
from rgcn.links.relation_constraints import SENSELESS, Permitted
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
from rgcn.system.progress import Budget, progress

MOST_ROWS, TO_FILE = 20, "--out FILE writes them all"
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
Answers = tuple[Iterable[pl.DataFrame], Iterable[str]]  # as tables and as N-Triples, of which one is to be used


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
    both = "ask about nodes (--nodes, --node) or about links (--subject, --object, --queries), not both"
    refuse_if({both: about_nodes and about_links})
    classes = about_nodes or not (about_links or asked.reliability) or (asked.has_labels and not about_links)
    opened = opened_model(asked.run, asked, asked.quiet or asked.as_json, classes)
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
    if asked.reliability:
        _show_reliability(opened, asked)
    elif about_links:
        _predict_links(opened, asked)
    else:
        _predict_nodes(opened, asked)


def _calibrate(opened: OpenModel, asked: PredictCommand) -> None:
    """Now, so that its bar is not drawn among those of the answers."""
    opened.calibrate(asked.bars, patient=asked.reliability)
    words = f"--min-probability needs probabilities. {opened.calibration.words}"
    refuse_if({words: asked.min_probability is not None and not opened.calibration.fitted})


def _show_reliability(opened: OpenModel, asked: PredictCommand) -> None:
    _calibrate(opened, asked)
    calibration = opened.calibration
    lines = [calibration.words, calibration.meaning] if calibration.fitted else [calibration.words]
    if calibration.reliability:
        bars = as_text(calibration.reliability)
        lines.append(f"\nWhere it was fitted; the bar is the share that was right, | what was said:\n\n{bars}")
    tell(asked.as_json, _about(opened, {}), *lines)


def _about(opened: OpenModel, counts: dict[str, int]) -> dict[str, Any]:
    return {**opened.source, "task": opened.task.name, **counts, "calibration": opened.calibration.as_dict()}


def _tell(
    opened: OpenModel,
    asked: PredictCommand,
    counts: dict[str, int],
    noun: str,
    answered: Answers,
    show: Callable[[Rows], None],
    notes: Sequence[str] = (),
) -> None:
    """Answers to the file that was asked for, else as JSON or a table of the first ones."""
    told = _delivered(asked, f"{noun}s", answered)
    if asked.as_json:
        print_json({**_about(opened, counts), **told, **({"notes": list(notes)} if notes else {})})
        return
    if asked.out is None:
        show(told[f"{noun}s"])
    else:
        typer.echo(f"Written: {count(told['written'], noun)} to {asked.out}")
        typer.echo(f"{opened.calibration.words} {opened.calibration.meaning}")
    for note in notes[:NOTED]:
        typer.echo(note)
    if len(notes) > NOTED:
        typer.echo(f"and {count(len(notes) - NOTED, 'more note')}; --json prints them all")
    if counts["skipped"]:
        typer.echo(f"rgcn: {count(counts['skipped'], 'name')} not known, skipped", err=True)


def _delivered(asked: PredictCommand | CompleteCommand, noun: str, answered: Answers) -> dict[str, Any]:
    """Answers in --out, as a table or as N-Triples, and how many these are; without --out their rows."""
    frames, lines = answered
    if asked.out is None:
        return {noun: [row for frame in frames for row in frame.to_dicts()]}
    if answers.format_of(asked.out) == "nt":
        return {"out": str(asked.out), "written": answers.write_lines(asked.out, lines)}
    return {"out": str(asked.out), "written": answers.write_table(asked.out, frames, asked.keep_formulas)}


def _links(opened: OpenModel, found: Iterable[ScoredTriples]) -> Answers:
    frames = (frame for rows in found for frame in answers.link_frames(opened, rows))
    return frames, (line for rows in found for line in answers.link_triples(opened, rows))


def _predict_nodes(opened: OpenModel, asked: PredictCommand) -> None:
    tables = opened.kind_about("nodes").to(answers.NodeTables)  # type: ignore[type-abstract]
    ids, skipped = _chosen_nodes(opened, asked)
    _calibrate(opened, asked)
    kind = None if asked.out is None else answers.format_of(asked.out)
    chunks = _node_answers(opened, tables, ids, asked, nested=kind in (None, "jsonl"))
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
    listed, skipped = (ids[:0], 0) if path is None else listed_nodes(opened, path, asked.skip_unknown)
    return np.concatenate([listed, ids]), skipped


def listed_nodes(opened: OpenModel, path: Path, skip_unknown: bool) -> tuple[NDArray[np.int64], int]:
    """The nodes that the first column of a file names, and how many of its names were skipped."""
    table = read_table(path)
    names = [(row.line, row.cells[0]) for row in table.rows]
    found = resolve_nodes(opened, names, table.source, skip_unknown=skip_unknown)
    return found.ids, found.skipped


def _node_answers(
    opened: OpenModel, tables: answers.NodeTables, ids: NDArray[np.int64], asked: PredictCommand, nested: bool
) -> Iterator[tuple[NDArray[np.int64], pl.DataFrame]]:
    """(nodes, their answers), some at a time, without those that are to be left out."""
    with progress("asking", len(ids), "nodes", show=asked.bars) as meter:
        for first in range(0, len(ids), answers.CHUNK):
            part = ids[first : first + answers.CHUNK]
            frame, keep = tables.frame(opened, part, nested), np.ones(len(part), dtype=bool)
            if asked.known == "drop":
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
    _calibrate(opened, asked)
    size, notes = questions.questions.size, list[str]()
    answered = _links(opened, _answered(opened, questions, asked, notes))

    def show(found: Rows) -> None:
        shown = found if size == 1 or asked.k is not None else found[:MOST_ROWS]
        _print_links(opened, shown, len(found), f"-k {ANSWERS} shows them all, --out FILE writes them")

    _tell(opened, asked, {"asked": size, "skipped": questions.skipped}, "answer", answered, show, notes)


def _answered(
    opened: OpenModel, asked: QuestionTable, how: PredictCommand, notes: list[str]
) -> Iterator[ScoredTriples]:
    """Question by question; what is to be said of each is added to the notes, with the question where it has others."""
    to_nt = how.out is not None and answers.format_of(how.out) == "nt"
    drop = how.known == "drop" or (how.known is None and to_nt)
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


def complete(asked: CompleteCommand) -> None:
    if asked.out is not None:
        answers.format_of(asked.out)
    opened = opened_model(asked.run, asked, asked.quiet or asked.as_json)
    opened.kind_about("triples")
    kept = _unfinished(opened, asked.out)
    if asked.restart and kept is not None:
        kept.unlink(missing_ok=True)
    opened.calibrate(asked.bars)
    found = _completed(opened, asked, kept)
    whole = asked.as_json or asked.out is not None
    told = _delivered(asked, "triples", _links(opened, [found if whole else found[:MOST_ROWS]]))
    if kept is not None and not found.left:
        kept.unlink(missing_ok=True)
    if asked.as_json:
        counts = {"pairs": found.pairs, "left": found.left, "found": len(found)}
        print_json({**opened.source, **counts, **told, "calibration": found.calibration.as_dict()})
        return
    cut = " (the best of more: --limit)" if found.found > len(found) else ""
    typer.echo(f"{count(len(found), 'missing triple')}{cut}, of {count(found.pairs, 'subject-relation pair')} asked")
    if found.left:
        typer.echo(f"{count(found.left, 'pair')} not asked yet, those with least to find: {_going_on(kept)}")
    if len(found) and asked.out is None:
        _print_links(opened, told["triples"], len(found), TO_FILE)
        return
    if not len(found):
        typer.echo(_best_of_none(found, asked.min_probability))
    if asked.out is not None:
        typer.echo(f"Written: {asked.out}")
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

    def forecast(seconds: float, left: int) -> str:
        before = "" if left == total else f" ({total - left:,} of {total:,} were asked before)"
        words = f"about {rough_duration(seconds)} for {count(left, 'question')}{before}"
        more = "" if kept is None else ", and a second call goes on"
        advice = "" if asked.minutes else f"; --minutes 5 stops earlier{more}"
        return "" if asked.quiet or seconds < WORTH_SAYING else words + advice

    with Interruption() as interruption, late_progress("completing", "pairs", asked.bars, forecast) as meter:

        def progressed(pairs: int, all_pairs: int) -> bool:
            nonlocal total
            total = all_pairs
            meter(pairs, total)
            return interruption.received is None

        found = search(
            opened,
            relations=[opened.relation(name) for name in asked.relation] if asked.relation else None,
            permitted=permitted_by(asked),
            session=CompletionSession(asked.minutes, kept, progressed),
            **{name: getattr(asked, name) for name in ("k", "min_probability", "limit")},
        )
    if found.left and interruption.received is not None:
        raise interruption.error(f" after {found.pairs:,} of {count(total, 'pair')}", _going_on(kept))
    return found


def permitted_by(asked: PredictCommand | CompleteCommand) -> Permitted:
    refuse_if({"--only-seen and --any-node contradict each other: leave one out": asked.only_seen and asked.any_node})
    return Permitted("seen" if asked.only_seen else "any" if asked.any_node else "fitting", not asked.any_direction)


def _best_of_none(found: Completion, min_probability: float | None) -> str:
    if not math.isfinite(found.best):
        return "There was no unknown triple to look at: every candidate is known, or none is like those seen."
    least = WORTH_ADDING if min_probability is None else min_probability
    return f"The best has probability {found.best:.2g}, below --min-probability {least:g}: lower that to have some."


def explain(asked: ExplainCommand) -> None:
    out, names = asked.out, {"--subject": asked.subject, "--relation": asked.relation, "--object": asked.object}
    missing, of_class = [name for name, value in names.items() if value is None], asked.node is not None
    lacking = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'}"
    refuse_if(  # before anything is computed for it
        {
            "explain either a node's class or a triple: omit NODE, or --subject, --relation, --object": of_class
            and len(missing) < 3,
            "say what to explain: a NODE for its class, or a triple by --subject, --relation, --object": not of_class
            and len(missing) == 3,
            f"a triple has three parts: {lacking} missing": not of_class and missing,
            "--class belongs to a NODE; a triple has no class": not of_class and asked.class_ is not None,
            f"--out {out}: the name says what to write, and ends in one of {', '.join(WRITTEN)}": out is not None
            and out.suffix.lower() not in WRITTEN,
            f"{out} is a folder; --out takes the name of a file": out is not None and out.is_dir(),
        }
    )
    opened = opened_model(asked.run, asked, asked.as_json, classes=of_class)
    budget = QUICK if asked.minutes is None else Budget(seconds=60 * asked.minutes)
    budget = replace(budget, bars=False if asked.as_json else None)
    kind = opened.kind_about("nodes" if of_class else "triples")  # a wrong one is said before unknown names
    question = kind.part(Question)  # type: ignore[type-abstract]
    asked_names = (asked.node, asked.class_) if of_class else tuple(names.values())
    how = How(asked.method, asked.edges, asked.draws, asked.seed, budget)
    found = explained(opened, question, question.numbers(opened, *asked_names), how)
    if out is not None:
        save_page(out, WRITTEN[out.suffix.lower()](found))
    text = found.as_text() + ("" if out is None else f"\nWritten: {out}\n")
    tell(asked.as_json, found.as_dict(), text.removesuffix("\n"))


def _print_nodes(opened: OpenModel, tables: answers.NodeTables, rows: Rows) -> None:
    """The first nodes with their answers, and what the probabilities mean."""
    sure = tuple(name for name in _sure(opened) if rows and name in rows[0])
    cells = []
    for row in rows[:MOST_ROWS]:
        label = "" if row["label"] is None else f"{tables.words(opened, row['label'])} ({row['label_split']})"
        numbers = [_number(name, row[name]) for name in sure]
        cells.append((_named(row["title"], row["node"]), tables.words(opened, row[tables.answer]), *numbers, label))
    _print(opened, ("node", tables.answer, *sure, "known label"), cells, len(rows), "prediction", TO_FILE)


def _print_links(opened: OpenModel, rows: Rows, found: int, more: str) -> None:
    """The first triples; found: how many there are; more: how to see them all."""
    sure, cells = _sure(opened), []
    for row in rows:
        subject, object_ = (_named(row[f"{end}_title"], row[end]) for end in ("subject", "object"))
        known = "known" if row["known"] and not opened.calibration.fitted else ""
        cells.append((subject, row["relation_title"], object_, *(_number(name, row[name]) for name in sure), known))
    _print(opened, ("subject", "relation", "object", *sure, ""), cells, found, "answer", more)


def _print(
    opened: OpenModel, columns: tuple[str, ...], cells: Sequence[tuple[str, ...]], found: int, noun: str, more: str
) -> None:
    calibration, console = opened.calibration, output(160)
    console.print(table(columns, cells, _sure(opened)) if found else f"No {noun} is left.")
    if found > len(cells):
        console.print(f"and {count(found - len(cells), noun).replace(' ', ' more ', 1)}; {more}")
    told = "How far probabilities can be trusted: --reliability" if calibration.fitted else calibration.words
    if found:
        console.print(escape(told), soft_wrap=True)


def _sure(opened: OpenModel) -> tuple[str, ...]:
    """The columns that say how sure the model is."""
    return ("probability", "score") if opened.calibration.fitted else ("score",)


def _named(title: str, name: str) -> str:
    """The title, and the name where it says more: not where the title is the last part of it."""
    last = readable(name)
    return title if title in (name, last) or name.startswith('"') else f"{title} ({last})"


def _number(name: str, value: float | None) -> str:
    """How sure the model is: a score is any number, a probability a share."""
    if value is None:
        return "in the data"
    if name == "score":
        return f"{value:.3g}"
    return f"{value:.2f}" if value >= 0.01 or value == 0 else f"{value:.1g}"
