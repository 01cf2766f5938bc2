"""Measure how long the explorer page takes to load in Chromium with an empty cache.

    python benchmarks/page_load.py [RUN ...] --write results/page-load.json

Serves the runs (without any: `rgcn/nc-world` and `rgcn/lp-world`, trained first) with `rgcn serve` and opens the start
page, then the page of each model's first example, `--loads` times each, always with an empty cache. Times are those of
the browser's Performance API, in milliseconds from the moment the address is opened: until the search box can be used,
and until everything is on the screen.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from _about import write_result

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serve"))
from browser import Browser, needed

RGCN = [sys.executable, "-c", "from rgcn.cli import main; main()"]
TRAINED = ["rgcn/nc-world", "rgcn/lp-world"]
MEASURED = """
const mark = (name) => performance.getEntriesByName(name)[0]?.startTime;
const loaded = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")];
return {
  search_usable: mark("search-usable"), drawn: mark(arguments[0]), first_paint: mark("first-contentful-paint"),
  requests: loaded.length, bytes: loaded.reduce((sum, one) => sum + one.transferSize, 0),
};
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="*")
    parser.add_argument("--loads", type=int, default=20)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    if words := needed():
        sys.exit(words)
    with tempfile.TemporaryDirectory() as folder, served(options.runs or trained(Path(folder))) as url:
        browser = Browser()
        version = browser.driver.capabilities["browserVersion"]
        rows = [measure(browser, what, address, options.loads) for what, address in pages(url)]
        browser.close()
    if options.write:
        write_result(options.write, {"chromium": version, "unit": "milliseconds", "rows": rows})


def trained(folder: Path) -> list[Path]:
    runs = [folder / name.replace("/", "-") for name in TRAINED]
    for name, run in zip(TRAINED, runs, strict=True):
        subprocess.run([*RGCN, "train", name, "--out", str(run), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    return runs


@contextmanager
def served(runs: list[Path]) -> Iterator[str]:
    """Yield the address of a server of these runs."""
    command = [*RGCN, "serve", *map(str, runs), "--port", "0", "--device", "cpu", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = (re.match(r"(http://\S+:\d+)", line) for line in process.stdout)
        yield next(match[1] for match in found if match)
    finally:
        process.terminate()
        process.wait()


def pages(url: str) -> Iterator[tuple[str, str]]:
    """Return the pages to open: the start page, and the first example of each model."""
    yield "start page", url
    for line in fetch_json(f"{url}/api/models")["models"]:
        about = fetch_json(f"{url}/api/models/{line['name']}")
        node = about["examples"]["nodes"][0]["name"]
        yield f"{about['task']}, {node}", f"{url}/#{urlencode({'model': about['name'], 'node': node})}"


def fetch_json(address: str) -> Any:
    with urllib.request.urlopen(address) as answer:
        return json.load(answer)


def measure(browser: Browser, what: str, address: str, loads: int) -> dict[str, Any]:
    """Return the median and the maximum of several loads with an empty cache."""
    mark = "node-drawn" if "#" in address else "start-drawn"
    found = []
    for _ in range(loads):
        browser.fresh()
        browser.open(address)
        browser.until(lambda: browser.run(MEASURED, mark)["drawn"], f"{what} drawn")
        found.append(browser.run(MEASURED, mark))
    row: dict[str, Any] = {"page": what, "loads": loads}
    for key in ("first_paint", "search_usable", "drawn"):
        times = [one[key] for one in found]
        row[key] = {"median": round(statistics.median(times)), "worst": round(max(times))}
    row |= {key: max(one[key] for one in found) for key in ("requests", "bytes")}
    print(json.dumps(row), flush=True)
    return row


if __name__ == "__main__":
    main()
