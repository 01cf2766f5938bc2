"""Settings shared by all tests."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

# Before anything imports Triton: without a GPU its kernels run in its interpreter.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile(
    "rgcn", deadline=None, max_examples=25, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
settings.load_profile("rgcn")


@pytest.fixture
def restore_threads():
    """Gives PyTorch back the number of threads it had."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def elsewhere(request, tmp_path_factory, monkeypatch):
    """Commands run in a folder of their own: a training keeps itself under runs/ of wherever it is called."""
    if "cli" in request.path.parts:
        monkeypatch.chdir(tmp_path_factory.mktemp("here"))
