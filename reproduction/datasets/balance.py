"""Positives and negatives at an exact ratio, without duplicates in what is measured.

The paper's audio sets have nine negatives per positive (section 4). Real data sets have another ratio.

- **Training.** One negative in ten is a stretch of noise at a random volume. The others are the negative clips, each
  once unchanged, and as many copies as are missing, shifted by up to 100 ms and mixed with noise. If only negatives
  were mixed, noise would give a negative away. So the same share of the positives is shifted and mixed as well; no
  positive is there twice.
- **Validation and testing.** A second copy of a clip, shifted or not, would be counted twice. So nothing is added, and
  the larger side is subsampled (`Thinned`), with the same number of positives per word. Other seeds take the next clips
  in turn, so the mean over several seeds rests on many more clips than one seed has.
- `Whole` keeps every clip instead, at whatever ratio results. It gives the better statistics for rates within a class,
  such as the positives lost or the negatives stopped: ten times the positives, a third of the standard error. Use it to
  calibrate: showing at 95 % confidence that less than 1 % of the positives are lost takes at least 299 of them.
  Accuracy depends on the ratio: it needs `Thinned`, or weights that restore the ratio, as the experiments use.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from penstock.datasets.audio_clips import RATE_HZ
from penstock.errors import DataError
from reproduction.datasets.clip_crops import ClipCrop, Noise

SHIFT = RATE_HZ // 10
"""Largest shift of a copied clip in samples, to either side: 100 ms."""

NOISE_SHARE = 0.1
"""Share of noise among the training negatives."""

MIXED_GAIN = 0.1
"""Largest gain of noise mixed into a clip: two of the official noises are at full scale."""

T = TypeVar("T")


def check_count(name: str, count: int | None) -> None:
    """Raise a DataError unless the count is None or an integer of at least 1."""
    if count is not None and (count != int(count) or count < 1):
        raise DataError(f"{name} must be an integer of at least 1, got {count}.")


@dataclass(frozen=True)
class Thinned:
    """Validate and test at the exact ratio, with at most ``positives_per_word`` positives per word."""

    positives_per_word: int | None = None

    def __post_init__(self) -> None:
        check_count("positives_per_word", self.positives_per_word)


@dataclass(frozen=True)
class Whole:
    """Validate and test with every clip, whatever the ratio."""


HeldOut: TypeAlias = Thinned | Whole


@dataclass(frozen=True)
class Balance:
    """How many positives and negatives each split has.

    Attributes:
        negatives_per_positive: the ratio, in each split.
        train_positives_per_word: most training clips per positive word; None for all.
        held_out: how to choose the validation and test clips.
    """

    negatives_per_positive: int = 9
    train_positives_per_word: int | None = None
    held_out: HeldOut = Thinned()

    def __post_init__(self) -> None:
        check_count("negatives_per_positive", self.negatives_per_positive)
        check_count("train_positives_per_word", self.train_positives_per_word)


def training_crops(
    positives: Sequence[ClipCrop],
    others: Sequence[ClipCrop],
    noise: Mapping[str, range],
    *,
    ratio: int,
    length: int,
    seed: int,
) -> list[ClipCrop]:
    """Return training crops: the positives, and ``ratio`` times as many of the background.

    Args:
        positives: positive clips.
        others: background clips, at least one.
        noise: the samples of each noise that may be used.
        ratio: negatives per positive.
        length: samples in a crop.
        seed: of the random draws.
    """
    random = np.random.default_rng(seed)
    negatives = ratio * len(positives)
    noise_only = round(NOISE_SHARE * negatives)
    plain = draw(others, negatives - noise_only, seed)
    copies = [plain[i % len(plain)] for i in range(negatives - noise_only - len(plain))]
    share = len(copies) / (len(plain) + len(copies))

    def noise_at(loudest: float) -> Noise:
        name = list(noise)[random.integers(len(noise))]
        start = random.integers(noise[name].start, noise[name].stop - length, endpoint=True)
        return Noise(name, int(start), float(random.uniform(0, loudest)))

    def augmented(crop: ClipCrop) -> ClipCrop:
        shift = int(random.integers(-SHIFT, SHIFT, endpoint=True))
        return crop._replace(start=crop.start + shift, noise=noise_at(MIXED_GAIN))

    mixed = [augmented(crop) if random.random() < share else crop for crop in positives]
    noises = (ClipCrop(0, noise=noise_at(1.0)) for _ in range(noise_only))
    return draw([*mixed, *plain, *map(augmented, copies), *noises], None, seed)


def measured_crops(
    positives: Sequence[Sequence[ClipCrop]],
    negatives: Sequence[ClipCrop],
    held_out: HeldOut,
    *,
    ratio: int,
    seed: int,
    part: str,
) -> list[ClipCrop]:
    """Return crops to validate or test with, each of them once.

    Args:
        positives: the clips of each word.
        negatives: background clips and windows of noise.
        held_out: `Thinned` or `Whole`.
        ratio: negatives per positive.
        seed: another seed takes other clips.
        part: name of the split, for errors.

    Raises:
        DataError: if there are too few negatives for one positive of each word.
    """
    if isinstance(held_out, Whole):
        return draw([*(crop for crops in positives for crop in crops), *negatives], None, seed)
    once = ratio * len(positives)
    count = min(*map(len, positives), len(negatives) // once, held_out.positives_per_word or len(negatives))
    if not count:
        raise DataError(
            f"too few negatives in {part}: {ratio} per positive and one positive per word need {once}, found "
            f"{len(negatives)}. Use a smaller negatives_per_positive, or held_out=Whole()."
        )
    kept = [crop for crops in positives for crop in draw(crops, count, seed)]
    return draw([*kept, *draw(negatives, count * once, seed)], None, seed)


def draw(items: Sequence[T], count: int | None, seed: int) -> list[T]:
    """Draw at most ``count`` items in random order; seed 1 continues where seed 0 ended, and so on, cyclically.

    >>> draw("abcdef", 3, 0), draw("abcdef", 3, 1)
    (['d', 'c', 'f'], ['e', 'a', 'b'])
    """
    order = np.random.default_rng(0).permutation(len(items))
    if count is None:
        return [items[i] for i in np.random.default_rng(seed).permutation(order)]
    return [items[i] for i in np.roll(order, -seed * count)[:count]]


def check_seed(seed: int) -> None:
    """Raise a DataError unless the seed is an integer of at least 0."""
    if seed != int(seed) or seed < 0:
        raise DataError(f"seed must be an integer of at least 0, got {seed}.")
