"""Settings shared by all tests."""

from __future__ import annotations

import compileall
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import rgcn
from rgcn.system.threads import prepare_process

prepare_process()  # before PyTorch is loaded, so that its threads leave the cores to other tests

import torch  # noqa: E402

# Before anything imports Triton: without a GPU its kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# A shell ignores Ctrl-C for what it runs in the background, and so would everything the tests start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Many tests start Python: where it may not keep what it has compiled (PYTHONDONTWRITEBYTECODE), each would begin with
# compiling all of the package, for a second.
compileall.compile_dir(Path(rgcn.__file__).parent, quiet=2)

settings.register_profile(
    "rgcn", deadline=None, max_examples=25, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("rgcn")

# Read once, before any test takes the variable away.
REAL_MIRROR = Path(os.environ.get("RGCN_MIRROR") or Path(__file__).parents[2] / "shared" / "data")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs_data(*names): data sets that `real_mirror` must have; else it skips")


@pytest.fixture
def real_mirror(request):
    """The folder of the real data sets; @pytest.mark.needs_data names those without which a test is skipped."""
    names = [name for marker in request.node.iter_markers("needs_data") for name in marker.args]
    missing = [name for name in names if not (REAL_MIRROR / name).is_dir()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in the mirror {REAL_MIRROR}; set RGCN_MIRROR to a folder that has it")
    return REAL_MIRROR


@pytest.fixture
def restore_threads():
    """Gives PyTorch back the number of threads it had."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def elsewhere(request, tmp_path_factory, monkeypatch):
    """Commands run in a folder of their own: a training keeps itself under runs/ of wherever it is called."""
    if request.path.parent.name == "cli":
        monkeypatch.chdir(tmp_path_factory.mktemp("here"))
