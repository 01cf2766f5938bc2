"""What two processes say to each other, in one of them: what `test_joining` starts.

python tests/joined_together.py FOLDER PORTS     with RANK and WORLD_SIZE; writes FOLDER/<rank>.json
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import rgcn
from rgcn import heartbeat, joining
from rgcn.errors import RgcnError
from rgcn.processes import processes


def words_of(ask) -> str | None:
    try:
        ask()
    except RgcnError as error:
        return f"{type(error).__name__}: {error}"
    return None


def main(folder: Path, ports: list[str]) -> None:
    rank, found = int(os.environ["RANK"]), {}
    heartbeat.BEAT_S = 0.2
    os.environ["MASTER_PORT"] = ports[0]
    assert joining.invited()
    group = joining.join()
    assert processes() is group
    assert group.rank == rank
    found["threads"] = threading.active_count()
    found["said"] = group.tell({"rank": rank})
    found["chosen"] = joining.first_says(lambda: ["by", rank])
    found["any"] = group.any(rank == 1, False)
    found["same"] = words_of(lambda: joining.agree("settings", {"epochs": 3}))
    found["other settings"] = words_of(lambda: joining.agree("settings", {"epochs": 3 + rank, "seed": 0}))
    found["other data"] = words_of(lambda: joining.agree("data", {"fingerprint": "ab"[rank]}))
    found["seen"] = words_of(lambda: joining.share_folder(folder / "run"))
    joining.SIGHT_S = 0.5
    found["unseen"] = words_of(lambda: joining.share_folder(folder / f"run-{rank}"))
    time.sleep(6 * heartbeat.BEAT_S)  # beats are exchanged, and nobody is missed
    joining.leave()
    assert not processes().together
    found["left"] = threading.active_count()

    os.environ["MASTER_PORT"] = ports[1]
    joining.__version__ = "0.9" if rank else "1.0"
    found["other version"] = words_of(joining.join)
    (folder / f"{rank}.json").write_text(json.dumps({**found, "rgcn": rgcn.__version__}))
    joining.leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2].split(","))
