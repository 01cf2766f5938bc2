"""A run as a folder: what is in it, who may write it, and what can be read from it without loading a model.

run.json            what it is: task, data and their fingerprint, configuration, and every session that worked on it
config.yaml         the resolved configuration, every default written out
environment.json    versions, hardware, git state and command of each session
metrics.jsonl       a report of the training a line (metrics.csv: the same as a table)
log.txt             what happened, and when
checkpoints/        see `rgcn.runs.checkpoints`
model/              the trained model with its graph (`rgcn.load_model`)
result.json         the final figures; written last, so that a run that has it is finished
selection.json      what its model was chosen from, where it was (`rgcn.runs.selection`)
lock                held by the process that writes
"""

import json
import os
import platform
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import wraps
from importlib import metadata
from pathlib import Path
from typing import Any, ParamSpec

from filelock import FileLock, Timeout

from rgcn.config import DataConfig, RunConfig
from rgcn.data.catalog import CATALOG
from rgcn.data.graph_store import read_json
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.placement import current
from rgcn.plugins import TASKS
from rgcn.runs import configuration as configurations
from rgcn.runs.tracking import read_metrics
from rgcn.system.atomic_files import TEMPORARY_PREFIX, remedy, remove_temporaries, write_atomically
from rgcn.system.memory import MEMINFO, size_in
from rgcn.version import __version__

FORMAT_VERSION = 2
# Someone who only looks whether a run is being written holds its lock for a moment.
LOCK_PATIENCE_S = 1.0
ABOUT_KEYS = {"task", "dataset", "model", "seed", "epochs", "created", "data", "configuration", "sessions"}
RESULT_KEYS = {"epochs", "parameters", "seconds", "metrics"}
PACKAGES = ("rgcn", "torch", "numpy", "numba", "triton", "polars", "pyoxigraph", "safetensors")
# What the bits of a result may depend on: where one of these changes, a resumed run may end with other last digits.
DECISIVE = ("python", "rgcn", "torch", "numpy", "numba", "triton", "cpu", "cores", "threads", "gpu")


Given = ParamSpec("Given")


def _by_the_first(write: Callable[Given, None]) -> Callable[Given, None]:
    """Done by the first of several processes; the others have nothing to write."""

    @wraps(write)
    def method(*arguments: Given.args, **named: Given.kwargs) -> None:
        if current().is_main:
            write(*arguments, **named)

    return method


class RunFolder:
    """The folder of one run.

    >>> RunFolder(Path("no-such-run")).check()
    Traceback (most recent call last):
    rgcn.errors.DataError: no-such-run: there is no such folder; `rgcn runs` lists the runs there are
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = FileLock(path / "lock")

    def check(self) -> None:
        """Refuse what is no run, or one that this version cannot read."""
        instead = f"`rgcn runs` lists the runs there are, `rgcn train {self.path}` makes one of a graph"
        if not self.path.exists():
            is_data = str(self.path).lower() in CATALOG
            what = "a data set, and this needs a run" if is_data else "there is no such folder"
            raise DataError(f"{self.path}: {what}; {instead if is_data else instead.partition(',')[0]}")
        if (self.path / "series.json").exists():
            raise DataError(f"{self.path} holds several runs: name one, say {self.path / 'seed-0'}, or `rgcn compare`")
        if not self.exists() and (self.path / "selection.json").exists():
            raise DataError(f"{self.path}: its model is still being chosen; `rgcn resume {self.path}` goes on with it")
        if not self.exists():
            why = "it has no run.json" if self.path.is_dir() else "a run is a folder"
            raise DataError(f"{self.path}: not a run ({why}), and this needs one; {instead}")
        self.about()

    def exists(self) -> bool:
        return (self.path / "run.json").exists()

    def about(self) -> dict[str, Any]:
        about = read_json(self.path / "run.json", "rgcn-run", FORMAT_VERSION)
        missing = sorted(ABOUT_KEYS - about.keys())
        problem = f"it lacks {', '.join(missing)}" if missing else TASKS.problem(about["task"])
        if problem is not None:
            raise DataError(f"{self.path / 'run.json'}: damaged, or not ours ({problem})")
        return about

    def config(self) -> RunConfig:
        """The configuration the run was started with; how it is saved and whom it tells may have been edited since."""
        about, path = self.about(), self.path / "config.yaml"
        begun = configurations.kept_configuration(about["task"], about["configuration"], str(self.path / "run.json"))
        if not path.exists():  # cut off between the two files: what the second would have said is in the first
            return begun
        try:
            edited = configurations.load_configuration(str(path))
        except ConfigError as error:
            warnings.warn(f"{error}\nrun.json has the configuration the run began with: that is used", stacklevel=2)
            return begun
        changes = configurations.differences(begun, edited, (*configurations.WITHOUT_EFFECT, "training.device"))
        if changes:
            words = "; ".join(map(str, changes[:5]))
            raise DataError(
                f"{path} was changed since the run began ({words}): half a run with each would be neither. Put it "
                f"back, or train anew: rgcn train {path} --out ELSEWHERE"
            )
        return edited

    def environment(self) -> list[dict[str, Any]]:
        """What each session ran on, oldest first; it is only told, so that a damaged file is no obstacle."""
        with suppress(DataError):
            found = self._json("environment.json") or []
            if isinstance(found, list) and all(isinstance(each, dict) for each in found):
                return found
        path = self.path / "environment.json"
        warnings.warn(f"{path}: damaged; what earlier sessions ran on is not known", stacklevel=2)
        return []

    def result(self) -> dict[str, Any] | None:
        """The final figures; None while the run is not finished."""
        found: dict[str, Any] | None = self._json("result.json")
        if found is not None and not (isinstance(found, dict) and found.keys() >= RESULT_KEYS):
            raise DataError(f"{self.path / 'result.json'}: damaged; remove it, and `rgcn resume` makes it again")
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """Every report of the training, oldest first; a line that cannot be read is passed over with a warning."""
        return read_metrics(self.path / "metrics.jsonl")

    def status(self) -> str:
        """finished, running, not begun, or how the last session ended: interrupted, terminated, failed, killed."""
        if (self.path / "result.json").exists():
            return "finished"
        if self.is_being_written():
            return "running"
        sessions = self.about()["sessions"]
        if not sessions:
            return "not begun"
        # A session without an outcome was ended by something that gave it no time to say so.
        outcome: str = sessions[-1]["outcome"] or "killed"
        return "incomplete" if outcome == "finished" else outcome  # its result is gone

    def is_being_written(self) -> bool:
        if not (self.path / "lock").exists():
            return False
        try:
            with FileLock(self.path / "lock").acquire(timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # a folder we may not write: nor may any process of ours be writing it
            return False

    def _json(self, name: str) -> Any:
        path = self.path / name
        if not path.is_file():
            return None
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise DataError(f"{path}: damaged ({error})") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only process that writes this run; the system lets go of the lock even where we are killed.

        Of several that train together the first is the one; when the others come to write, they pass it by.
        """
        current().require_shared_folder(self.path)
        if not current().is_main:
            current().barrier()
            yield
            return
        with _holding(self.lock, lambda: f"{self.path} is being written by {self._writer()}; wait for it, or stop it"):
            for place in (self.path, self.path / "checkpoints", self.path / "model", self.path / "model" / "graph"):
                remove_temporaries(place)
            current().barrier()  # for whoever reads here what the one before us wrote
            yield

    def _writer(self) -> str:
        try:
            session = self.about()["sessions"][-1]
            return f"process {session['pid']} on {session['host']} since {session['began']}"
        except (DataError, IndexError, KeyError):
            return "another process"

    @_by_the_first
    def create(self, config: RunConfig, graph: KnowledgeGraph) -> None:
        """Write down what will run; under the lock, in a folder that holds nothing else."""
        self.refuse_unless_free(ours=True)
        config = configurations.with_whole_paths(config)
        files = stamps_of(config.data)
        about = {
            "format": "rgcn-run",
            "version": FORMAT_VERSION,
            "rgcn": __version__,
            "created": now(),
            **config.about,
            "epochs": config.training.epochs,
            "data": {
                "fingerprint": graph.fingerprint,
                "nodes": graph.num_nodes,
                "relations": graph.num_relations,
                "triples": len(graph),
                "files": files,
            },
            "configuration": config.model_dump(mode="json"),
            "sessions": [],
        }
        self.write("run.json", about)  # first: from here on it is a run that can be resumed, whatever happens next
        self.write("config.yaml", configurations.dump_configuration(config))

    @_by_the_first
    def refuse_unless_free(self, ours: bool = False) -> None:
        """Results are never overwritten, and what is no run is left alone. ours: this process holds the lock."""
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file; --out needs a folder")
        if (self.path / "result.json").exists():
            raise DataError(f"{self.path} already holds a finished run; choose another --out, or remove the folder")
        if not ours and self.is_being_written():
            raise DataError(f"{self.path} is being written by {self._writer()}; choose another --out")
        if self.exists():
            raise DataError(
                f"{self.path} holds a run that is not finished: `rgcn resume {self.path}` goes on with it; to begin "
                "anew choose another --out, or remove the folder"
            )
        if (self.path / "selection.json").exists():
            raise DataError(f"{self.path}: a model is being chosen there: `rgcn resume {self.path}` goes on with it")
        # A run that was killed before it began may have left its lock and half a file.
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        if not all(name == "lock" or name.startswith(TEMPORARY_PREFIX) for name in names):
            raise DataError(f"{self.path} is not empty and holds no run; choose another --out")

    @_by_the_first
    def begin_session(self, from_step: int, environment: dict[str, Any]) -> None:
        """Note that this process works on the run from now on."""
        about = self.about()
        if not (self.path / "config.yaml").exists():
            self.write("config.yaml", configurations.dump_configuration(self.config()))
        open_still = {"ended": None, "outcome": None, "to_step": None}
        here = {"pid": os.getpid(), "host": platform.node()}
        about["sessions"].append({"began": now(), "from_step": from_step, **open_still, **here})
        self.write("environment.json", [*self.environment(), environment])
        self.write("run.json", about)
        self.log(f"{'began' if from_step == 0 else f'resumed at step {from_step}'}, process {os.getpid()}")

    @_by_the_first
    def end_session(self, outcome: str, to_step: int, words: str = "") -> None:
        about = self.about()
        about["sessions"][-1].update(ended=now(), outcome=outcome, to_step=to_step)
        self.write("run.json", about)
        self.log(f"{outcome} at step {to_step}" + (f": {words}" if words else ""))

    @_by_the_first
    def log(self, message: str) -> None:
        with self._putting("log.txt") as path, path.open("a", encoding="utf-8") as file:
            file.write(f"{now()}  {message}\n")

    @_by_the_first
    def write(self, name: str, content: Any) -> None:
        """Put a file in place: text as it is, anything else as JSON."""
        with self._putting(name) as path:
            write_atomically(path, content if isinstance(content, str) else json.dumps(content, indent=2) + "\n")

    @contextmanager
    def _putting(self, name: str) -> Iterator[Path]:
        """A file to write; an error of the system, a full disk for instance, is told with what to do about it."""
        try:
            yield self.path / name
        except OSError as error:
            where = self.path / name
            raise DataError(f"cannot write {where}: {error.strerror or error}; {remedy(error)}, then resume") from error


@contextmanager
def sole_use(folder: Path, kind: str, who: str, lock: str, is_known: bool) -> Iterator[None]:
    """A folder for several runs or trials, made if need be and ours alone while it lasts.

    kind  what it holds ("series"); an error where something else is in it, unless it is known to be one
    who   works on it, if not we
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; a {kind} needs a folder")
    if folder.is_dir() and not is_known and any(path.name[0] != "." for path in folder.iterdir()):
        raise DataError(f"{folder} is not empty and holds no {kind}; choose another folder")
    busy = f"another {who} is at work in {folder}; wait for it, or choose another folder"
    with _holding(FileLock(folder / lock), lambda: busy):
        yield


@contextmanager
def _holding(lock: FileLock, busy: Callable[[], str]) -> Iterator[None]:
    """Hold a lock in a folder, which is made if need be; DataError with the words of `busy` where another has it."""
    folder = Path(lock.lock_file).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=LOCK_PATIENCE_S)
    except Timeout:
        raise DataError(busy()) from None
    except OSError as error:
        raise DataError(f"cannot write in {folder}: {error.strerror}; choose another folder") from error
    try:
        yield
    finally:
        lock.release()


def now() -> str:
    """The time in UTC, to the second: 2026-11-15T12:00:00Z."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def stamps_of(data: DataConfig) -> list[dict[str, Any]]:
    """Size and time of change of every file the data are read from: equal stamps spare reading them again."""
    stamps = []
    for source in map(Path, data.source_paths()):
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            with suppress(OSError):  # gone, or not ours to look at: then there is nothing to compare either
                found = path.stat()
                if path.is_file():
                    stamps.append({"path": str(path), "size": found.st_size, "modified_ns": found.st_mtime_ns})
    return stamps


def environment() -> dict[str, Any]:
    """Versions, hardware, git state of the working folder and the command; plain values, ready for JSON."""
    import torch

    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "versions": versions,
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "memory_bytes": size_in(MEMINFO, "MemTotal"),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "git": _git_state(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def decisive_differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two environments that may change a result's last digits, in words."""
    old = {**before.get("versions", {}), **before.get("hardware", {})}
    new = {**now["versions"], **now["hardware"]}
    return [f"{key} {old[key]} → {new.get(key)}" for key in DECISIVE if key in old and old[key] != new.get(key)]


def _git_state() -> dict[str, Any] | None:
    """Commit, branch and whether anything is uncommitted; None outside a repository, or without git."""
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    about = dict(line[2:].split(" ", 1) for line in said if line.startswith("# "))
    changed = any(not line.startswith("# ") for line in said)
    return {"commit": about["branch.oid"], "branch": about["branch.head"], "changed": changed}


def _cpu() -> str:
    with suppress(OSError, StopIteration):  # only Linux has it
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()
