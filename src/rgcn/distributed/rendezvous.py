"""Several processes join as the ranks of one group, compare their settings, and leave, or report a failure.

Messages are JSON, never pickled. Before and after collectives work, ranks use the key-value store of the rendezvous.

torchrun's agent ends the ranks of its machine when one of them exits, and a collective fails where a connection is
closed. Nothing in PyTorch notices a rank that is stopped, or a machine that vanishes, before a collective's time-out;
that is hours here, because one rank may write a large file while the others wait. So a thread of each rank writes its
heartbeat to the store every second and reads that of the next rank, even during long steps: PyTorch and our loops
release Python's lock.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from rgcn.errors import ConfigError, DataError
from rgcn.placement import LOCAL, Placement, current, use
from rgcn.system.atomic_files import write_atomically
from rgcn.system.formatting import visible_text
from rgcn.version import __version__

VARIABLES = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun
JOIN_S = 60  # for all ranks to join; RGCN_JOIN_SECONDS changes it
# Heartbeats notice a lost rank sooner. One rank may write or read for hours while the others wait.
COLLECTIVE_TIMEOUT = timedelta(hours=6)
SAME_ERROR_S = 2.0  # for rank 0 to report an error that all ranks have
NCCL_SEGMENT = 2 * 9_637_888  # bytes of shared memory that NCCL takes for a process: two channels of its usual buffers
# All ranks end within 30 s: a silent one is noticed after SILENCE_S and two heartbeats, the others learn of it with
# their next heartbeat, and then have GRACE_S to end.
HEARTBEAT_S = 1.0
SILENCE_S = 20.0  # without a heartbeat: lost
GRACE_S = 6.0  # for a rank to end by itself once another has failed
LEFT = b"left"  # the last heartbeat of a rank that has finished
FAILURE = "failure"  # where the store has the first failure
RUN_ID_PREFIX = "rgcn-"  # of the names that `launch` gives to torchrun's runs
RESUME_ADVICE = "`rgcn resume {}` resumes from the last checkpoint"


def is_rank() -> bool:
    """Return True if torchrun, or another launcher with the same variables, started this process as one of several.

    Raises:
        ConfigError: The variables do not fit together, or some are missing.
    """
    return _variables() is not None


def _variables() -> tuple[int, int, str, int] | None:
    """Return the rank, the world size, and the host and port where rank 0 listens; None for a single process."""
    size, rank = environment_number("WORLD_SIZE", 1, minimum=1), environment_number("RANK")
    if rank >= size:
        raise ConfigError(
            f"RANK is {rank} and WORLD_SIZE is {size if os.environ.get('WORLD_SIZE') else 'not set'} in the "
            f"environment: ranks go from 0 to {size - 1}; correct them, or unset both to work in one process"
        )
    if size == 1:
        return None
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        raise ConfigError(
            f"{', '.join(VARIABLES)} go together in the environment, and {', '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} not set: start this with torchrun, which sets them, or unset "
            "WORLD_SIZE to work in one process"
        )
    return rank, size, os.environ["MASTER_ADDR"], environment_number("MASTER_PORT", maximum=65535)


def environment_number(name: str, default: int = 0, minimum: int = 0, maximum: int = 2**31 - 1) -> int:
    """Return the whole number in a variable of the environment, or the default if it is not set.

    Raises:
        ConfigError: It is not a whole number within the bounds.
    """
    value = os.environ.get(name) or str(default)
    if not value.isdecimal() or not minimum <= int(value) <= maximum:
        raise ConfigError(
            f"{name} is {value!r} in the environment, and must be a whole number, at least {minimum} and at most "
            f"{maximum}: correct it or unset it"
        )
    return int(value)


@dataclass
class Session:
    """The state of a rank from `join` to `leave`, and its report of a failure.

    Attributes:
        rank: The number of this process.
        size: How many processes there are.
        store: The key-value store of the rendezvous, a `torch.distributed.Store` that all ranks read and write.
        heartbeat: None until all ranks have joined.
        advice: The end of a message about a lost rank; it says how to resume, once there is a run.
        failed: True once it is known that a rank failed.
        connection_lost: True once a collective failed, which means that a rank is lost.
    """

    rank: int
    size: int
    store: Any
    heartbeat: Heartbeat | None = None
    advice: str = ": the others stop"
    failed: bool = False
    connection_lost: bool = False

    def has_failed(self) -> bool:
        """Return True if the store says that a rank has failed."""
        return bool(self.store.check([FAILURE]))

    def all_set(self, key: str) -> bool:
        """Return True if every rank has set `key` in the store."""
        return bool(self.store.check([f"{key}/{rank}" for rank in range(self.size)]))

    def report(self, store: Any, sentence: str, launcher_reports: bool = False) -> None:
        """Record a failure, which ends all ranks, and print it, unless another failure was recorded before.

        Args:
            store: A connection to the store.
            sentence: Says what happened.
            launcher_reports: True for a failure that `launch` reports, if it started the ranks.
        """
        value = json.dumps({"rank": self.rank, "sentence": sentence})
        first = store.compare_set(FAILURE, "", value) == value.encode()
        launched = os.environ.get("TORCHELASTIC_RUN_ID", "").startswith(RUN_ID_PREFIX)
        if first and not (launched and launcher_reports):
            print_failure(sentence)

    def report_lost_store(self) -> None:
        """Print, in one rank of each machine, that the store, which rank 0 or its agent hosts, cannot be reached."""
        local_rank = os.environ.get("LOCAL_RANK", "0")
        if local_rank == ("1" if local_rank == str(self.rank) else "0"):
            print_failure(f"process 0 of {self.size}, or what started it, is out of reach{self.advice}")

    def report_error(self, error: BaseException, sentence: str) -> None:
        """Report the error that ends this rank, unless another rank's failure caused it.

        Rank 0 reports an error that all ranks have. A lost connection means that another rank ended, which has reported
        its own error, or is reported as lost by the rank that watches it.
        """
        for number in (signal.SIGINT, signal.SIGTERM):  # torchrun's agent ends all ranks as soon as one has ended
            signal.signal(number, signal.SIG_IGN)
        self.connection_lost = current().is_lost_process(error)
        if self.connection_lost:
            sentence = f"the connection to the others is lost ({str(error).splitlines()[0][:200]}){self.advice}"
        if self.rank and sentence:
            sentence = f"process {self.rank} of {self.size}: {sentence}"
        try:
            wait_until(self.has_failed, SILENCE_S if self.connection_lost else SAME_ERROR_S if self.rank else 0)
            self.report(self.store, sentence)
            self.failed = True
            self.store.set(f"informed/{self.rank}", "")
            # The store may end with this process, so wait until the others know of the failure.
            wait_until(lambda: self.all_set("informed"), 2 * HEARTBEAT_S)
        except RuntimeError:  # the store is out of reach
            if self.connection_lost and not self.failed:
                self.report_lost_store()
            elif not self.failed:
                print_failure(sentence)


def print_failure(sentence: str) -> None:
    """Print why all ranks end, from any thread and even if `sys.stderr` is closed; "" if that was printed before.

    Also writes the error file, which torchrun's agent shows as the root cause; `launch` prints nothing if it exists.
    """
    with suppress(OSError):
        os.write(2, f"rgcn: {visible_text(sentence)}\n".encode() if sentence else b"")
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        message = {"message": sentence, "extraInfo": {"timestamp": str(int(time.time()))}}
        with suppress(OSError):  # on a full disk
            write_atomically(Path(file), json.dumps({"message": message}))


class RankProcess(NamedTuple):
    """The process of a rank.

    Attributes:
        machine: An id of the machine's boot and container, within which `pid` is unique; "" if unknown.
        pid: The process id.
    """

    machine: str
    pid: int

    @classmethod
    def current(cls) -> RankProcess:
        """Return this process."""
        machine = ""
        with suppress(OSError):
            machine = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
        return cls(machine, os.getpid())

    def state(self) -> str:
        """Return "running", "stopped" or "exited"; "unknown" for a process of another machine."""
        if not self.machine or self.machine != RankProcess.current().machine:
            return "unknown"
        try:
            letter = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "exited"
        return {"T": "stopped", "t": "stopped", "Z": "exited", "X": "exited"}.get(letter, "running")


class Heartbeat:
    """The heartbeat of one rank, and its watch over the next one."""

    def __init__(self, session: Session, connect: Callable[[], Any], processes: Sequence[RankProcess]) -> None:
        """Start the threads.

        Args:
            session: Of this rank.
            connect: Opens a connection to the store. One that other threads wait on would delay the heartbeat.
            processes: Those of all ranks.
        """
        self._session, self._connect, self._processes = session, connect, processes
        self._next = (session.rank + 1) % session.size
        self._exchanged, self._stopping = threading.Event(), threading.Event()
        self._seen, self._silent_s, self._last_read = b"", 0.0, time.monotonic()
        # Two threads, because a call of the store never returns if its machine has vanished.
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._beat, self._watch_store)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more heartbeats; the others expect none after LEFT."""
        self._stopping.set()
        self._exchanged.set()
        for thread in self._threads:
            thread.join(2 * HEARTBEAT_S)  # a thread that waits for a lost store is abandoned

    def _beat(self) -> None:
        store: Any = None
        while not self._session.failed:
            if self._stopping.wait(HEARTBEAT_S):
                return
            try:
                store = store or self._connect()
                self._exchange(store)
                self._exchanged.set()
            except Exception:
                store = None  # connect again; `_watch_store` ends the process if that fails for too long
        if not self._stopping.wait(GRACE_S):
            self._exit()

    def _exchange(self, store: Any) -> None:
        """Write this rank's heartbeat, read that of the next one, and report a rank that is lost."""
        session, state = self._session, self._processes[self._next].state()
        store.set(f"heartbeat/{session.rank}", str(time.time_ns()))
        seen, now = store.get(f"heartbeat/{self._next}"), time.monotonic()
        # Time for which this process was stopped does not count.
        self._silent_s = self._silent_s + min(now - self._last_read, 2 * HEARTBEAT_S) if seen == self._seen else 0.0
        self._seen, self._last_read = seen, now
        # A running process without a heartbeat is busy with something that holds Python's lock.
        is_silent = state != "running" and self._silent_s >= (3 * HEARTBEAT_S if session.connection_lost else SILENCE_S)
        if seen != LEFT and (is_silent or state == "exited"):
            lost = "is gone" if state == "exited" else f"has given no sign of life for {self._silent_s:.0f} s"
            sentence = f"process {self._next} of {session.size} {lost}{session.advice}"
            session.report(store, sentence, launcher_reports=state == "exited")
        if store.check([FAILURE]):
            store.set(f"informed/{session.rank}", "")
            session.failed = True
            self._end_stopped()

    def _watch_store(self) -> None:
        """End this process if it cannot reach the store."""
        # The second wait is for a process that was stopped, whose other thread then needs a moment.
        while self._exchanged.wait(SILENCE_S) or self._exchanged.wait(2 * HEARTBEAT_S):
            self._exchanged.clear()
            if self._stopping.is_set() or self._session.failed:
                return
        self._session.report_lost_store()
        self._end_stopped()
        self._exit()

    def _end_stopped(self) -> None:
        """Kill the stopped processes of this machine, which ignore other signals and would keep their memory."""
        for process in self._processes:
            if process.state() == "stopped":
                with suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)

    def _exit(self) -> None:
        """End this process even if its main thread waits in a collective."""
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(1)


def join() -> Placement:
    """Join the other ranks, as torchrun's variables say, and return the placement; it is `current()` from now on.

    Without these variables the process stays alone. Gloo exchanges tensors on CPUs, NCCL those on GPUs, if each rank of
    this machine has its own GPU, that of LOCAL_RANK.

    Raises:
        ConfigError: The variables or the versions of the ranks do not fit together.
        DataError: Not all ranks join in time.
    """
    variables = _variables()
    if variables is None:
        return current()
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        raise ConfigError("this PyTorch was built without torch.distributed: install another build, or use one process")
    rank, size, host, port = variables
    seconds = environment_number("RGCN_JOIN_SECONDS", JOIN_S)
    advice = f"in {seconds:.0f} s (RGCN_JOIN_SECONDS): check that all were started and can reach {host}:{port}"
    hosts_store = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = _open_store(host, port, seconds, hosts_store)
    except RuntimeError as error:
        raise DataError(f"process 0 of {size} did not join {advice} ({str(error).splitlines()[0]})") from error
    from rgcn.distributed.placements import DataParallel

    session = Session(rank, size, store)
    use(DataParallel(rank, size, session=session))
    store.set(f"heartbeat/{rank}", "")
    versions = {"rgcn": __version__, "torch": str(torch.__version__)}
    store.set(f"process/{rank}", json.dumps({"process": RankProcess.current(), "versions": versions}))
    wait_until(lambda: session.all_set("process") or session.has_failed(), seconds)
    if not session.all_set("process"):
        missing = [each for each in range(size) if not store.check([f"process/{each}"])]
        ranks = ", ".join(map(str, missing[:5])) + (" and more" if len(missing) > 5 else "")
        raise DataError(f"{size - len(missing)} of {size} processes joined {advice}; process {ranks} did not")
    reports = [json.loads(store.get(f"process/{each}")) for each in range(size)]
    processes = [RankProcess(*each["process"]) for each in reports]
    session.heartbeat = Heartbeat(session, partial(_open_store, host, port, 10), processes)
    require_equal_values("versions", [each["versions"] for each in reports])
    backend = "gloo"
    if torch.cuda.is_available() and has_gpu_per_process():
        torch.cuda.set_device(environment_number("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)
    return current()


def _open_store(host: str, port: int, seconds: float, is_host: bool = False) -> Any:
    """Connect to the store of the rendezvous, or host it; its keys are new after torchrun restarts the ranks."""
    dist: Any = import_module("torch.distributed")  # some of its documented functions have no types
    timeout, options = timedelta(seconds=seconds), {"wait_for_workers": False, "multi_tenant": True}
    store = dist.TCPStore(host, port, None, is_host, timeout, **options)
    return dist.PrefixStore(f"rgcn/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def leave() -> None:
    """Leave the group once all ranks are done; then this process is alone."""
    session = current().session
    if session is None:
        return
    import torch.distributed as dist

    use(LOCAL)
    store, size, seconds = session.store, session.size, COLLECTIVE_TIMEOUT.total_seconds()
    with suppress(RuntimeError):  # the process that hosted the store may have ended
        store.add("finished", 1)
        wait_until(lambda: store.add("finished", 0) == size or session.has_failed(), seconds)
    if session.heartbeat is not None:
        session.heartbeat.stop()
    with suppress(RuntimeError):
        store.set(f"heartbeat/{session.rank}", LEFT)
    if dist.is_initialized():
        dist.destroy_process_group()


def has_gpu_per_process() -> bool:
    """Return True if every process of this machine can have its own GPU.

    Raises:
        DataError: NCCL would lack shared memory.
    """
    import torch

    ranks = environment_number("LOCAL_WORLD_SIZE", 1)
    if ranks > torch.cuda.device_count():
        return False
    shared = Path("/dev/shm")
    if ranks > 1 and shared.is_dir() and os.environ.get("NCCL_SHM_DISABLE") != "1":
        free, needed = shutil.disk_usage(shared).free, ranks * NCCL_SEGMENT
        if free < needed and not torch.cuda.can_device_access_peer(0, 1):
            raise DataError(
                f"NCCL takes about {needed >> 20} MiB of shared memory for {ranks} processes, and {shared} has "
                f"{free >> 20} MiB free: give the container more (--shm-size=1g), or set NCCL_SHM_DISABLE=1"
            )
    return True


def wait_until(ready: Callable[[], bool], seconds: float) -> bool:
    """Wait until `ready` returns True; return False after that time. Ctrl-C interrupts it, unlike `Store.wait`."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
    return True


def require_equal_values(name: str, values: Sequence[Mapping[str, Any]]) -> None:
    """Raise ConfigError if a rank's mapping differs from that of rank 0; `name` says what the mappings are."""
    for rank, other in enumerate(values):
        keys = [key for key in {**values[0], **other} if values[0].get(key) != other.get(key)]
        if keys:
            text = "; ".join(f"{key} {other.get(key)!r} instead of {values[0].get(key)!r}" for key in keys[:5])
            raise ConfigError(f"process {rank} of {len(values)} has other {name} than process 0: {text}")
