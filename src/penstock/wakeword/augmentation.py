"""Mix clips and noise: gain, speed and signal-to-noise ratio, for training windows and for streams."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from penstock.datasets.audio_clips import Samples
from penstock.runtime.streaming.features import FULL_SCALE
from penstock.wakeword.clips import Clip

Floats = npt.NDArray[np.float32]


def mix_in(target: Floats, samples: npt.NDArray[np.floating], at: int) -> None:
    """Add samples to ``target`` in place, from index ``at`` on; what falls outside is dropped.

    >>> silence = np.zeros(3, np.float32); mix_in(silence, np.array([1.0, 2.0, 3.0]), -1); silence.tolist()
    [2.0, 3.0, 0.0]
    """
    first, last = max(0, at), min(len(target), at + len(samples))
    if first < last:
        target[first:last] += samples[first - at : last - at]


def change_clip(clip: Clip, *, gain_db: float = 0.0, speed: float = 1.0) -> tuple[Floats, int, int]:
    """Return a clip's samples with another gain and speed, and where its word begins and ends in them."""
    samples = clip.samples.astype(np.float32) * np.float32(10 ** (gain_db / 20) / FULL_SCALE)
    if speed == 1.0:
        return samples, clip.begin, clip.end
    positions = np.arange(0, len(samples) - 1, speed, dtype=np.float32)
    resampled = np.interp(positions, np.arange(len(samples), dtype=np.float32), samples).astype(np.float32)
    return resampled, round(clip.begin / speed), min(len(resampled), round(clip.end / speed))


def noise_excerpt(noise: Samples, length: int, rng: np.random.Generator) -> Floats:
    """Return ``length`` samples of a recording from a random offset, repeated where it is too short."""
    start = int(rng.integers(max(1, len(noise) - length + 1)))
    piece = noise[start : start + length]
    if len(piece) < length:
        piece = np.resize(piece, length)
    return piece.astype(np.float32) / np.float32(FULL_SCALE)


def scale_to_rms(samples: Floats, rms: float) -> Floats:
    """Return samples scaled to this root mean square; silence stays silence.

    >>> scale_to_rms(np.array([1.0, -1.0], np.float32), 0.5).tolist()
    [0.5, -0.5]
    """
    current = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
    return samples * np.float32(rms / current) if current > 0 else samples


def db_below(level: float, db: float) -> float:
    """Return the level that lies this many decibels below ``level``."""
    return float(level * 10 ** (-db / 20))
