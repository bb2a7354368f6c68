"""From a plan of what is to be heard to features: takes, their MFCC, standardised with the training part.

A loader of sounds first writes down every sample as a `ClipCrop`: which clip, from where, in which noise. That plan
is plain data, drawn from a seed, and can be inspected and tested without a sound being read. Then `listen` reads,
mixes and computes, each clip once.
"""

import hashlib
import io
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from penstock.datasets.disk import is_file
from penstock.datasets.progress import tracked
from penstock.datasets.sounds import RATE_HZ, Samples
from penstock.datasets.splits import Labelled, Splits
from penstock.errors import DataError
from penstock.runtime.files import write_atomically
from penstock.runtime.streaming.features import FULL_SCALE, Mfcc, features

PARTS = ("train", "validation", "test")

CACHE_VERSION = 1
"""To be raised when the same plan gives other features."""

_BLOCK = 256  # takes whose samples are in memory at a time

Floats: TypeAlias = npt.NDArray[np.float32]


class Noise(NamedTuple):
    """A stretch of noise: the file, its first sample there, and the factor to mix it in with."""

    name: str
    start: int
    gain: float


class ClipCrop(NamedTuple):
    """One sample of a data set, before it is heard.

    Attributes:
        label: 0 is the background.
        clip: the name of a clip; None for noise alone.
        start: where in the clip the take begins; below 0 there is silence before the clip.
        length: how many samples of the clip at most; None for all that fit. Silence follows.
        noise: what to mix in, over the whole take.
    """

    label: int
    clip: str | None = None
    start: int = 0
    length: int | None = None
    noise: Noise | None = None


Plan: TypeAlias = Mapping[str, Sequence[ClipCrop]]
Read: TypeAlias = Callable[[str], Samples]


def listen(plan: Plan, read: Read, class_names: tuple[str, ...], *, length: int, spec: Mfcc) -> Splits:
    """Read what a plan asks for, and return its features.

    Args:
        plan: the takes of train, test and perhaps validation.
        read: gives the samples of a clip or a noise by its name.
        class_names: the name of each label.
        length: samples of a take.
        spec: the features to compute.

    Returns:
        Pairs (x, y), in the order of the plan; x is (n, coefficients, frames), float32, standardised coefficient by
        coefficient with the mean and the standard deviation of the training part.
    """
    read = lru_cache(maxsize=32)(read)  # noises are read again and again; a clip's takes follow each other
    arrays = {part: _features(plan[part], read, length, spec, f"reading {part}") for part in plan}
    mean = arrays["train"].mean(axis=(0, 2), dtype=np.float64)
    std = arrays["train"].std(axis=(0, 2), dtype=np.float64)
    if not std.all():
        raise DataError("the training clips are all alike, such as silence: standardising them is not possible.")
    for x in arrays.values():
        x -= mean[:, None].astype(np.float32)
        x /= std[:, None].astype(np.float32)
    labels = {part: np.array([take.label for take in plan[part]], np.int64) for part in plan}
    return _splits(arrays, labels, class_names)


def window_samples(window_s: float, spec: Mfcc) -> int:
    """Return how many samples a window has.

    Raises:
        DataError: when it is shorter than one frame of the features.
    """
    length = round(window_s * RATE_HZ) if math.isfinite(window_s) else 0
    if length < spec.window:
        raise DataError(f"window_s = {window_s} came, and one frame takes {spec.window_ms:g} ms: choose a longer one.")
    return length


def render(take: ClipCrop, read: Read, length: int) -> Floats:
    """Return the samples of a take: (length,), between -1 and 1, clipped as a converter would."""
    heard = np.zeros(length, np.float32)
    if take.clip is not None:
        room = length if take.length is None else min(length, take.length)
        silence = max(0, -take.start)
        piece = read(take.clip)[max(0, take.start) :][: room - silence]
        heard[silence : silence + len(piece)] = piece
    if take.noise is not None:
        name, start, gain = take.noise
        heard += np.float32(gain) * read(name)[start : start + length]
    return np.clip(heard / FULL_SCALE, -1, 1)


def cached(
    cache: str | Path | None, name: str, asked: object, classes: tuple[str, ...], make: Callable[[], Splits]
) -> Splits:
    """Return what ``make`` makes, or what it made before for the same ``asked``.

    Args:
        cache: the folder of computed features; None to compute them each time.
        name: how the file's name begins.
        asked: all that the features depend on; its repr is the key.
        classes: the name of each label.
        make: computes the features, where they are not there.

    Raises:
        DataError: when a file in the cache is damaged.
        StorageError: when the features could not be written.
    """
    if cache is None:
        return make()
    key = hashlib.sha256(repr((CACHE_VERSION, asked)).encode()).hexdigest()[:16]
    file = Path(cache) / f"{name}-{key}.npz"
    if is_file(file):
        return _load(file, classes)
    data = make()
    arrays = {}
    for part in PARTS:
        if (pair := getattr(data, part)) is not None:
            arrays[f"{part}_x"], arrays[f"{part}_y"] = (tensor.numpy() for tensor in pair)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(file, buffer.getvalue())
    return data


def _load(file: Path, classes: tuple[str, ...]) -> Splits:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            parts = [part for part in PARTS if f"{part}_x" in content]
            arrays, labels = ({part: content[f"{part}_{name}"] for part in parts} for name in "xy")
            return _splits(arrays, labels, classes)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} is damaged ({error}): delete it, it is only a cache.") from error


def _splits(arrays: Mapping[str, Floats], labels: Mapping[str, Any], classes: tuple[str, ...]) -> Splits:
    pairs = {part: Labelled(torch.from_numpy(arrays[part]), torch.from_numpy(labels[part])) for part in arrays}
    return Splits(pairs["train"], pairs["test"], classes, pairs.get("validation"))


def _features(takes: Sequence[ClipCrop], read: Read, length: int, spec: Mfcc, title: str) -> Floats:
    out = np.empty((len(takes), spec.coefficients, spec.frames(length)), np.float32)
    order = sorted(range(len(takes)), key=lambda i: takes[i].clip or "")  # so that each clip is decoded once
    for start in tracked(range(0, len(order), _BLOCK), title):
        chosen = order[start : start + _BLOCK]
        out[chosen] = features(np.stack([render(takes[i], read, length) for i in chosen]), spec, rate_hz=RATE_HZ)
    return out
