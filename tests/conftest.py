"""Shared by all tests: one thread a worker, and small networks of every kind."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))  # for `helpers`

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("busy", deadline=None)  # a machine that does something else for a moment is no failure
settings.load_profile("busy")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)
