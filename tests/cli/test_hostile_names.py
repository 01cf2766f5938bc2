"""Test that names with terminal control sequences or spreadsheet formulas are only displayed."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import polars as pl
import pytest
from in_process import rgcn
from rich.progress import Progress

from rgcn.data.tables import escape_formulas
from rgcn.predict.answer_tables import write_table
from rgcn.system.formatting import safe_output, text_console
from rgcn.system.progress import progress

CLEAR = "\x1b[2J\x1b]0;owned\x07\x9b31m\r"


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    rows = [f"evil{i}{CLEAR.strip()}\tlikes{CLEAR.strip()}\tthing{i % 3}\n" for i in range(6)]
    file = tmp_path / "hostile.tsv"
    file.write_text("".join(rows) + "only two\x1b[2J columns\n", newline="\n")
    return file


@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_no_escape_sequence_of_a_name_is_printed(hostile: Path, as_json: list[str]) -> None:
    refused = rgcn("data", "stats", hostile)
    assert refused.returncode == 1
    done = rgcn("data", "stats", hostile, "--skip-bad-lines", *as_json)
    assert done.returncode == 0, done.stderr
    assert "likes" in done.stdout
    for text in (refused.stderr, done.stdout, done.stderr):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text)


def test_console_styles_are_kept_and_control_sequences_in_texts_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console = text_console(file=stream, force_terminal=True, color_system="standard", highlight=False)
    console.print(f"[red]name{CLEAR}[/]")
    with Progress(console=console) as bar:
        bar.add_task(f"reading {CLEAR}", total=1)
    output = stream.getvalue()
    assert "\x1b[31mname" in output
    assert not re.search("\x1b\\[2J|\x1b\\]0|\x07|\x9b", output)
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    with safe_output(), progress("x", 1) as meter:
        meter.print_line(f"name{CLEAR}")
        print(f"\x1b[31mred{CLEAR}", file=sys.stderr)
    assert sys.stderr is err
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", err.getvalue())


CELLS = ["=1+1", "+cmd", "-x", "@SUM(A1)", "\tx", "\rx", "-5", "+1.5e-3", "plain", "a=b", None]


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "jsonl"])
def test_cells_that_begin_like_formulas_are_escaped_unless_kept(ending: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"node": CELLS, "score": [-1.0] * len(CELLS)})
    safe = [f"'{cell}" if cell and cell[0] in "=+-@\t\r" and cell not in ("-5", "+1.5e-3") else cell for cell in CELLS]
    assert escape_formulas(frame)["node"].to_list() == safe

    def written(keep: bool) -> list[str]:
        path = tmp_path / f"t.{ending}"
        write_table(path, [frame], keep_formulas=keep)
        read = {"parquet": pl.read_parquet, "jsonl": pl.read_ndjson}.get(ending)
        table = read(path) if read else pl.read_csv(path, separator="," if ending == "csv" else "\t")
        assert table["score"].to_list() == [-1.0] * len(CELLS)
        return table["node"].to_list()

    assert written(True) == CELLS
    assert written(False) == (safe if ending in ("csv", "tsv") else CELLS)
