"""One of two processes that exchange messages; `test_rendezvous` starts it.

python tests/distributed/joined_together.py FOLDER PORTS     with RANK and WORLD_SIZE; writes FOLDER/<rank>.json
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import rgcn
from rgcn.distributed import placements, rendezvous
from rgcn.errors import RgcnError
from rgcn.placement import current


def words_of(ask) -> str | None:
    try:
        ask()
    except RgcnError as error:
        return f"{type(error).__name__}: {error}"
    return None


def main(folder: Path, ports: list[str]) -> None:
    rank, found = int(os.environ["RANK"]), {}
    rendezvous.HEARTBEAT_S = 0.2
    os.environ["MASTER_PORT"] = ports[0]
    assert rendezvous.is_rank()
    placement = rendezvous.join()
    assert current() is placement
    assert placement.rank == rank
    found["threads"] = threading.active_count()
    found["said"] = placement.gather_values({"rank": rank})
    found["chosen"] = placement.from_main(lambda: ["by", rank])
    found["any"] = placement.any(rank == 1, False)
    found["same"] = words_of(lambda: placement.require_same("settings", {"epochs": 3}))
    found["other settings"] = words_of(lambda: placement.require_same("settings", {"epochs": 3 + rank, "seed": 0}))
    found["other data"] = words_of(lambda: placement.require_same("data", {"fingerprint": "ab"[rank]}))
    found["seen"] = words_of(lambda: placement.require_shared_folder(folder / "run"))
    placements.VISIBLE_AFTER_S = 0.5
    found["unseen"] = words_of(lambda: placement.require_shared_folder(folder / f"run-{rank}"))
    time.sleep(6 * rendezvous.HEARTBEAT_S)  # heartbeats are exchanged, and no rank is reported as lost
    rendezvous.leave()
    assert not current().is_distributed
    found["left"] = threading.active_count()

    os.environ["MASTER_PORT"] = ports[1]
    rendezvous.__version__ = "0.9" if rank else "1.0"
    found["other version"] = words_of(rendezvous.join)
    (folder / f"{rank}.json").write_text(json.dumps({**found, "rgcn": rgcn.__version__}))
    rendezvous.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","))
