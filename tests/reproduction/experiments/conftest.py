"""Every test here can run the small task "tones"."""

from dataclasses import replace

import pytest

from helpers.tones import tone_splits
from penstock.models import resnet8_1d
from reproduction.experiments import runner, tasks


@pytest.fixture(autouse=True)
def small_task(monkeypatch) -> None:
    budget = replace(tasks.TASKS["wake-word"].lite, width=4, epochs=2, batch_size=64)
    task = tasks.Task("tones", "tones", "ResNet", lambda folder, budget: tone_splits(), resnet8_1d, budget, budget)
    monkeypatch.setitem(tasks.TASKS, "tones", task)
    runner._read.cache_clear()
