"""What a report says of the time, session by session."""

from __future__ import annotations

from rgcn.pages.figures import moment
from rgcn.pages.markup import Html, definitions, join, table
from rgcn.pages.page import Section
from rgcn.runs.run_record import RunRecord, session_seconds
from rgcn.words import duration


def time_card(run: RunRecord) -> Section:
    """How long it took, and how each session began and ended."""
    rows: list[tuple[object, object]] = []
    if run.about.get("created"):
        rows.append(("Begun", moment(run.about["created"])))
    rows.append(("Epochs", f"{run.epochs:,} of at most {run.config.training.epochs:,}"))
    if run.seconds is not None:
        rows.append(("Time in training", f"{duration(run.seconds)}, all sessions together"))
        if run.epochs:
            rows.append(("Time an epoch", f"{duration(run.seconds / run.epochs)} (with everything around it)"))
    words = "A run that is interrupted and resumed has several sessions."
    return Section("Time", words, join([definitions(rows), *([_sessions(run)] if run.sessions else [])]))


def _sessions(run: RunRecord) -> Html:
    rows = []
    for number, session in enumerate(run.sessions, start=1):
        open_for = session_seconds(session)
        rows.append(
            [
                str(number),
                moment(session.get("began", "")),
                "" if open_for is None else duration(open_for),
                f"{session.get('from_step') or 0:,}",
                "" if session.get("to_step") is None else f"{session['to_step']:,}",
                session.get("outcome") or ("running" if run.status == "running" else "ended without a word"),
            ]
        )
    head = ["session", "began", "by the clock", "from epoch", "to epoch", "how it ended"]
    return table(head, rows, numeric=[2, 3, 4])
