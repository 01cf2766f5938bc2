"""Load-test `rgcn serve`: concurrent clients, memory over 100,000 requests, thousands of generated requests.

    python benchmarks/serving.py load           # 50 clients, world and WN18, then memory   → results/serving.json
    python benchmarks/serving.py questions RUN --rate 20   # any run that predicts links    → results/serving.json
    python benchmarks/serving.py schemathesis --cases 10000                                  → results/serving.json

The load comes from this process, the server is another one, both on the same machine; nothing leaves 127.0.0.1. No
question is repeated, so that no answer comes from a cache.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from _about import about

RESULT = Path(__file__).parents[1] / "results" / "serving.json"
RGCN = (sys.executable, "-c", "from rgcn.cli import main; main()")
CLIENTS = 50


# -- a client that costs little ---------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """One keep-alive connection that sends the next request after each answer, or at a given rate."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.began = 0.0
        self.buffer = b""
        self.greeted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(get("/api/health"))  # type: ignore[attr-defined]

    def ask(self) -> None:
        question = self.load.next_question()
        if question is None:
            self.transport.close()
            return
        self.began = time.perf_counter()
        self.transport.write(question)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head = self.buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        at = self.buffer.find(b"content-length: ", 0, head) + 16
        size = head + 4 + int(self.buffer[at : self.buffer.find(b"\r", at)])
        if len(self.buffer) < size:
            return
        if self.greeted:
            self.load.answered(time.perf_counter() - self.began, self.buffer[9:12], size)
            self.load.pace(self)
        else:
            self.greeted = True
            self.load.greet()
        self.buffer = b""

    def connection_lost(self, exc: Exception | None) -> None:
        self.load.lost()


@dataclass
class Load:
    """Run clients until all questions are sent.

    rate  requests a second from all clients together; None: each sends its next request at once
    """

    questions: Iterator[bytes]
    clients: int = CLIENTS
    rate: float | None = None
    seconds: list[float] = field(default_factory=list)
    statuses: dict[str, int] = field(default_factory=dict)
    received: int = 0

    def run(self, port: int) -> dict[str, Any]:
        """Return the measurements, from the moment all clients are connected."""
        gc.collect()
        gc.freeze()  # garbage collection of this process would count as time of the server
        try:
            import uvloop

            run = uvloop.run
        except ImportError:
            run = asyncio.run
        run(self._run(port))
        wall = time.perf_counter() - self._began
        gc.unfreeze()
        return self._summary(wall)

    async def _run(self, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._open, self._done = self.clients, asyncio.Event()
        self._missing, self._all_greeted = self.clients, asyncio.Event()
        opened = [
            await self._loop.create_connection(lambda: Client(self), "127.0.0.1", port) for _ in range(self.clients)
        ]
        await self._all_greeted.wait()  # connect first, so that fifty simultaneous connections are not measured
        self._began, self._due = time.perf_counter(), self._loop.time()
        for _, client in opened:
            self.pace(client)
        await self._done.wait()

    def greet(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._all_greeted.set()

    def pace(self, client: Client) -> None:
        if self.rate is None:
            client.ask()
            return
        # One clock for all clients: requests are evenly spaced, and the next free client sends one.
        self._due = max(self._due + 1 / self.rate, self._loop.time() - 1)
        self._loop.call_at(self._due, client.ask)

    def next_question(self) -> bytes | None:
        return next(self.questions, None)

    def answered(self, seconds: float, status: bytes, size: int) -> None:
        self.seconds.append(seconds)
        self.received += size
        self.statuses[status.decode()] = self.statuses.get(status.decode(), 0) + 1

    def lost(self) -> None:
        self._open -= 1
        if not self._open:
            self._done.set()

    def _summary(self, wall: float) -> dict[str, Any]:
        ordered = sorted(self.seconds)

        def at(share: float) -> float:
            return round(1000 * ordered[min(int(share * len(ordered)), len(ordered) - 1)], 2)

        return {
            "requests": len(ordered),
            "clients": self.clients,
            "requests_per_second": round(len(ordered) / wall, 1),
            "p50_ms": at(0.5),
            "p90_ms": at(0.9),
            "p99_ms": at(0.99),
            "max_ms": at(1.0),
            "statuses": self.statuses,
            "mean_bytes": round(self.received / max(len(ordered), 1)),
        }


def get(path: str, **parameters: Any) -> bytes:
    """A request as bytes."""
    query = f"?{urlencode(parameters)}" if parameters else ""
    return f"GET {path}{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


# -- questions --------------------------------------------------------------------------------------------


def link_questions(folder: Path, name: str, count: int, seed: int) -> list[bytes]:
    """Distinct (subject, relation) and (relation, object) questions, as far as there are so many."""
    from rgcn.predict import open_model

    graph = open_model(folder, device="cpu").graph
    rng, path = random.Random(seed), f"/api/models/{name}/links"
    pairs = graph.num_nodes * graph.num_relations * 2
    chosen = rng.sample(range(pairs), min(count, pairs))
    questions = []
    for number in chosen:
        side, rest = number % 2, number // 2
        node, relation = graph.nodes[rest // graph.num_relations], graph.relations[rest % graph.num_relations]
        questions.append(get(path, **{"subject" if side else "object": node, "relation": relation, "k": 10}))
    return (questions * (count // len(questions) + 1))[:count]


def partly_wrong_questions(folder: Path, name: str, count: int, seed: int) -> list[bytes]:
    """Return link questions, a tenth of them about unknown nodes: bad requests must not delay the others."""
    questions = link_questions(folder, name, count, seed)
    for place in range(0, count, 10):
        wrong = f"n{random.Random(place).getrandbits(60):x}.n.01"
        questions[place] = get(f"/api/models/{name}/links", subject=wrong, relation="hypernym")
    return questions


def search_questions(folder: Path, name: str, count: int, seed: int) -> list[bytes]:
    """Return what a user may type to find a node: its beginning, a word of it, or a part from its middle."""
    from rgcn.predict import open_model

    opened = open_model(folder, device="cpu")
    rng, path, nodes = random.Random(seed), f"/api/models/{name}/search", opened.graph.num_nodes
    questions = []
    for _ in range(count):
        title = opened.titles.of(rng.randrange(nodes))
        begin = 0 if rng.random() < 0.7 else rng.randrange(len(title))
        questions.append(get(path, q=title[begin : begin + rng.randint(1, 8)]))
    return questions


def class_questions(folder: Path, name: str, count: int, seed: int) -> list[bytes]:
    from rgcn.predict import open_model

    graph = open_model(folder, device="cpu").graph
    rng = random.Random(seed)
    return [get(f"/api/models/{name}/class", node=graph.nodes[rng.randrange(graph.num_nodes)]) for _ in range(count)]


# -- the server -------------------------------------------------------------------------------------------


@dataclass
class Server:
    process: subprocess.Popen[str]
    port: int
    start_seconds: float

    def cpu_seconds(self) -> float:
        """Return the CPU time of all its threads so far, which does not depend on the load of the machine."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return round(int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024, 1)  # type: ignore[index]


@contextlib.contextmanager
def server(runs: Sequence[Path], *options: str) -> Iterator[Server]:
    """Run `rgcn serve` on a free port; stop it with SIGTERM at the end, and check its exit code."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [*RGCN, "serve", *map(str, runs), "--port", "0", "-q", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = next((m for m in (re.match(r"http://\S+:(\d+)\s", line) for line in process.stdout) if m), None)
        if address is None:
            raise SystemExit("the server did not start")
        yield Server(process, int(address[1]), round(time.perf_counter() - began, 2))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()


# -- models -----------------------------------------------------------------------------------------------


def world_runs(here: Path) -> tuple[Path, Path]:
    """Return (links, classes): models trained with the built-in configurations."""
    import rgcn
    from rgcn.runs import load_configuration, train

    found = []
    for name in ("rgcn/lp-world", "rgcn/nc-world"):
        folder = here / name.split("/")[1]
        train(load_configuration(name), rgcn.load("world"), folder)
        found.append(folder)
    return found[0], found[1]


def wn18_model(here: Path) -> Path:
    """Return an untrained model with the shape of the built-in configuration, which costs the same time."""
    import rgcn

    folder = here / "wn18-untrained"
    rgcn.LinkPredictor("rgcn", embedding=200, seed=0).prepare(rgcn.load("wn18")).save(str(folder))
    return folder


# -- commands ---------------------------------------------------------------------------------------------


def load(options: argparse.Namespace) -> None:
    """Closed loop (each client asks again at once), then 500 requests a second; then memory."""
    with tempfile.TemporaryDirectory() as scratch:
        here = Path(scratch)
        links, classes = options.world or world_runs(here)
        wn18 = options.wn18 or wn18_model(here)
        kinds: dict[str, tuple[Callable[..., list[bytes]], Path]] = {
            "world: search": (search_questions, links),
            "world: links": (link_questions, links),
            "world: class": (class_questions, classes),
            "wn18: search": (search_questions, wn18),
            "wn18: links": (link_questions, wn18),
            "wn18: links, a tenth with wrong names": (partly_wrong_questions, wn18),
        }
        results: dict[str, Any] = {"as_fast_as_they_can": {}, "at_500_a_second": {}}
        threads = ("--threads", str(options.threads))
        with server([links, classes, wn18], *threads) as served:
            results["start_seconds"] = served.start_seconds
            for number, (kind, (make, folder)) in enumerate(kinds.items()):
                if options.only and options.only not in kind:
                    continue
                name = folder.resolve().name
                Load(iter(make(folder, name, 500, seed=99))).run(served.port)
                questions = make(folder, name, options.requests, seed=number)
                before = served.cpu_seconds()
                fast = Load(iter(questions)).run(served.port)
                fast["server_cpu_ms_each"] = round(1000 * (served.cpu_seconds() - before) / len(questions), 3)
                results["as_fast_as_they_can"][kind] = fast
                paced = Load(iter(questions[: options.requests // 2]), rate=500).run(served.port)
                results["at_500_a_second"][kind] = paced
                print(f"{kind}: {_line(fast)} | at 500/s: {_line(paced)}", flush=True)
        if options.memory:
            results["memory"] = memory(links, classes, wn18, options.memory, threads)
    results["threads"] = options.threads
    results["wn18"] = "trained" if options.wn18 else "untrained weights of the same shape"
    _record("load", results)


def questions(options: argparse.Namespace) -> None:
    """Load-test the links of a run at a fixed rate (open loop), then with clients without pauses."""
    name, most = options.model.resolve().name, options.requests
    all_questions = link_questions(options.model, name, 2 * most, seed=0)
    results: dict[str, Any] = {"model": name, "threads": options.threads, "load before": os.getloadavg()[0]}
    with server([options.model], "--threads", str(options.threads)) as served:
        results["start_seconds"] = served.start_seconds
        ways = {f"at_{options.rate:g}_a_second": options.rate, "as_fast_as_they_can": None}
        for number, (kind, rate) in enumerate(ways.items()):
            before = served.cpu_seconds()
            part = iter(all_questions[number * most : (number + 1) * most])
            found = Load(part, clients=options.clients, rate=rate).run(served.port)
            found["server_cpu_ms_each"] = round(1000 * (served.cpu_seconds() - before) / most, 3)
            results[kind] = found
            print(f"{kind}: {_line(found)}", flush=True)
    _record(f"questions of {name}", results)


def _line(results: dict[str, Any]) -> str:
    cpu = f", {results['server_cpu_ms_each']} ms CPU each" if "server_cpu_ms_each" in results else ""
    times = f"p50 {results['p50_ms']} p99 {results['p99_ms']} max {results['max_ms']} ms"
    return f"{results['requests_per_second']:,}/s {times}{cpu} {results['statuses']}"


def memory(links: Path, classes: Path, wn18: Path, requests: int, threads: Sequence[str]) -> dict[str, Any]:
    """Resident memory of the server every tenth of many mixed requests."""
    samples: list[dict[str, Any]] = []
    part = requests // 10
    with server([links, classes, wn18], *threads) as served:
        samples.append({"requests": 0, "resident_mb": served.resident_mb()})
        for number in range(10):
            questions = [
                *link_questions(links, links.resolve().name, part // 4, number),
                *link_questions(wn18, wn18.resolve().name, part // 4, number),
                *search_questions(wn18, wn18.resolve().name, part // 4, number),
                *class_questions(classes, classes.resolve().name, part - 3 * (part // 4), number),
            ]
            random.Random(number).shuffle(questions)
            Load(iter(questions)).run(served.port)
            samples.append({"requests": part * (number + 1), "resident_mb": served.resident_mb()})
            print(samples[-1], flush=True)
    first, last = samples[1]["resident_mb"], samples[-1]["resident_mb"]
    return {"samples": samples, "growth_after_first_tenth_mb": round(last - first, 1)}


def generated(options: argparse.Namespace) -> None:
    """Requests that schemathesis makes from the OpenAPI document, in this process; any surprise is an error."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "serve"))
    from collections import Counter

    import schemathesis
    from generated import run_cases

    from rgcn.serve import create_app, load_models

    with tempfile.TemporaryDirectory() as scratch:
        models = load_models(options.world or world_runs(Path(scratch)), device="cpu")
        app = create_app(models)
        statuses: Counter[str] = Counter()
        began, turn = time.perf_counter(), 0
        while sum(statuses.values()) < options.cases:  # fresh seeds, so that no turn repeats another
            statuses += run_cases(app, models, each=200, number=1000 * turn)
            turn += 1
            print(f"{sum(statuses.values()):,} cases: {dict(statuses)}", flush=True)
    results = {
        "schemathesis": schemathesis.__version__,
        "cases": sum(statuses.values()),
        "statuses": dict(sorted(statuses.items())),
        "server_errors": sum(count for status, count in statuses.items() if status.startswith("5")),
        "seconds": round(time.perf_counter() - began, 1),
    }
    _record("schemathesis", results)


def _record(what: str, results: dict[str, Any]) -> None:
    """Write results next to those of the other commands."""
    kept = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    sys.argv[1:] = [Path(word).name if "/" in word else word for word in sys.argv[1:]]  # no folder of this machine
    kept[what] = {**about(), **results}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {RESULT}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    loading = commands.add_parser("load")
    loading.add_argument(
        "--world", nargs=2, type=Path, metavar=("LINKS", "CLASSES"), help="runs; else they are trained"
    )
    loading.add_argument("--wn18", type=Path, help="a run of WN18; else untrained weights of its shape")
    loading.add_argument("--requests", type=int, default=20_000, help="of each kind")
    loading.add_argument("--memory", type=int, default=100_000, help="requests during which memory is watched; 0: none")
    loading.add_argument("--threads", type=int, default=2)
    loading.add_argument("--only", help="kinds with this in their name")
    loading.set_defaults(run=load)
    asking = commands.add_parser("questions")
    asking.add_argument("model", type=Path, metavar="RUN")
    asking.add_argument("--rate", type=float, default=20, help="questions a second, of all clients together")
    asking.add_argument("--clients", type=int, default=CLIENTS)
    asking.add_argument("--requests", type=int, default=1000, help="at that rate, and as many without pause")
    asking.add_argument("--threads", type=int, default=2)
    asking.set_defaults(run=questions)
    generating = commands.add_parser("schemathesis")
    generating.add_argument(
        "--world", nargs=2, type=Path, metavar=("LINKS", "CLASSES"), help="runs; else they are trained"
    )
    generating.add_argument("--cases", type=int, default=10_000)
    generating.set_defaults(run=generated)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    options.run(options)


if __name__ == "__main__":
    main()
