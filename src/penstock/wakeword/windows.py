"""Draw training windows that look like those of a stream: words at any offset, with neighbours and noise.

A window holds the whole wake word, most of another word, noise alone, or almost nothing. A word may have a neighbour
before or after it, lies above noise, and varies in gain and speed. Windows are drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.datasets.audio_clips import RATE_HZ
from penstock.datasets.progress import tracked
from penstock.errors import DataError
from penstock.runtime.streaming.features import LogMel, features
from penstock.wakeword.augmentation import change_clip, db_below, mix_in, noise_excerpt, scale_to_rms
from penstock.wakeword.clips import Clip, ClipSet

Floats = npt.NDArray[np.float32]

_BLOCK = 256  # windows whose samples are in memory at a time


@dataclass(frozen=True)
class AugmentConfig:
    """How windows are drawn and varied.

    Attributes:
        word, other: shares of windows with the wake word and with another word; the rest is noise alone.
        speed: range of the factor by which words are sped up.
        gain_db: range of the gain of words.
        snr_db: range of the signal-to-noise ratio.
        clean: share of words without added noise.
        neighbour: share of words with another word before or after.
        masked: share of windows with some bands and frames masked (SpecAugment, arXiv:1904.08779).
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
                f"word and other must be more than 0 and sum to less than 1, got {self.word:g} and {self.other:g}."
            )


def wakeword_classes(clips: ClipSet, word: str) -> tuple[str, ...]:
    """Return the classes of a wake-word network: background, the word, and each other word."""
    return ("background", word, *clips.other_words(word))


def draw_windows(
    clips: ClipSet,
    word: str,
    count: int,
    *,
    frontend: LogMel,
    frames: int,
    augment: AugmentConfig = AugmentConfig(),
    seed: int = 0,
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Draw windows and compute their features.

    Returns:
        x: (count, values, frames), not standardised; y: (count,), the class of each.
    """
    rng = np.random.default_rng(seed)
    x = np.empty((count, frontend.values, frames), np.float32)
    y = np.empty(count, np.int64)
    sampler = WindowSampler(clips, word, augment, frontend.samples(frames), rng)
    for start in tracked(range(0, count, _BLOCK), "drawing windows"):
        block = [sampler.draw() for _ in range(start, min(count, start + _BLOCK))]
        x[start : start + _BLOCK] = features(np.stack([samples for samples, _ in block]), frontend, rate_hz=RATE_HZ)
        for window in x[start : start + _BLOCK]:
            if rng.random() < augment.masked:
                _mask(window, rng)
        y[start : start + _BLOCK] = [label for _, label in block]
    return x, y


def _mask(window: Floats, rng: np.random.Generator) -> None:
    """Replace up to two ranges of bands and two of frames, each at most a sixth, with the window's mean."""
    mean = window.mean()
    for view in (window, window.T):
        for _ in range(2):
            width = int(rng.integers(0, len(view) // 6 + 1))
            first = int(rng.integers(0, len(view) - width + 1))
            view[first : first + width] = mean


class WindowSampler:
    """Draws windows of samples, each with its class."""

    def __init__(self, clips: ClipSet, word: str, augment: AugmentConfig, length: int, rng: np.random.Generator):
        self.clips, self.augment, self.length, self.rng = clips, augment, length, rng
        others = enumerate(clips.other_words(word), start=2)
        self._others = [(label, clip) for label, name in others for clip in clips.words[name]]
        self._words: Sequence[Clip] = clips.words[word]

    def draw(self) -> tuple[Floats, int]:
        """Draw one window: (length,) between -1 and 1, and its class."""
        rng, augment = self.rng, self.augment
        kind = rng.random()
        window = np.zeros(self.length, np.float32)
        if kind >= augment.word + augment.other:
            if rng.random() >= 0.05:  # else nothing at all
                window += scale_to_rms(self._draw_noise(), 10 ** rng.uniform(-4.5, -0.6))
            return np.clip(window, -1, 1), 0
        if kind < augment.word:
            label, clip, visible = 1, self._words[int(rng.integers(len(self._words)))], 1.0
        else:
            label, clip = self._others[int(rng.integers(len(self._others)))]
            visible = 0.6
        gain_db = rng.uniform(*augment.gain_db)
        samples, begin, end = change_clip(clip, gain_db=gain_db, speed=rng.uniform(*augment.speed))
        at = self._offset(begin, end, visible)
        mix_in(window, samples, at)
        if rng.random() < augment.neighbour:
            self._add_neighbour(window, at + begin, at + end, gain_db)
        if rng.random() >= augment.clean:
            level = db_below(clip.loudness * 10 ** (gain_db / 20), rng.uniform(*augment.snr_db))
            window += scale_to_rms(self._draw_noise(), level)
        return np.clip(window, -1, 1), label

    def _offset(self, begin: int, end: int, visible: float) -> int:
        """Return where the clip starts so that at least this share of its word lies in the window."""
        outside = (1 - visible) * (end - begin)
        first, last = -begin - outside, self.length - end + outside
        if first > last:  # longer than the window: centre it
            first = last = (first + last) / 2
        return round(self.rng.uniform(first, last))

    def _add_neighbour(self, window: Floats, begin: int, end: int, gain_db: float) -> None:
        """Add another word before or after this one, as far as it falls inside the window."""
        _, clip = self._others[int(self.rng.integers(len(self._others)))]
        samples, first, last = change_clip(clip, gain_db=gain_db + self.rng.uniform(-6, 6))
        gap = round(self.rng.uniform(0.05, 0.6) * RATE_HZ)
        at = begin - gap - last if self.rng.random() < 0.5 else end + gap - first
        word_only = samples.copy()
        word_only[:first], word_only[last:] = 0, 0  # the rest of its clip would overlap the word
        mix_in(window, word_only, at)

    def _draw_noise(self) -> Floats:
        noises = self.clips.noises
        return noise_excerpt(noises[int(self.rng.integers(len(noises)))], self.length, self.rng)
