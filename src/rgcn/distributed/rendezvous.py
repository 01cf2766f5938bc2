"""Several processes become the ranks of one group, agree on what they are to do, and leave; or report a failure.

What they exchange is JSON, never pickled. Where collectives do not work yet, or no longer, they use the store of the
rendezvous.

torchrun's agent ends the ranks of its machine when one of them exits, and a collective fails where a connection is
closed. Nothing in PyTorch notices a rank that is stopped, or a machine that vanishes, before a collective's time-out;
that is hours here, because one rank may write a large file while the others wait. So a thread of each rank writes its
heartbeat to the store every second and reads that of the next rank. It does so however long a step takes: PyTorch and
our loops release Python's lock.
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
from rgcn.system.formatting import shown
from rgcn.version import __version__

VARIABLES = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun
JOIN_S = 60  # for all ranks to join; RGCN_JOIN_SECONDS changes it
# Of collectives. Heartbeats notice a lost rank sooner; one rank may write or read for hours while the others wait.
COLLECTIVE_TIMEOUT = timedelta(hours=6)
SAME_ERROR_S = 2.0  # for rank 0 to report an error that all ranks meet
NCCL_SEGMENT = 2 * 9_637_888  # bytes of shared memory that NCCL takes for a process: two channels of its usual buffers
# All ranks end within 30 s: a silent one is noticed after SILENCE_S and two heartbeats, the others read of it with
# their next heartbeat, and then have GRACE_S.
HEARTBEAT_S = 1.0
SILENCE_S = 20.0  # without a heartbeat: lost
GRACE_S = 6.0  # for a rank to end by itself once another has failed
LEFT = b"left"  # the last heartbeat of a rank that has finished
FAILURE = "failure"  # where the store has the first failure
RUN_ID_PREFIX = "rgcn-"  # of the names that `launch` gives to torchrun's runs
RESUME_ADVICE = "`rgcn resume {}` goes on from the last checkpoint"


def is_rank() -> bool:
    """True if torchrun, or whoever sets the same variables, started this process as one of several.

    Raises:
        ConfigError: The variables do not fit together, or some are missing.
    """
    return _variables() is not None


def _variables() -> tuple[int, int, str, int] | None:
    """The rank of this process, the world size, and host and port where rank 0 listens; None for one process."""
    size, rank = number_of("WORLD_SIZE", 1, least=1), number_of("RANK")
    if rank >= size:
        given = size if os.environ.get("WORLD_SIZE") else "not set"
        words = f"RANK is {rank} and WORLD_SIZE is {given} in the environment: ranks go from 0 to {size - 1}"
        raise ConfigError(f"{words}; correct them, or unset both to work in one process")
    if size == 1:
        return None
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        words = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        raise ConfigError(
            f"{', '.join(VARIABLES)} go together in the environment, and {words}: start this with torchrun, which sets "
            "them, or unset WORLD_SIZE to work in one process"
        )
    return rank, size, os.environ["MASTER_ADDR"], number_of("MASTER_PORT", most=65535)


def number_of(name: str, otherwise: int = 0, least: int = 0, most: int = 2**31 - 1) -> int:
    """The whole number that a variable of the environment holds; `otherwise` where it is not set."""
    value = os.environ.get(name) or str(otherwise)
    if not value.isdecimal() or not least <= int(value) <= most:
        bounds = f"at least {least} and at most {most}"
        raise ConfigError(
            f"{name} is {value!r} in the environment, and must be a whole number, {bounds}: correct it or unset it"
        )
    return int(value)


@dataclass
class Session:
    """What a rank shares with the others from `join` to `leave`, and its report of a failure.

    store            of the rendezvous: a key-value store that all ranks read and write (`torch.distributed.Store`)
    heartbeat        None until all ranks have joined
    advice           the end of a sentence on a lost rank; it says how to resume, once there is a run
    failed           True once it is known that some rank failed
    connection_lost  True once a collective failed, so that some rank must be lost
    """

    rank: int
    size: int
    store: Any
    heartbeat: Heartbeat | None = None
    advice: str = ": the others stop"
    failed: bool = False
    connection_lost: bool = False

    def has_failed(self) -> bool:
        """True if the store says that some rank has failed."""
        return bool(self.store.check([FAILURE]))

    def all_set(self, key: str) -> bool:
        """True if every rank has set its key in the store."""
        return bool(self.store.check([f"{key}/{rank}" for rank in range(self.size)]))

    def report(self, store: Any, sentence: str, launcher_reports: bool = False) -> None:
        """Record a failure, of which all ranks read and end, and print it; not where another was recorded before.

        launcher_reports  True for what `launch` reports, if it started the ranks
        """
        value = json.dumps({"rank": self.rank, "sentence": sentence})
        first = store.compare_set(FAILURE, "", value) == value.encode()
        launched = os.environ.get("TORCHELASTIC_RUN_ID", "").startswith(RUN_ID_PREFIX)
        if first and not (launched and launcher_reports):
            print_failure(sentence)

    def report_lost_store(self) -> None:
        """Print that the store cannot be reached, which rank 0 or its agent hosts; in one rank of each machine."""
        local_rank = os.environ.get("LOCAL_RANK", "0")
        if local_rank == ("1" if local_rank == str(self.rank) else "0"):
            print_failure(f"process 0 of {self.size}, or what started it, is out of reach{self.advice}")

    def report_error(self, error: BaseException, sentence: str) -> None:
        """Report the error that ends this rank, unless it is the consequence of another rank's failure.

        Rank 0 reports an error that all ranks meet. A lost connection is the consequence of the end of another rank,
        which either reported its own error, or is reported as lost by the rank that watches it.
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
            # The store may end with this process, before the others have read of the failure.
            wait_until(lambda: self.all_set("informed"), 2 * HEARTBEAT_S)
        except RuntimeError:  # the store is out of reach
            if self.connection_lost and not self.failed:
                self.report_lost_store()
            elif not self.failed:
                print_failure(sentence)


def print_failure(sentence: str) -> None:
    """Print why all ranks end, from any thread and whatever became of `sys.stderr`; "" if it is printed already.

    torchrun's agent shows the error file as the root cause, and `launch` prints nothing where there is one.
    """
    with suppress(OSError):
        os.write(2, f"rgcn: {shown(sentence)}\n".encode() if sentence else b"")
    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        message = {"message": sentence, "extraInfo": {"timestamp": str(int(time.time()))}}
        with suppress(OSError):  # on a full disk
            write_atomically(Path(file), json.dumps({"message": message}))


class RankProcess(NamedTuple):
    """The process of a rank.

    machine  the machine since it was started, and the container in it, within which `pid` is unique; "" if unknown
    """

    machine: str
    pid: int

    @classmethod
    def current(cls) -> RankProcess:
        machine = ""
        with suppress(OSError):
            machine = Path("/proc/sys/kernel/random/boot_id").read_text() + str(Path("/proc/self/ns/pid").readlink())
        return cls(machine, os.getpid())

    def state(self) -> str:
        """What the system says of it: "running", "stopped" or "exited"; "unknown" from another machine."""
        if not self.machine or self.machine != RankProcess.current().machine:
            return "unknown"
        try:
            letter = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return "exited"
        return {"T": "stopped", "t": "stopped", "Z": "exited", "X": "exited"}.get(letter, "running")


class Heartbeat:
    """The heartbeat of one rank, and its watch over the next one.

    connect    opens a connection to the store: one that other threads wait on would delay the heartbeat
    processes  of all ranks
    """

    def __init__(self, session: Session, connect: Callable[[], Any], processes: Sequence[RankProcess]) -> None:
        self._session, self._connect, self._processes = session, connect, processes
        self._next = (session.rank + 1) % session.size
        self._exchanged, self._stopping = threading.Event(), threading.Event()
        self._seen, self._silent_s, self._last_read = b"", 0.0, time.monotonic()
        # Two threads, because a call of the store never returns where its machine has vanished.
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._beat, self._watch_store)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send no more heartbeats. The others expect none after LEFT."""
        self._stopping.set()
        self._exchanged.set()
        for thread in self._threads:
            thread.join(2 * HEARTBEAT_S)  # one that waits for a lost store is left behind

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
                store = None  # try a new connection; `_watch_store` ends the process where none is possible
        if not self._stopping.wait(GRACE_S):
            self._exit()

    def _exchange(self, store: Any) -> None:
        """Write this rank's heartbeat, read that of the next one, and report a rank that is lost."""
        session, state = self._session, self._processes[self._next].state()
        store.set(f"heartbeat/{session.rank}", str(time.time_ns()))
        seen, now = store.get(f"heartbeat/{self._next}"), time.monotonic()
        # While this process was itself stopped, no other one was silent.
        self._silent_s = self._silent_s + min(now - self._last_read, 2 * HEARTBEAT_S) if seen == self._seen else 0.0
        self._seen, self._last_read = seen, now
        # A process that runs without a heartbeat is busy with something that holds Python's lock.
        silent = state != "running" and self._silent_s >= (3 * HEARTBEAT_S if session.connection_lost else SILENCE_S)
        if seen != LEFT and (silent or state == "exited"):
            lost = "is gone" if state == "exited" else f"has given no sign of life for {self._silent_s:.0f} s"
            sentence = f"process {self._next} of {session.size} {lost}{session.advice}"
            session.report(store, sentence, launcher_reports=state == "exited")
        if store.check([FAILURE]):
            store.set(f"informed/{session.rank}", "")
            session.failed = True
            self._end_stopped()

    def _watch_store(self) -> None:
        """End this process where it cannot reach the store."""
        # The second wait is for a process that was itself stopped, whose other thread then needs a moment.
        while self._exchanged.wait(SILENCE_S) or self._exchanged.wait(2 * HEARTBEAT_S):
            self._exchanged.clear()
            if self._stopping.is_set() or self._session.failed:
                return
        self._session.report_lost_store()
        self._end_stopped()
        self._exit()

    def _end_stopped(self) -> None:
        """End the stopped processes of this machine, which obey no other signal and would keep their memory."""
        for process in self._processes:
            if process.state() == "stopped":
                with suppress(OSError):
                    os.kill(process.pid, signal.SIGKILL)

    def _exit(self) -> None:
        """End this process although its main thread may wait in a collective."""
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(1)


def join() -> Placement:
    """Become one of the ranks that torchrun's variables name; an error where not all join, or they do not fit.

    Without these variables the process works alone, as before.

    Tensors on CPUs are exchanged by gloo, those on GPUs by NCCL, where each rank of this machine has a GPU of its own:
    LOCAL_RANK's.
    """
    variables = _variables()
    if variables is None:
        return current()
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        raise ConfigError("this PyTorch was built without torch.distributed: install another, or use one process")
    rank, size, host, port = variables
    seconds = number_of("RGCN_JOIN_SECONDS", JOIN_S)
    advice = f"in {seconds:.0f} s (RGCN_JOIN_SECONDS): see that all were started, and reach {host}:{port}"
    hosts_store = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        store = _open_store(host, port, seconds, hosts_store)
    except RuntimeError as error:
        raise DataError(f"process 0 of {size} did not come {advice} ({str(error).splitlines()[0]})") from error
    from rgcn.distributed.placements import DataParallel

    session = Session(rank, size, store)
    use(DataParallel(rank, size, session=session))
    store.set(f"heartbeat/{rank}", "")
    versions = {"rgcn": __version__, "torch": str(torch.__version__)}
    store.set(f"process/{rank}", json.dumps({"process": RankProcess.current(), "versions": versions}))
    wait_until(lambda: session.all_set("process") or session.has_failed(), seconds)
    if not session.all_set("process"):
        missing = [each for each in range(size) if not store.check([f"process/{each}"])]
        words = ", ".join(map(str, missing[:5])) + (" and more" if len(missing) > 5 else "")
        raise DataError(f"{size - len(missing)} of {size} processes came {advice}; process {words} did not")
    everybody = [json.loads(store.get(f"process/{each}")) for each in range(size)]
    processes = [RankProcess(*each["process"]) for each in everybody]
    session.heartbeat = Heartbeat(session, partial(_open_store, host, port, 10), processes)
    refuse_differences("versions", [each["versions"] for each in everybody])
    backend = "gloo"
    if torch.cuda.is_available() and a_gpu_for_each():
        torch.cuda.set_device(number_of("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)
    return current()


def _open_store(host: str, port: int, seconds: float, is_host: bool = False) -> Any:
    """Connect to the store of the rendezvous, or host it; it is empty again after torchrun restarts the ranks."""
    dist: Any = import_module("torch.distributed")  # some of what it documents has no types
    timeout, options = timedelta(seconds=seconds), {"wait_for_workers": False, "multi_tenant": True}
    store = dist.TCPStore(host, port, None, is_host, timeout, **options)
    return dist.PrefixStore(f"rgcn/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def leave() -> None:
    """Leave the group, once the work of all ranks is done."""
    session = current().session
    if session is None:
        return
    import torch.distributed as dist

    use(LOCAL)
    store, size, seconds = session.store, session.size, COLLECTIVE_TIMEOUT.total_seconds()
    with suppress(RuntimeError):  # the store may have gone with whoever hosted it
        store.add("finished", 1)
        wait_until(lambda: store.add("finished", 0) == size or session.has_failed(), seconds)
    if session.heartbeat is not None:
        session.heartbeat.stop()
    with suppress(RuntimeError):
        store.set(f"heartbeat/{session.rank}", LEFT)
    if dist.is_initialized():
        dist.destroy_process_group()


def a_gpu_for_each() -> bool:
    """Whether every process of this machine can have a GPU; an error where NCCL would lack shared memory for them."""
    import torch

    ranks = number_of("LOCAL_WORLD_SIZE", 1)
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
    """Wait until something is so; False after that time. Unlike `Store.wait`, Ctrl-C can interrupt this."""
    deadline, pause = time.monotonic() + seconds, 0.002
    while not ready():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
    return True


def refuse_differences(name: str, everybody: Sequence[Mapping[str, Any]]) -> None:
    for rank, theirs in enumerate(everybody):
        keys = [key for key in {**everybody[0], **theirs} if everybody[0].get(key) != theirs.get(key)]
        if keys:
            words = "; ".join(f"{key} {theirs.get(key)!r} instead of {everybody[0].get(key)!r}" for key in keys[:5])
            raise ConfigError(f"process {rank} of {len(everybody)} has other {name} than process 0: {words}")
