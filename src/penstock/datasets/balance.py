"""Positives and negatives at an exact ratio, without hearing anything twice where it is measured.

The paper's audio sets have nine negatives to a positive (section 4). Real sets have the ratio they have.

- **Training.** One negative in ten is a crop of noise at a random loudness. The others are the negative clips, each
  once as it is, and as many made from them as are missing: shifted by up to 100 ms and mixed with noise. Were only
  negatives made so, noise would give a negative away. So the same share of the positives is shifted and mixed as
  well; no positive is there twice.
- **Validation and testing.** A second copy of a clip, shifted or not, would count twice what was heard once. So
  nothing is made, and the larger side is thinned (`Thinned`), to the same number of positives for each word. Other
  seeds take other clips in turn, so the mean over several seeds rests on many more clips than one seed has.
- `Whole` keeps every clip instead, at the ratio that comes. For rates within a class, such as the positives lost or
  the negatives stopped, it gives the better statistics: ten times the positives, a third of the standard error.
  Calibrate with it: that fewer than 1 % of the positives are lost cannot be shown at 95 % with fewer than 299 of
  them. Accuracy depends on the ratio: it takes `Thinned`, or weights that make up for the ratio, as the
  experiments do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from penstock.datasets.clip_crops import ClipCrop, Noise
from penstock.datasets.sounds import RATE_HZ
from penstock.errors import DataError

SHIFT = RATE_HZ // 10
"""Samples that a made take is shifted by at most, to either side: 100 ms."""

NOISE_SHARE = 0.1
"""Of the negatives to train with."""

MIXED_GAIN = 0.1
"""The loudest that noise is mixed into a clip: two of the official noises are at full scale."""

T = TypeVar("T")


@dataclass(frozen=True)
class Thinned:
    """Validate and test at the exact ratio, with at most so many positives for each word."""

    positives_per_word: int | None = None

    def __post_init__(self) -> None:
        check_count("positives_per_word", self.positives_per_word)


@dataclass(frozen=True)
class Whole:
    """Validate and test with every clip there is, whatever the ratio."""


HeldOut: TypeAlias = Thinned | Whole


def training(
    positives: Sequence[ClipCrop],
    others: Sequence[ClipCrop],
    noise: Mapping[str, range],
    *,
    ratio: int,
    length: int,
    seed: int,
) -> list[ClipCrop]:
    """Return takes to train with: the positives, and ``ratio`` times as many of the background.

    Args:
        positives: clips of interest.
        others: clips of the background, at least one.
        noise: the samples of each noise that may be used here.
        ratio: negatives to one positive.
        length: samples of a take.
        seed: another seed makes other takes.
    """
    random = np.random.default_rng(seed)
    wanted = ratio * len(positives)
    crops = round(NOISE_SHARE * wanted)
    plain = draw(others, wanted - crops, seed)
    made = [plain[i % len(plain)] for i in range(wanted - crops - len(plain))]
    share = len(made) / (len(plain) + len(made))

    def noise_at(loudest: float) -> Noise:
        name = list(noise)[random.integers(len(noise))]
        start = random.integers(noise[name].start, noise[name].stop - length, endpoint=True)
        return Noise(name, int(start), float(random.uniform(0, loudest)))

    def moved(take: ClipCrop) -> ClipCrop:
        shift = int(random.integers(-SHIFT, SHIFT, endpoint=True))
        return take._replace(start=take.start + shift, noise=noise_at(MIXED_GAIN))

    heard = [moved(take) if random.random() < share else take for take in positives]
    takes = [*heard, *plain, *map(moved, made), *(ClipCrop(0, noise=noise_at(1.0)) for _ in range(crops))]
    return draw(takes, None, seed)


def measured(
    positives: Sequence[Sequence[ClipCrop]],
    negatives: Sequence[ClipCrop],
    how: HeldOut,
    *,
    ratio: int,
    seed: int,
    part: str,
) -> list[ClipCrop]:
    """Return takes to validate or test with, each of them once.

    Args:
        positives: the clips of each word.
        negatives: clips of the background and windows of noise.
        how: `Thinned` or `Whole`.
        ratio: negatives to one positive.
        seed: another seed takes other clips.
        part: its name, for an error.

    Raises:
        DataError: when there are too few negatives for one positive of each word.
    """
    if isinstance(how, Whole):
        return draw([*(take for takes in positives for take in takes), *negatives], None, seed)
    once = ratio * len(positives)
    count = min(*map(len, positives), len(negatives) // once, how.positives_per_word or len(negatives))
    if not count:
        raise DataError(
            f"{part} has {len(negatives)} negatives, and {ratio} to one positive of each word are {once}: ask for "
            "fewer negatives_per_positive, or for held_out=Whole()."
        )
    kept = [take for takes in positives for take in draw(takes, count, seed)]
    return draw([*kept, *draw(negatives, count * once, seed)], None, seed)


def draw(things: Sequence[T], count: int | None, seed: int) -> list[T]:
    """Draw so many at most, in random order; seed 1 goes on where seed 0 ended, and so on around.

    >>> draw("abcdef", 3, 0), draw("abcdef", 3, 1)
    (['d', 'c', 'f'], ['e', 'a', 'b'])
    """
    order = np.random.default_rng(0).permutation(len(things))
    if count is None:
        return [things[i] for i in np.random.default_rng(seed).permutation(order)]
    return [things[i] for i in np.roll(order, -seed * count)[:count]]


def check_count(name: str, count: int | None) -> None:
    """Raise a DataError unless the count is None or a whole number from 1."""
    if count is not None and (count != int(count) or count < 1):
        raise DataError(f"{name} = {count} came: give a whole number from 1.")


def check_seed(seed: int) -> None:
    """Raise a DataError unless the seed is a whole number from 0."""
    if seed != int(seed) or seed < 0:
        raise DataError(f"seed = {seed} came: give a whole number from 0.")
