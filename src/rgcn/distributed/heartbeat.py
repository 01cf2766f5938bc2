"""Signs of life of several processes: where one is gone, the others end instead of waiting for it.

A thread of each writes a number every two seconds where all can read it, and looks at the next one's: so each is
watched by one, however many there are. It beats while its process computes, however long a step takes: PyTorch and our
loops let go of Python's lock. Should something else hold it, who looks from the same machine sees that it lives.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

BEAT_S = 2.0
SILENCE_S = 25.0  # without a sign of life: gone
GRACE_S = 8.0  # for a process to end by itself once another has failed
LEFT = b"left"


def place() -> str:
    """Where numbers of processes mean the same: this machine since it was started, and in it this container."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(Path("/proc/self/ns/pid").readlink())
    return ""


def state_of(pid: int) -> str:
    """A process of this machine as its system has it: R, S, D: alive; T: stopped; "" and Z: gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def say(words: str) -> None:
    """A line on the real standard error, whatever became of Python's: from any thread, and at once."""
    with suppress(OSError):
        os.write(2, f"rgcn: {words}\n".encode())


class Heartbeat:
    """The beat of process `rank` of `size`, and its eye on the next one.

    connect    gives a line to the store of its own: one that waits for others would hold up the beat
    neighbor   {"place", "pid"} of the next process
    advice     asked for what to do where a process is gone
    outspoken  whether to say that a process of this machine is gone: whoever started all of them may know more
    """

    def __init__(
        self,
        rank: int,
        size: int,
        connect: Callable[[], Any],
        neighbor: dict[str, Any],
        advice: Callable[[], str],
        outspoken: bool,
    ) -> None:
        self.rank, self.size, self.next = rank, size, (rank + 1) % size
        self._connect, self._advice, self._outspoken = connect, advice, outspoken
        self._pid = neighbor["pid"] if neighbor["place"] and neighbor["place"] == place() else None
        self._stopped, self._exchanges, self._failed = threading.Event(), 0, False
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._talk, self._watch)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """No more beats are due; nobody misses them once the store says that this process left."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(BEAT_S)  # one that hangs on a lost store is left behind

    def _talk(self) -> None:
        store: Any = None
        seen, silent, before = b"", 0.0, time.monotonic()
        while not self._stopped.wait(BEAT_S):
            try:
                store = store or self._connect()
                store.set(f"beat/{self.rank}", str(time.time_ns()))
                found, self._failed = store.get(f"beat/{self.next}"), store.check(["failed"])
            except Exception:
                store = None  # once more, by a new line; `_watch` ends what lasts
                continue
            # While this process itself was stopped, nobody else was silent.
            passed, before = min(time.monotonic() - before, 2 * BEAT_S), time.monotonic()
            silent = silent + passed if found == seen != LEFT else 0.0
            seen, self._exchanges = found, self._exchanges + 1
            if not self._failed and seen != LEFT:
                self._judge(store, silent)

    def _judge(self, store: Any, silent: float) -> None:
        """Tell all where the next process is gone."""
        state = "" if self._pid is None else state_of(self._pid)
        gone = self._pid is not None and state in ("", "Z", "X")
        if gone and store.get(f"beat/{self.next}") == LEFT:
            return
        if not gone and (silent < SILENCE_S or state not in ("", "T", "t")):
            return
        who = f"process {self.next} of {self.size}"
        words = f"{who} is gone" if gone else f"{who} has given no sign of life for {silent:.0f} s"
        store.set("failed", json.dumps({"rank": self.next, "words": words}))
        if self._outspoken:
            say(f"{words}: the others stop{self._advice()}")
        elif not gone:
            say(f"{words}, and is ended")
        store.set("told", "")
        if self._pid is not None and not gone:
            with suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)  # stopped: it would keep its memory for as long as it likes

    def _watch(self) -> None:
        """End this process where the store is out of reach, or where it hangs although another has failed."""
        unheard, exchanges, before, failed = 0.0, 0, time.monotonic(), 0.0
        while not self._stopped.wait(BEAT_S / 2):
            passed, before = min(time.monotonic() - before, BEAT_S), time.monotonic()
            unheard = unheard + passed if exchanges == self._exchanges else 0.0
            exchanges, failed = self._exchanges, failed + passed if self._failed else 0.0
            if unheard > SILENCE_S:
                say(
                    f"process {self.rank} of {self.size} has heard of no other for {unheard:.0f} s: what started them, "
                    f"or its machine, is gone{self._advice()}"
                )
            elif failed <= GRACE_S:
                continue
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(1)
