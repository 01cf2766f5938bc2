"""The folder of a run: its files, who may write it, and what can be read from it without loading a model.

run.json            task, data with fingerprint, configuration, and every session that worked on the run
config.yaml         the complete configuration, including defaults
environment.json    versions, hardware, git state and command of each session
metrics.jsonl       one report of the training per line (metrics.csv: the same as a table)
log.txt             events with their times
checkpoints/        see `rgcn.runs.checkpoints`
model/              the trained model with its graph (`rgcn.load_model`)
result.json         the final metrics; written last, so a run that has this file is finished
selection.json      the candidates that the model was selected from, if any (`rgcn.runs.selection`)
lock                held by the process that writes the run
"""

import json
import os
import platform
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, ParamSpec

from filelock import FileLock, Timeout
from pydantic import TypeAdapter, ValidationError

from rgcn.config import DataConfig, RunConfig
from rgcn.data.catalog import CATALOG
from rgcn.data.graph_store import read_json
from rgcn.errors import ConfigError, DataError
from rgcn.graph import KnowledgeGraph
from rgcn.placement import current
from rgcn.plugins import TASKS
from rgcn.runs import configuration as configurations
from rgcn.runs.tracking import read_metrics
from rgcn.system.atomic_files import TEMPORARY_PREFIX, disk_error_remedy, remove_temporary_files, write_atomically
from rgcn.system.memory import MEMINFO_FILE, read_proc_bytes
from rgcn.version import __version__

FORMAT_VERSION = 2
LOCK_TIMEOUT_S = 1.0  # a process that only checks whether a run is being written holds the lock for a moment
ABOUT_KEYS = {"task", "dataset", "model", "seed", "created", "data", "configuration", "sessions"}
LENGTH_KEYS = {"steps", "epochs"}  # one of them: "steps" of link prediction, for which rgcn 0.2.0 wrote "epochs", too
RESULT_KEYS = {"parameters", "seconds", "metrics"}
PACKAGES = ("rgcn", "torch", "numpy", "numba", "triton", "polars", "pyoxigraph", "safetensors")
# If one of these changes, a resumed run may differ from an uninterrupted one in the last digits.
DECISIVE = ("python", "rgcn", "torch", "numpy", "numba", "triton", "cpu", "cores", "threads", "gpu")

P = ParamSpec("P")


def _on_main(write: Callable[P, None]) -> Callable[P, None]:
    """Decorator: run the method only in the main process of a distributed training."""

    @wraps(write)
    def method(*arguments: P.args, **options: P.kwargs) -> None:
        if current().is_main:
            write(*arguments, **options)

    return method


def length_in(values: Mapping[str, Any]) -> int:
    """Return the length of a training from its run.json or result.json."""
    return int(values["steps"] if "steps" in values else values["epochs"])


class RunFolder:
    """The folder of one run.

    Args:
        path: The folder. It need not exist.

    Examples:
        >>> RunFolder(Path("no-such-run")).check()
        Traceback (most recent call last):
        rgcn.errors.DataError: no-such-run: there is no such folder; `rgcn runs` lists the runs there are
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def check(self) -> None:
        """Check that the folder holds a run that this version can read.

        Raises:
            DataError: It does not.
        """
        advice = f"`rgcn runs` lists the runs there are, `rgcn train {self.path}` trains on a graph"
        if not self.path.exists():
            is_dataset = str(self.path).lower() in CATALOG
            problem = "a data set, but a run is needed" if is_dataset else "there is no such folder"
            raise DataError(f"{self.path}: {problem}; {advice if is_dataset else advice.partition(',')[0]}")
        if (self.path / "series.json").exists():
            one = self.path / "seed-0"
            raise DataError(f"{self.path} holds several runs: name one of them, such as {one}, or use `rgcn compare`")
        if not self.exists():
            if (self.path / "selection.json").exists():
                raise DataError(f"{self.path}: model selection is not finished; `rgcn resume {self.path}` continues it")
            reason = "it has no run.json" if self.path.is_dir() else "a run is a folder"
            raise DataError(f"{self.path}: not a run ({reason}), but a run is needed; {advice}")
        self.about()

    def exists(self) -> bool:
        """Return True if the folder holds a run, finished or not."""
        return (self.path / "run.json").exists()

    def about(self) -> dict[str, Any]:
        """Return the content of run.json.

        Raises:
            DataError: The file is damaged or of another version.
        """
        about = read_json(self.path / "run.json", "rgcn-run", FORMAT_VERSION)
        missing = sorted(ABOUT_KEYS - about.keys()) + (["steps"] if LENGTH_KEYS.isdisjoint(about) else [])
        problem = f"it lacks {', '.join(missing)}" if missing else TASKS.problem(about["task"])
        if problem is not None:
            raise DataError(f"{self.path / 'run.json'}: damaged, or not written by rgcn ({problem})")
        return about

    def config(self) -> RunConfig:
        """Return the configuration of the run.

        Users may edit checkpoints, trackers and device in config.yaml after the run began, but nothing else.

        Raises:
            DataError: Another setting was edited.
        """
        about, path, source = self.about(), self.path / "config.yaml", str(self.path / "run.json")
        original = configurations.stored_configuration(about["task"], about["configuration"], source)
        if not path.exists():  # the process was killed between writing the two files
            return original
        try:
            edited = configurations.load_configuration(str(path))
        except ConfigError as error:
            warnings.warn(f"{error}\nThe configuration in run.json is used instead", stacklevel=2)
            return original
        editable = (*configurations.SETTINGS_WITHOUT_EFFECT, "training.device")
        if changes := configurations.differences(original, edited, editable):
            raise DataError(
                f"{path} was changed since the run began ({'; '.join(map(str, changes[:5]))}): a run cannot change its "
                f"settings halfway. Undo the change, or train again: rgcn train {path} --out ELSEWHERE"
            )
        return edited

    def environment(self) -> list[dict[str, Any]]:
        """Return what each session ran on, oldest first. A damaged file gives a warning and an empty list."""
        with suppress(DataError, ValidationError):
            return TypeAdapter(list[dict[str, Any]]).validate_python(self._json("environment.json") or [])
        warnings.warn(f"{self.path / 'environment.json'}: damaged, and ignored", stacklevel=2)
        return []

    def result(self) -> dict[str, Any] | None:
        """Return the content of result.json, or None while the run is not finished.

        Raises:
            DataError: The file is damaged.
        """
        result: dict[str, Any] | None = self._json("result.json")
        if result is not None and not (isinstance(result, dict) and result.keys() >= RESULT_KEYS):
            raise DataError(f"{self.path / 'result.json'}: damaged; remove it, and `rgcn resume` writes it again")
        return result

    def metrics(self) -> list[dict[str, Any]]:
        """Return every report of the training, oldest first. Unreadable lines give a warning and are skipped."""
        return read_metrics(self.path / "metrics.jsonl")

    def status(self) -> str:
        """Return the state of the run.

        Returns:
            "finished", "running", "not begun", "incomplete" (result.json is missing), or how the last session ended:
            "interrupted", "terminated", "failed" or "killed".
        """
        if (self.path / "result.json").exists():
            return "finished"
        if self.is_being_written():
            return "running"
        # A killed session had no time to write its outcome.
        outcomes = ["not begun", *(session["outcome"] or "killed" for session in self.about()["sessions"])]
        return "incomplete" if outcomes[-1] == "finished" else str(outcomes[-1])

    def is_being_written(self) -> bool:
        """Return True if a process holds the lock."""
        if not (self.path / "lock").exists():
            return False
        try:
            with FileLock(self.path / "lock").acquire(timeout=0):
                return False
        except Timeout:
            return True
        except OSError:  # we may not write to this folder, so no process of this user writes to it
            return False

    def _json(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: damaged ({error})") from error

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock on the run. The system releases it even if the process is killed.

        In a distributed training the main process holds the lock for all.

        Raises:
            DataError: Another process holds the lock.
        """
        current().require_shared_folder(self.path)
        if not current().is_main:
            current().barrier()
            yield
            return
        with _locked(self.path / "lock", lambda: f"{self.path} is being written by {self._writer()}; wait, or stop it"):
            for place in (self.path, self.path / "checkpoints", self.path / "model", self.path / "model" / "graph"):
                remove_temporary_files(place)
            current().barrier()  # other ranks read what an earlier session wrote only after the clean-up
            yield

    def _writer(self) -> str:
        try:
            session = self.about()["sessions"][-1]
            return f"process {session['pid']} on {session['host']} since {session['began']}"
        except (DataError, IndexError, KeyError):
            return "another process"

    @_on_main
    def create(self, config: RunConfig, graph: KnowledgeGraph) -> None:
        """Write the description of a new run. Call it while holding the lock."""
        self.refuse_unless_free(is_locked=True)
        config = configurations.with_absolute_paths(config)
        about = {"format": "rgcn-run", "version": FORMAT_VERSION, "rgcn": __version__, "created": now()}
        files, about = file_stamps(config.data), about | config.about
        about[config.training.length_key] = config.training.length
        data = {"fingerprint": graph.fingerprint, "nodes": graph.num_nodes, "relations": graph.num_relations}
        about["data"] = {**data, "triples": len(graph), "files": files}
        about |= {"configuration": config.model_dump(mode="json"), "sessions": []}
        self.write("run.json", about)  # first: a folder with this file can be resumed, whatever happens next
        self.write("config.yaml", configurations.dump_configuration(config))

    @_on_main
    def refuse_unless_free(self, is_locked: bool = False) -> None:
        """Check that a new run may be written here: runs and other files are never overwritten.

        Args:
            is_locked: True if this process holds the lock.

        Raises:
            DataError: The folder is in use, or not empty.
        """
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file, but --out needs a folder")
        if (self.path / "result.json").exists():
            raise DataError(f"{self.path} already holds a finished run; choose another --out, or remove the folder")
        if not is_locked and self.is_being_written():
            raise DataError(f"{self.path} is being written by {self._writer()}; choose another --out")
        if self.exists() or (self.path / "selection.json").exists():
            raise DataError(
                f"{self.path} holds {'a run' if self.exists() else 'a model selection'} that is not finished: `rgcn "
                f"resume {self.path}` continues it; to start again choose another --out, or remove the folder"
            )
        # A run that was killed before it began may have left its lock and a temporary file.
        names = [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []
        if not all(name == "lock" or name.startswith(TEMPORARY_PREFIX) for name in names):
            raise DataError(f"{self.path} is not empty and holds no run; choose another --out")

    @_on_main
    def begin_session(self, from_step: int, environment: dict[str, Any]) -> None:
        """Record that this process works on the run from now on."""
        about = self.about()
        if not (self.path / "config.yaml").exists():
            self.write("config.yaml", configurations.dump_configuration(self.config()))
        session = {"began": now(), "from_step": from_step, "ended": None, "outcome": None, "to_step": None}
        about["sessions"].append({**session, "pid": os.getpid(), "host": platform.node()})
        self.write("environment.json", [*self.environment(), environment])
        self.write("run.json", about)
        self.log(f"{'began' if from_step == 0 else f'resumed at step {from_step}'}, process {os.getpid()}")

    @_on_main
    def end_session(self, outcome: str, to_step: int, reason: str = "") -> None:
        """Record how the session ended, and at which step."""
        about = self.about()
        about["sessions"][-1].update(ended=now(), outcome=outcome, to_step=to_step)
        self.write("run.json", about)
        self.log(f"{outcome} at step {to_step}" + (f": {reason}" if reason else ""))

    @_on_main
    def log(self, message: str) -> None:
        """Append a line to log.txt."""
        with self._writable("log.txt") as path, path.open("a", encoding="utf-8") as file:
            file.write(f"{now()}  {message}\n")

    @_on_main
    def write(self, name: str, content: Any) -> None:
        """Replace a file atomically: a string as it is, anything else as JSON."""
        with self._writable(name) as path:
            write_atomically(path, content if isinstance(content, str) else json.dumps(content, indent=2) + "\n")

    @contextmanager
    def _writable(self, name: str) -> Iterator[Path]:
        """Yield the path of a file; turn an OSError, such as a full disk, into a DataError with advice."""
        path = self.path / name
        try:
            yield path
        except OSError as error:
            advice = f"{disk_error_remedy(error)}, then resume"
            raise DataError(f"cannot write {path}: {error.strerror or error}; {advice}") from error


@contextmanager
def exclusive_lock(folder: Path, kind: str, user: str, lock: str, is_known: bool) -> Iterator[None]:
    """Lock a folder that holds several runs or trials, and create it if it does not exist.

    Args:
        folder: The folder.
        kind: What it holds, such as "series", for messages.
        user: What may hold the lock, such as "process", for messages.
        lock: Name of the lock file.
        is_known: True if the folder is known to hold this kind. Any other folder must be empty.

    Raises:
        DataError: The folder is locked, or holds something else.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file, but a {kind} needs a folder")
    if folder.is_dir() and not is_known and any(path.name[0] != "." for path in folder.iterdir()):
        raise DataError(f"{folder} is not empty and holds no {kind}; choose another folder")
    busy = f"another {user} is at work in {folder}; wait for it, or choose another folder"
    with _locked(folder / lock, lambda: busy):
        yield


@contextmanager
def _locked(path: Path, message: Callable[[], str]) -> Iterator[None]:
    """Hold a lock file, and create its folder if need be; DataError with the message if it is already held."""
    lock = FileLock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=LOCK_TIMEOUT_S)
    except Timeout:
        raise DataError(message()) from None
    except OSError as error:
        raise DataError(f"cannot write in {path.parent}: {error.strerror}; choose another folder") from error
    try:
        yield
    finally:
        lock.release()


def now() -> str:
    """Return the time in UTC, to the second: 2026-11-15T12:00:00Z."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def file_stamps(data: DataConfig) -> list[dict[str, Any]]:
    """Return size and modification time of every data file. Data with equal stamps need not be read again."""
    stamps = []
    for source in map(Path, data.source_paths()):
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            with suppress(OSError):  # a file that is missing or not readable cannot be compared
                stat = path.stat()
                if path.is_file():
                    stamps.append({"path": str(path), "size": stat.st_size, "modified_ns": stat.st_mtime_ns})
    return stamps


def environment() -> dict[str, Any]:
    """Return versions, hardware, git state of the working folder and the command, as plain values for JSON."""
    import torch

    versions = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    hardware = {"cpu": _cpu(), "cores": os.cpu_count(), "threads": torch.get_num_threads()}
    hardware["memory_bytes"] = read_proc_bytes(MEMINFO_FILE, "MemTotal")
    hardware["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    hardware["system"] = f"{platform.system()} {platform.release()} {platform.machine()}"
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return {"versions": versions, "hardware": hardware, "git": _git_state(), "command": command}


def environment_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Describe the differences between two environments that may change the last digits of a result."""
    old = {**before.get("versions", {}), **before.get("hardware", {})}
    new = {**now["versions"], **now["hardware"]}
    return [f"{key} {old[key]} → {new.get(key)}" for key in DECISIVE if key in old and old[key] != new.get(key)]


def _git_state() -> dict[str, Any] | None:
    """Return commit, branch and whether there are uncommitted changes; None outside a repository or without git."""
    command = ["git", "--no-optional-locks", "status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    about = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
    changed = any(not line.startswith("# ") for line in lines)
    return {"commit": about["branch.oid"], "branch": about["branch.head"], "changed": changed}


def _cpu() -> str:
    with suppress(OSError, StopIteration):  # only Linux has this file
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line for line in lines if line.startswith("model name")).partition(":")[2].strip()
    return platform.processor() or platform.machine()
