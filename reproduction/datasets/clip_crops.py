"""Samples cut from clips and mixed with noise, and their features.

A loader first writes down every sample as a `ClipCrop`: which clip, from where, with which noise. That plan is plain
data drawn from a seed, and can be tested without reading a sound. Then `render_features` reads, mixes and computes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np

from penstock.datasets.audio_clips import Samples
from penstock.datasets.sound_files import Floats, compute_features
from penstock.datasets.splits import Splits
from penstock.runtime.streaming.features import FULL_SCALE, Mfcc


class Noise(NamedTuple):
    """A stretch of noise: the recording, its first sample there, and the gain to mix it with."""

    name: str
    start: int
    gain: float


class ClipCrop(NamedTuple):
    """One sample of a data set, before it is read.

    Attributes:
        label: 0 is the background.
        clip: name of the clip; None for noise alone.
        start: first sample of the crop in the clip; if negative, the crop begins with silence.
        length: most samples to take from the clip; None for all that fit. Silence follows.
        noise: noise to mix in, over the whole crop.
    """

    label: int
    clip: str | None = None
    start: int = 0
    length: int | None = None
    noise: Noise | None = None


Plan: TypeAlias = Mapping[str, Sequence[ClipCrop]]  # split -> its samples
Read: TypeAlias = Callable[[str], Samples]


def render_features(plan: Plan, read: Read, class_names: tuple[str, ...], *, length: int, spec: Mfcc) -> Splits:
    """Render every crop of a plan, and return the features.

    Args:
        plan: the crops of each split.
        read: returns the samples of a clip or a noise by its name.
        class_names: the name of each label.
        length: samples in a crop.
        spec: the features to compute.
    """
    read = lru_cache(maxsize=32)(read)  # noises are read again and again; crops of one clip follow each other
    return compute_features(plan, lambda crop: render_crop(crop, read, length), class_names, length=length, spec=spec)


def render_crop(crop: ClipCrop, read: Read, length: int) -> Floats:
    """Return the waveform of a crop: (length,), clipped to -1 and 1 as a converter would."""
    wave = np.zeros(length, np.float32)
    if crop.clip is not None:
        room = length if crop.length is None else min(length, crop.length)
        silence = max(0, -crop.start)
        piece = read(crop.clip)[max(0, crop.start) :][: room - silence]
        wave[silence : silence + len(piece)] = piece
    if crop.noise is not None:
        name, start, gain = crop.noise
        wave += np.float32(gain) * read(name)[start : start + length]
    return np.clip(wave / FULL_SCALE, -1, 1)
