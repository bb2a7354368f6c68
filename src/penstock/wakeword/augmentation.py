"""Mix words and noise: how loud, how fast, in how much noise; for windows to learn from and streams to be judged on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.datasets.sounds import Samples
from penstock.runtime.streaming.features import FULL_SCALE
from penstock.wakeword.clips import Clip

Floats = npt.NDArray[np.float32]


def add(to: Floats, samples: npt.NDArray[np.floating], at: int) -> None:
    """Add samples in place, from ``at`` on; what lies before or behind ``to`` is left out.

    >>> silence = np.zeros(3, np.float32); add(silence, np.array([1.0, 2.0, 3.0]), -1); silence.tolist()
    [2.0, 3.0, 0.0]
    """
    first, last = max(0, at), min(len(to), at + len(samples))
    if first < last:
        to[first:last] += samples[first - at : last - at]


def spoken(clip: Clip, *, gain_db: float = 0.0, speed: float = 1.0) -> tuple[Floats, int, int]:
    """Return a clip louder or faster, and where its word begins and ends then."""
    samples = clip.samples.astype(np.float32) * np.float32(10 ** (gain_db / 20) / FULL_SCALE)
    if speed == 1.0:
        return samples, clip.begin, clip.end
    places = np.arange(0, len(samples) - 1, speed, dtype=np.float32)
    faster = np.interp(places, np.arange(len(samples), dtype=np.float32), samples).astype(np.float32)
    return faster, round(clip.begin / speed), min(len(faster), round(clip.end / speed))


def noise_excerpt(noise: Samples, length: int, rng: np.random.Generator) -> Floats:
    """Return so much of a noise, from a random place on, and over again where it is too short; as loud as it is."""
    start = int(rng.integers(max(1, len(noise) - length + 1)))
    piece = noise[start : start + length]
    if len(piece) < length:
        piece = np.resize(piece, length)
    return piece.astype(np.float32) / np.float32(FULL_SCALE)


def scale_to_rms(samples: Floats, level: float) -> Floats:
    """Return samples whose root mean square is ``level``; silence stays silence.

    >>> at_level(np.array([1.0, -1.0], np.float32), 0.5).tolist()
    [0.5, -0.5]
    """
    now = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
    return samples * np.float32(level / now) if now > 0 else samples


def db_below(level: float, db: float) -> float:
    """Return the level that lies so many decibels below."""
    return float(level * 10 ** (-db / 20))
