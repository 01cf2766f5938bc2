"""Settings and fixtures of all tests."""

from __future__ import annotations

import compileall
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import rgcn
from rgcn.system.threads import prepare_process

prepare_process()  # before PyTorch is loaded: its idle threads must sleep while other tests run

import torch  # noqa: E402

# Without a GPU, Triton kernels run in Triton's interpreter. Triton reads this variable when it is imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell makes background jobs ignore Ctrl-C, and processes started by the tests would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Many tests start Python. With PYTHONDONTWRITEBYTECODE each of these processes would spend a second on compiling the
# package, so compile it once here.
compileall.compile_dir(Path(rgcn.__file__).parent, quiet=2)

settings.register_profile(
    "rgcn", deadline=None, max_examples=25, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("rgcn")

# Read here, because tests may unset the variable.
REAL_MIRROR = Path(os.environ.get("RGCN_MIRROR") or Path(__file__).parents[2] / "shared" / "data")


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "needs_data(*names): skip the test if `real_mirror` lacks one of these data sets"
    )


@pytest.fixture
def real_mirror(request):
    """Return the folder of the real data sets; skip the test if one that `needs_data` names is missing."""
    names = [name for marker in request.node.iter_markers("needs_data") for name in marker.args]
    missing = [name for name in names if not (REAL_MIRROR / name).is_dir()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in the mirror {REAL_MIRROR}; set RGCN_MIRROR to a folder that has them")
    return REAL_MIRROR


@pytest.fixture
def restore_threads():
    """Restore PyTorch's number of threads after the test."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def elsewhere(request, tmp_path_factory, monkeypatch):
    """Run tests of commands in an empty folder, because a training writes to runs/ in the current folder."""
    if request.path.parent.name == "cli":
        monkeypatch.chdir(tmp_path_factory.mktemp("here"))
