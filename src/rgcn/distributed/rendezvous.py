"""Several processes become one group, agree on what they are to do, and part; and who says which error ended them.

Words travel as JSON, never pickled; through the store of the rendezvous where the group is not, or no longer, whole.
"""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from rgcn.distributed.heartbeat import GRACE_S, LEFT, Heartbeat, place
from rgcn.errors import ConfigError, DataError
from rgcn.placement import LOCAL, Placement, current, use
from rgcn.system.atomic_files import TEMPORARY_PREFIX
from rgcn.version import __version__

VARIABLES = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT")  # set by torchrun
JOIN_S = 60  # that all take to come; RGCN_JOIN_SECONDS changes it
# Nobody waits so long for a process that is gone, which others notice sooner; one may write or read for hours.
LONGEST_WAIT = timedelta(hours=6)
SIGHT_S = 10.0
SAME_WORDS_S = 2.0  # that others may be later with the same error
NCCL_SEGMENT = 2 * 9_637_888  # bytes of shared memory that NCCL takes for a process: two channels of its usual buffers
OUR_RUNS = "rgcn-"  # how runs of `--processes` are called where torchrun gives each a name
ADVICE = "`rgcn resume {}` goes on from the last checkpoint"
_heartbeat: Heartbeat | None = None
_advice = ""


def invited() -> bool:
    """True if torchrun, or whoever sets the same variables, started this process as one of several.

    Raises:
        ConfigError: The variables do not fit together, or some are missing.
    """
    _, size = _rank_and_size()
    if size > 1:
        _address()
    return size > 1


def _rank_and_size() -> tuple[int, int]:
    size, rank = _number("WORLD_SIZE", 1, least=1), _number("RANK")
    if rank >= size:
        given = size if os.environ.get("WORLD_SIZE") else "not set"
        words = f"RANK is {rank} and WORLD_SIZE is {given} in the environment: ranks go from 0 to {size - 1}"
        raise ConfigError(f"{words}; correct them, or unset both to work in one process")
    return rank, size


def _address() -> tuple[str, int]:
    """Host and port where process 0 waits for the others."""
    missing = [name for name in VARIABLES if not os.environ.get(name)]
    if missing:
        words = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set"
        raise ConfigError(
            f"{', '.join(VARIABLES)} go together in the environment, and {words}: start this with torchrun, which sets "
            "them, or unset WORLD_SIZE to work in one process"
        )
    return os.environ["MASTER_ADDR"], _number("MASTER_PORT", most=65535)


def _number(name: str, otherwise: int = 0, least: int = 0, most: int | None = None) -> int:
    """The whole number that a variable of the environment holds; `otherwise` where it is not set."""
    words = os.environ.get(name) or str(otherwise)
    if not words.isdecimal() or int(words) < least or (most is not None and int(words) > most):
        bounds = f"at least {least}" + ("" if most is None else f" and at most {most}")
        raise ConfigError(
            f"{name} is {words!r} in the environment, and must be a whole number, {bounds}: correct it or unset it"
        )
    return int(words)


def join() -> Placement:
    """Become one of the processes that torchrun's variables name; an error where not all come, or they do not fit.

    Without these variables the process works alone, as before.

    Numbers on CPUs travel by gloo, those on GPUs by NCCL, where each process here has a GPU of its own: LOCAL_RANK's.
    """
    global _heartbeat
    if not {"WORLD_SIZE", "RANK", "MASTER_ADDR"} & os.environ.keys():  # started without torchrun: there are no others
        return current()
    (rank, size), address = _rank_and_size(), _address()
    if size == 1:
        return current()
    import torch

    dist: Any = import_module("torch.distributed")  # some of what it documents has no types
    if not dist.is_available():
        raise ConfigError("this PyTorch was built without torch.distributed: install another, or use one process")
    seconds = _number("RGCN_JOIN_SECONDS", JOIN_S)
    advice = f"in {seconds:.0f} s (RGCN_JOIN_SECONDS): see that all were started, and reach {address[0]}:{address[1]}"
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=timedelta(seconds=seconds)))
    except (RuntimeError, ValueError) as error:
        count = re.search(r"(\d+)/\d+ clients joined", str(error))
        came = f"{count[1]} of {size} processes came" if count else f"process 0 of {size} did not come"
        raise DataError(f"{came} {advice}") from error
    # What torchrun starts again after a failure finds the words of its forerunners in the same store.
    name = f"rgcn/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    store = dist.PrefixStore(name, store)
    from rgcn.distributed.placements import DataParallel

    use(DataParallel(rank, size, store=store))
    store.set(f"beat/{rank}", "")
    versions = {"rgcn": __version__, "torch": str(torch.__version__)}
    store.set(f"here/{rank}", json.dumps({"place": place(), "pid": os.getpid(), "versions": versions}))
    if not _until(lambda: store.check([f"here/{each}" for each in range(size)]), seconds):
        missing = [each for each in range(size) if not store.check([f"here/{each}"])]
        words = ", ".join(map(str, missing[:5])) + (" and more" if len(missing) > 5 else "")
        raise DataError(f"{size - len(missing)} of {size} processes came, and not process {words}, {advice}")
    everybody = [json.loads(store.get(f"here/{each}")) for each in range(size)]

    def connect() -> Any:
        line = dist.TCPStore(*address, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=10))
        return dist.PrefixStore(name, line)

    ours = os.environ.get("TORCHELASTIC_RUN_ID", "").startswith(OUR_RUNS)
    neighbor = everybody[(rank + 1) % size]
    _heartbeat = Heartbeat(rank, size, connect, neighbor, lambda: _advice, outspoken=not ours)
    refuse_differences("versions", [each["versions"] for each in everybody])
    backend = "gloo"
    if torch.cuda.is_available() and _a_gpu_for_each():
        torch.cuda.set_device(_number("LOCAL_RANK", 0))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    return current()


def _store() -> Any:
    """The store of the processes that this one has joined; None for one process."""
    return getattr(current(), "store", None)


def leave() -> None:
    """Part from the others, once their work is done too."""
    global _heartbeat
    placement, store = current(), _store()
    if store is None:
        return
    import torch.distributed as dist

    use(LOCAL)
    with suppress(RuntimeError):  # the store may have gone with whoever held it
        store.add("leaving", 1)
        _until(
            lambda: store.add("leaving", 0) == placement.size or store.check(["failed"]), LONGEST_WAIT.total_seconds()
        )
    if _heartbeat is not None:
        _heartbeat.stop()
    _heartbeat = None
    with suppress(RuntimeError):
        store.set(f"beat/{placement.rank}", LEFT)
    if dist.is_initialized():
        dist.destroy_process_group()


def refuse_shared_gpus(device: str) -> None:
    """An error where processes would have to compute on a device together."""
    import torch

    here, gpus = _number("LOCAL_WORLD_SIZE", 1), torch.cuda.device_count()
    if 0 < gpus < here:
        raise ConfigError(f"NCCL wants a GPU for each process: here are {here}, and {gpus} GPU; or take --device cpu")
    if ":" in device:
        raise ConfigError(f"each process computes on a GPU of its own: ask for cuda, not for {device}")


def _a_gpu_for_each() -> bool:
    """Whether every process of this machine can have a GPU; an error where NCCL would lack shared memory for them."""
    import torch

    here = _number("LOCAL_WORLD_SIZE", 1)
    if here > torch.cuda.device_count():
        return False
    shared = Path("/dev/shm")
    if here > 1 and shared.is_dir() and os.environ.get("NCCL_SHM_DISABLE") != "1":
        free, needed = shutil.disk_usage(shared).free, here * NCCL_SEGMENT
        if free < needed and not torch.cuda.can_device_access_peer(0, 1):
            raise DataError(
                f"NCCL takes about {needed >> 20} MiB of shared memory for {here} processes, and {shared} has "
                f"{free >> 20} MiB free: give the container more (--shm-size=1g), or set NCCL_SHM_DISABLE=1"
            )
    return True


def _until(ready: Callable[[], bool], seconds: float) -> bool:
    """Look until it is so, at most so long. Not `Store.wait`, during which Ctrl-C would not be heard."""
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


def require_shared_folder(placement: Placement, folder: Path) -> None:
    """Raise DataError where not all processes see the folder, made if need be. Errors then advise to resume."""
    global _advice
    token = folder / placement.from_main(lambda: f"{TEMPORARY_PREFIX}{uuid4().hex}")
    if placement.is_main:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            token.touch()
        except OSError as error:
            raise DataError(f"cannot write in {folder}: {error.strerror}; choose another folder") from error
    placement.barrier()  # only now there is something to see, for which shared storage may need a moment
    seen = placement.gather_values(_until(token.exists, SIGHT_S))
    if placement.is_main:
        token.unlink(missing_ok=True)
    if not all(seen):
        blind = ", ".join(str(rank) for rank, found in enumerate(seen) if not found)
        raise DataError(
            f"process {blind} of {placement.size} does not see {folder}: all must see the run's folder at the same "
            "place, on storage that they share (--out)"
        )
    _advice = f"; {ADVICE.format(folder)}"


def last_words(error: BaseException, words: str) -> str | None:
    """What this process has to say of an error that ends it; None: nothing, another says it, or what caused it.

    An error that all meet is said by the first of them. One that comes of another's end is not worth a word.
    """
    placement, store = current(), _store()
    if store is None:
        return words
    for number in (signal.SIGINT, signal.SIGTERM):  # by which whoever started us ends us as soon as another has ended
        signal.signal(number, signal.SIG_IGN)
    rank, others = placement.rank, {0, placement.rank - 1}  # of which one says what all met
    try:
        if placement.is_lost_process(error):
            if _until(lambda: store.check(["failed"]), GRACE_S):
                _until(lambda: store.check(["told"]), GRACE_S)
                return None
            words = f"the others are out of reach ({str(error).splitlines()[0][:200]}){_advice}"
        store.set(f"words/{rank}", words)
        store.set("failed", json.dumps({"rank": rank, "words": words}))

        def said() -> bool:  # perhaps with the number of the process that it was heard from
            theirs = [store.get(f"words/{each}").decode() for each in others if store.check([f"words/{each}"])]
            return any(words in one or one in words for one in theirs)

        if rank and _until(said, SAME_WORDS_S):
            return None
        return words if placement.is_main else f"process {rank} of {placement.size}: {words}"
    except RuntimeError:  # the store went with the first process, which has said why
        return None


def told() -> None:
    """Let the others know that what ended all has been said."""
    if (store := _store()) is not None:
        with suppress(RuntimeError):
            store.set("told", "")
