"""A wake word that a small network learns in seconds: clips, the trained network with its bundle, and a stream."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers.syllables import syllables
from penstock.runtime.locks import wait_for_lock
from penstock.runtime.streaming.features import LogMel
from penstock.wakeword.clips import ClipSet, locate_word
from penstock.wakeword.streams import StreamSpec, SyntheticStream, synthesize_stream
from penstock.wakeword.training import WakeWordConfig, train_wakeword

CONFIG = WakeWordConfig(
    width=8,
    windows=4000,
    epochs=5,
    rounds=1,
    validation_hours=0.2,
    mining_hours=0.2,
    max_positive_loss=0.03,
    max_false_alarms_per_hour=5.0,
    alarm_confidence=None,
    frontend=LogMel(mels=16),
)

WORDS = {"tick": (500, 2500), "tock": (2500, 500), "hum": (300, 300), "hiss": (5000, 5500)}


def _clip_set(first_seed: int, count: int) -> ClipSet:
    words = {
        name: [locate_word(syllables(*hz, seed=first_seed + i)) for i in range(count)] for name, hz in WORDS.items()
    }
    noise = np.random.default_rng(first_seed).normal(0, 2000, 30 * 16_000).astype(np.int16)
    return ClipSet(words, [noise])


CLIPS = {"train": _clip_set(0, 40), "validation": _clip_set(1000, 30), "test": _clip_set(2000, 30)}


def trained_tick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of `trained.pt` and `bundle`; the first of the test processes trains, the others wait."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "wakeword"
    with wait_for_lock(root / "lock", "training"):
        if not (root / "bundle").exists():
            trained = train_wakeword(CLIPS, "tick", CONFIG, progress=False)
            torch.save(trained, root / "trained.pt")
            trained.export(root / "bundle")
    return root


def tick_stream() -> SyntheticStream:
    """Return four minutes with the word 20 times, spoken by test voices."""
    return synthesize_stream(StreamSpec(240.0, "tick", 20), CLIPS["test"], 9)
