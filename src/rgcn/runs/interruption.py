"""Ctrl-C and SIGTERM while training: finish the step, save, and leave with the code the shell expects."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

WATCHED = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Within `with`, the first signal is only noted in `received`; a second Ctrl-C stops at once.

    at_once: where nothing is under way that must not be cut short, the first signal raises KeyboardInterrupt too.

    Signals reach only the main thread: elsewhere nothing is watched, and whoever owns the main thread decides.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self.at_once = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            # What whoever started us wants ignored, `nohup` or a shell's background for instance, stays ignored.
            heard = [number for number in WATCHED if signal.getsignal(number) != signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *failure: object) -> None:
        for number, handler in self._before.items():
            # None stands for a handler that was not set from Python and cannot be set again from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        again = self.received is not None and number == signal.SIGINT
        self.received = self.received or signal.Signals(number)
        if again or self.at_once:
            raise KeyboardInterrupt
