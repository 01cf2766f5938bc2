"""Settings shared by all tests."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, settings

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
