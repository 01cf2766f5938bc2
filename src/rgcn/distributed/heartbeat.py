"""The heartbeat of every rank, by which the others notice that it is lost.

torchrun's agent ends the ranks of its machine when one of them exits, and a collective fails where a connection is
closed. Nothing in PyTorch notices a rank that is stopped, or a machine that vanishes, before a collective's time-out;
that is hours here, because one rank may write a large file while the others wait. So a thread of each rank writes to
the store of the rendezvous every second and reads what the next rank wrote. It does so however long a step takes:
PyTorch and our loops release Python's lock.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from rgcn.distributed.rendezvous import Session

# All ranks end within 30 s: a silent one is noticed after SILENCE_S and two heartbeats, the others read of it with
# their next heartbeat, and then have GRACE_S.
HEARTBEAT_S = 1.0
SILENCE_S = 20.0  # without a heartbeat: lost
GRACE_S = 6.0  # for a rank to end by itself once another has failed
LEFT = b"left"  # the last heartbeat of a rank that has finished
FAILURE = "failure"  # where the store has the first failure


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
