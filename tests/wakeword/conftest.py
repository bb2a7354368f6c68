"""A trained wake word, its bundle, and a stream."""

from pathlib import Path

import pytest
import torch

from helpers.wakeword import tick_stream, trained_tick
from penstock.wakeword.streams import SyntheticStream
from penstock.wakeword.training import TrainedWakeWord


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedWakeWord:
    return torch.load(trained_tick(tmp_path_factory) / "trained.pt", weights_only=False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained_tick(tmp_path_factory) / "bundle"


@pytest.fixture(scope="session")
def stream() -> SyntheticStream:
    return tick_stream()
