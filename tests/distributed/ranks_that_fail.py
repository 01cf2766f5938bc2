"""One of several ranks that exchange messages until one of them fails; `test_heartbeat` starts it.

python tests/distributed/ranks_that_fail.py FOLDER    with RANK and WORLD_SIZE

Touches FOLDER/<rank>.joined. Where FOLDER/<rank>.error appears, that rank raises an error. Where FOLDER/<rank>.busy
appears, the others wait for it three times as long as a rank may be silent; then it removes the file.
"""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

from rgcn.distributed import rendezvous
from rgcn.distributed.launch import end
from rgcn.distributed.rendezvous import join
from rgcn.errors import DataError
from rgcn.placement import current

rendezvous.HEARTBEAT_S, rendezvous.SILENCE_S, rendezvous.GRACE_S = 0.2, 2.0, 2.0


def exchange(folder: Path) -> None:
    placement = join()
    placement.require_shared_folder(folder / "run")
    (folder / f"{placement.rank}.joined").touch()
    busy, error = (folder / f"{placement.rank}.{name}" for name in ("busy", "error"))
    while True:
        placement.barrier()
        if busy.exists():
            time.sleep(3 * rendezvous.SILENCE_S)
            busy.unlink()
        if error.exists():
            raise DataError("no such luck")
        time.sleep(0.02)


if __name__ == "__main__":
    try:
        exchange(Path(sys.argv[1]))
    except DataError as error:
        end(error, str(error))
    except Exception as error:
        if not current().is_distributed:
            raise
        end(error, traceback.format_exc())
