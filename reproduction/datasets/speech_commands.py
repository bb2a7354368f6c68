"""The paper's keyword tasks on Speech Commands: some words are positives, all others and noise the background.

`penstock.datasets.speech_commands` reads the release or a subset of it, with its official splits. Each split has a
fixed number of negatives per positive; `reproduction.datasets.balance` explains how. Noise recordings are divided in
time, so that no second of noise is in two splits: the first 60 % for training, the next 20 % for validation, the last
20 % for testing. What the subset gives, positives and negatives:

                           train           validation    test
    Words()                5,000  45,000    60    540    100   900
    Words(), Whole()                       700    619  1,000   919
    WakeWord("marvin")     1,424  12,816   128  1,152     80   720

Of the 45,000 negatives 3,704 are unchanged clips, 36,796 are made from them, and 4,500 are noise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from penstock.datasets.audio_clips import PARTS, RATE_HZ, noise_span
from penstock.datasets.fetch.locations import find_dataset, locate
from penstock.datasets.fetch.table import SPEECH_COMMANDS_1, SPEECH_COMMANDS_2
from penstock.datasets.sound_files import cached_splits
from penstock.datasets.speech_commands import NOISE_FOLDER, Clips, open_speech_commands
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.runtime.streaming.features import Mfcc
from reproduction.datasets.balance import Balance, check_seed, draw, measured_crops, training_crops
from reproduction.datasets.clip_crops import ClipCrop, Noise, Plan, render_features

LENGTH = RATE_HZ
"""Samples in a crop: 1 s."""


@dataclass(frozen=True)
class Words:
    """Classify these words: labels 1, 2, ... in this order."""

    words: tuple[str, ...] = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")


@dataclass(frozen=True)
class WakeWord:
    """Detect one word: label 1."""

    word: str = "marvin"

    @property
    def words(self) -> tuple[str, ...]:
        """The word alone."""
        return (self.word,)


KeywordTask: TypeAlias = Words | WakeWord


def speech_commands(
    folder: str | Path | None = None,
    *,
    task: KeywordTask = Words(),
    balance: Balance = Balance(),
    features: Mfcc = Mfcc(),
    seed: int = 0,
    subset: bool = False,
    cache: str | Path | None = None,
) -> Splits:
    """Load Speech Commands as features for 1-D networks.

    Args:
        folder: the release or the subset; default: the cache.
        task: which words are positives.
        balance: how many positives and negatives.
        features: what to compute, at 16 kHz.
        seed: another seed draws other clips where not all are used, other shifts and other noise.
        subset: allow the release to lack clips that its lists name. Zips are always a subset.
        cache: a folder for computed features; None to compute them each time.

    Returns:
        x is (n, coefficients, frames), standardised with the training split; y is 0 for the background, then the words.

    Raises:
        DataError: if the data set is missing, incomplete or damaged, or an argument is invalid.
    """
    check_seed(seed)
    found = locate(SPEECH_COMMANDS_2, folder) or locate(SPEECH_COMMANDS_1, folder)
    path = (found or find_dataset(SPEECH_COMMANDS_2, folder)).path  # which raises the error
    class_names = ("background", *task.words)
    with open_speech_commands(path, task.words, subset=subset) as (clips, noises, read, stamps):

        def compute() -> Splits:
            lengths = {name: len(read(name)) for name in noises}
            plan = _plan(clips, lengths, task, balance, seed)
            return render_features(plan, read, class_names, length=LENGTH, spec=features)

        request = (task, balance, features, seed, clips, sorted(stamps.items()))
        return cached_splits(cache, "speech_commands", request, class_names, compute)


def _plan(clips: Clips, noise: Mapping[str, int], task: KeywordTask, balance: Balance, seed: int) -> Plan:
    """Write down every crop of every split."""
    plan = {}
    ratio, cap = balance.negatives_per_positive, balance.train_positives_per_word
    for part in PARTS:
        spans = {name: noise_span(samples, part, LENGTH) for name, samples in noise.items()}
        spans = {name: span for name, span in spans.items() if span}
        if not spans:
            raise DataError(f"not enough noise for {part}: put recordings of 5 s or more into {NOISE_FOLDER}.")
        positives = [[ClipCrop(label, clip) for clip in clips[part][word]] for label, word in enumerate(task.words, 1)]
        others = [ClipCrop(0, clip) for word, names in clips[part].items() if word not in task.words for clip in names]
        if part == "train":
            chosen = [crop for crops in positives for crop in (draw(crops, cap, seed) if cap else crops)]
            plan[part] = training_crops(chosen, others, spans, ratio=ratio, length=LENGTH, seed=seed)
        else:
            windows = [ClipCrop(0, noise=Noise(name, at, 1.0)) for name, span in spans.items() for at in span[::LENGTH]]
            plan[part] = measured_crops(
                positives, others + windows, balance.held_out, ratio=ratio, seed=seed, part=part
            )
    return plan
