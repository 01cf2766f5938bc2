"""Writing so that a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write to a temporary name in the same folder, sync, and rename over `path`."""
    data = content.encode() if isinstance(content, str) else content
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)  # noqa: PTH101 - mkstemp makes it private; a result is for others to read too
        os.replace(temporary, path)  # noqa: PTH105 - the rename that must be atomic
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
