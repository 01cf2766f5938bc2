"""Measurements in processes of their own: no side inherits the other's memory, caches or thread pools."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from typing import Any

from rgcn.bench.child import Job, measure
from rgcn.bench.floor import Speeds
from rgcn.errors import ConfigError, RgcnError


def measure_apart(job: Job) -> dict[str, Any]:
    """`child.measure` in a new process; one that dies is reported as {"failed": why}."""
    patience = 600 + 10 * job.budget + 10 * (job.max_seconds or 0)
    try:
        return _run(job.to_json(), patience)
    except ChildError as error:
        return {"failed": str(error)}


def speeds_apart(device: str) -> Speeds:
    """What a device can do, measured in a process that ends again."""
    return Speeds(**_run(json.dumps({"speeds": device}), 600))


def measure_here(job: Job) -> dict[str, Any]:
    """`child.measure` in this process: saves the start of a new one, and is fair on a GPU, whose memory PyTorch counts.

    No limit is set on memory, which would outlast the measurement.
    """
    if not job.device.startswith("cuda"):
        raise ConfigError("only a GPU can be measured in one process: a CPU's memory is the process's own")
    return measure(replace(job, max_bytes=None))


class ChildError(RgcnError):
    """A measuring process ended without a result."""


def _run(argument: str, patience: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "rgcn.bench.child", argument]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        raise ChildError(f"ran out of time: no result after {patience:.0f} s") from None
    if done.returncode == 0:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found
    raise ChildError(_why(done.returncode, done.stderr))


def _why(code: int, stderr: str) -> str:
    """
    >>> _why(-9, "")
    'ran out of memory: the system ended the process'
    """
    if code == -signal.SIGKILL:
        return "ran out of memory: the system ended the process"
    last = stderr.strip().splitlines()[-1] if stderr.strip() else f"exit status {code}"
    return f"ran out of memory: {last}" if "bad_alloc" in stderr or "MemoryError" in last else last
