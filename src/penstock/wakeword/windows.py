"""Windows to learn from, cut as a stream would show them: words anywhere in the window, neighbours, noise.

A window holds a word that is wholly in it, most of another word, noise alone, or next to nothing. Around a word there
may be a neighbour; below it lies noise; it is said louder or softer, faster or slower. Each draw is new, from a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.datasets.progress import tracked
from penstock.datasets.sounds import RATE_HZ
from penstock.errors import DataError
from penstock.runtime.streaming.features import LogMel, features
from penstock.wakeword.augmentation import add, db_below, noise_excerpt, scale_to_rms, spoken
from penstock.wakeword.clips import Clip, ClipSet

Floats = npt.NDArray[np.float32]

_BLOCK = 256  # windows whose samples are in memory at a time


@dataclass(frozen=True)
class AugmentConfig:
    """How windows differ.

    Attributes:
        word, other: shares of windows with the word, and with another one; noise alone is in the rest.
        speed: words are between so many times as fast.
        gain_db: they are so much louder.
        snr_db: noise lies so far below them.
        clean: the share of words without added noise.
        neighbour: the share of words with another one before or behind.
        masked: the share of windows of which some bands and some frames are wiped out (SpecAugment, arXiv:1904.08779).
    """

    word: float = 0.25
    other: float = 0.55
    speed: tuple[float, float] = (0.88, 1.14)
    gain_db: tuple[float, float] = (-12.0, 8.0)
    snr_db: tuple[float, float] = (0.0, 30.0)
    clean: float = 0.2
    neighbour: float = 0.5
    masked: float = 0.5

    def __post_init__(self) -> None:
        if not (self.word > 0 and self.other > 0 and self.word + self.other < 1):
            raise DataError(
                f"shares of {self.word:g} and {self.other:g} came: windows with the word, with others, and with noise "
                "alone are each more than 0."
            )


def class_names(of: ClipSet, word: str) -> tuple[str, ...]:
    """Return the classes that a network learns: noise, the word, and each other word."""
    return ("background", word, *of.without(word))


def windows(
    of: ClipSet,
    word: str,
    count: int,
    *,
    frontend: LogMel,
    frames: int,
    variety: AugmentConfig = AugmentConfig(),
    seed: int = 0,
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Draw windows, and compute their features.

    Returns:
        x: (count, values, frames), not standardised; y: (count,), the class of each.
    """
    rng = np.random.default_rng(seed)
    x = np.empty((count, frontend.values, frames), np.float32)
    y = np.empty(count, np.int64)
    draw = Drawing(of, word, variety, frontend.samples(frames), rng)
    for start in tracked(range(0, count, _BLOCK), "drawing windows"):
        some = [draw.window() for _ in range(start, min(count, start + _BLOCK))]
        x[start : start + _BLOCK] = features(np.stack([samples for samples, _ in some]), frontend, rate_hz=RATE_HZ)
        for window in x[start : start + _BLOCK]:
            if rng.random() < variety.masked:
                _wipe(window, rng)
        y[start : start + _BLOCK] = [label for _, label in some]
    return x, y


def _wipe(window: Floats, rng: np.random.Generator) -> None:
    """Put the window's mean in place of up to two stretches of bands and two of frames, each up to a sixth."""
    mean = window.mean()
    for view in (window, window.T):
        for _ in range(2):
            width = int(rng.integers(0, len(view) // 6 + 1))
            first = int(rng.integers(0, len(view) - width + 1))
            view[first : first + width] = mean


class Drawing:
    """Draws windows of samples, each with its class."""

    def __init__(self, of: ClipSet, word: str, variety: AugmentConfig, length: int, rng: np.random.Generator):
        self.of, self.variety, self.length, self.rng = of, variety, length, rng
        self.names = class_names(of, word)
        self._others = [(label, clip) for label, name in enumerate(self.names) if label > 1 for clip in of.words[name]]
        self._words: Sequence[Clip] = of.words[word]

    def window(self) -> tuple[Floats, int]:
        """Draw one: (length,) between -1 and 1."""
        rng, variety = self.rng, self.variety
        kind = rng.random()
        sound = np.zeros(self.length, np.float32)
        if kind >= variety.word + variety.other:
            self._noise(sound)
            return np.clip(sound, -1, 1), 0
        if kind < variety.word:
            label, clip, inside = 1, self._words[int(rng.integers(len(self._words)))], 1.0
        else:
            label, clip = self._others[int(rng.integers(len(self._others)))]
            inside = 0.6
        gain_db = rng.uniform(*variety.gain_db)
        samples, begin, end = spoken(clip, gain_db=gain_db, speed=rng.uniform(*variety.speed))
        at = self._place(begin, end, inside)
        add(sound, samples, at)
        if rng.random() < variety.neighbour:
            self._neighbour(sound, at + begin, at + end, gain_db)
        if rng.random() >= variety.clean:
            level = db_below(clip.loudness * 10 ** (gain_db / 20), rng.uniform(*variety.snr_db))
            sound += scale_to_rms(self._stretch(), level)
        return np.clip(sound, -1, 1), label

    def _place(self, begin: int, end: int, inside: float) -> int:
        """Return where the clip begins, so that this share of its word lies in the window."""
        outside = (1 - inside) * (end - begin)
        first, last = -begin - outside, self.length - end + outside
        if first > last:  # longer than the window: show about the middle
            first = last = (first + last) / 2
        return round(self.rng.uniform(first, last))

    def _neighbour(self, sound: Floats, begin: int, end: int, gain_db: float) -> None:
        """Add another word before or behind, some way off, as far as the window shows it."""
        _, clip = self._others[int(self.rng.integers(len(self._others)))]
        samples, first, last = spoken(clip, gain_db=gain_db + self.rng.uniform(-6, 6))
        gap = round(self.rng.uniform(0.05, 0.6) * RATE_HZ)
        at = begin - gap - last if self.rng.random() < 0.5 else end + gap - first
        keep = samples.copy()
        keep[:first], keep[last:] = 0, 0  # its own room would lie over the word
        add(sound, keep, at)

    def _noise(self, sound: Floats) -> None:
        """Fill with noise of any level, or with nothing at all."""
        if self.rng.random() < 0.05:
            return
        sound += scale_to_rms(self._stretch(), 10 ** self.rng.uniform(-4.5, -0.6))

    def _stretch(self) -> Floats:
        noises = self.of.noises
        return noise_excerpt(noises[int(self.rng.integers(len(noises)))], self.length, self.rng)
