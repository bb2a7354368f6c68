"""Sounds in files as features for 1-D networks; folders of sounds.

    data = sound_folder("clips", window_s=1.0)  # clips/<class>/*.wav or *.flac, mono, 16 kHz, 16 bits

The layout is that of `class_folders`. Holding out a share of each class separates clips, not speakers: if a speaker,
room or device appears in several clips, accuracy is overestimated. Then make your own splits, with every speaker in
only one of them.

Clips differ in length, but a network has one: ``window_s``. A longer clip is trimmed equally at both ends. A shorter
one is padded with silence, so record all classes in the same way: a network recognises a class by its silence.
"""

import hashlib
import io
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from penstock.datasets.audio_clips import PARTS, RATE_HZ, SUFFIXES, pad_or_trim, read_clip, trim_to_centre
from penstock.datasets.class_folders import FileKind, HoldOut, class_labels, count_files, files_by_part, label_names
from penstock.datasets.files import file_stamp, is_file
from penstock.datasets.progress import tracked
from penstock.datasets.splits import Labelled, Splits
from penstock.errors import DataError
from penstock.runtime.files import write_atomically
from penstock.runtime.streaming.features import FULL_SCALE, Mfcc, features

SOUNDS = FileKind("sounds", SUFFIXES)

CACHE_VERSION = 2  # increase it if the same request gives other features
_BLOCK = 256  # clips in memory at a time

Floats: TypeAlias = npt.NDArray[np.float32]


class SoundSample(Protocol):
    """One sample of a data set of sounds; ``clip`` names its file, None for a sample without one."""

    @property
    def label(self) -> int: ...

    @property
    def clip(self) -> str | None: ...


class LabelledClip(NamedTuple):
    """A clip and its label."""

    label: int
    clip: str


S = TypeVar("S", bound=SoundSample)


def sound_folder(
    root: str | Path,
    *,
    positives: Sequence[str] | None = None,
    window_s: float = 1.0,
    features: Mfcc = Mfcc(),
    hold_out: HoldOut = HoldOut(),
    cache: str | Path | None = None,
) -> Splits:
    """Load a folder of sounds, ``root/class/*.wav`` or ``*.flac``, as features in memory.

    Args:
        root: has one folder per class; or ``train``, ``val`` and ``test``, or some of them, with one folder per class.
        positives: the positive classes, labels 1, 2, ...; all others are the background. Default: every other class
            in sorted order, from the first, as in the paper.
        window_s: length of each sample: the centre of a longer clip, or a shorter one padded with silence.
        features: what to compute, at 16 kHz.
        hold_out: the shares to hold out if the folder has no splits of its own. It does not separate speakers.
        cache: a folder for computed features; None to compute them each time.

    Returns:
        x is (n, coefficients, frames), standardised with the training split; y is 0 for the background, then the
        positives. Class by class, sorted by name.

    Raises:
        DataError: if there are no sounds, a class is empty or not in every split, a clip is damaged or in another
            format, or an argument is invalid.
    """
    root, length = Path(root).expanduser(), window_samples(window_s, features)
    parts = files_by_part(root, SOUNDS, hold_out)
    labels = class_labels(tuple(parts["train"]), positives)
    names = label_names(labels)
    clips = {
        part: [LabelledClip(labels[name], str(file.relative_to(root))) for name in files for file in files[name]]
        for part, files in parts.items()
    }

    def load(sample: LabelledClip) -> Floats:
        samples = pad_or_trim(trim_to_centre(read_clip(root / sample.clip), length), length)
        return samples.astype(np.float32) / np.float32(FULL_SCALE)

    def compute() -> Splits:
        return compute_features(clips, load, names, length=length, spec=features)

    stamps = [file_stamp(file) for files in parts.values() for paths in files.values() for file in paths]
    return cached_splits(cache, "sound_folder", (clips, stamps, length, features), names, compute)


def count_sounds(root: str | Path) -> dict[str, dict[str, int]]:
    """Decode every clip of a folder, and return the number in each split and class; see `count_files`."""
    return count_files(root, SOUNDS, read_clip)


def compute_features(
    samples: Mapping[str, Sequence[S]],
    load: Callable[[S], Floats],
    class_names: tuple[str, ...],
    *,
    length: int,
    spec: Mfcc,
) -> Splits:
    """Load the samples of each split, and return their features.

    Args:
        samples: those of train, and of test and validation if there are any.
        load: returns the waveform of a sample, (length,), between -1 and 1. Samples of one clip are loaded one after
            the other, so it may keep the last clips.

    Returns:
        Pairs (x, y), in the given order; x is (n, coefficients, frames), float32, each coefficient standardised with
        the mean and standard deviation of the training split.
    """
    arrays = {part: _features(samples[part], load, length, spec, f"reading {part}") for part in samples}
    mean = arrays["train"].mean(axis=(0, 2), dtype=np.float64)
    std = arrays["train"].std(axis=(0, 2), dtype=np.float64)
    if not std.all():
        raise DataError("cannot standardise the training clips: they are all identical (silence?).")
    for x in arrays.values():
        x -= mean[:, None].astype(np.float32)
        x /= std[:, None].astype(np.float32)
    labels = {part: np.array([sample.label for sample in samples[part]], np.int64) for part in samples}
    return _to_splits(arrays, labels, class_names)


def window_samples(window_s: float, spec: Mfcc) -> int:
    """Return the number of audio samples in a window, which must hold at least one frame of the features."""
    length = round(window_s * RATE_HZ) if math.isfinite(window_s) else 0
    if length < spec.window:
        raise DataError(f"window_s must be at least one frame ({spec.window_ms:g} ms), got {window_s}.")
    return length


def cached_splits(
    cache: str | Path | None, name: str, request: object, classes: tuple[str, ...], compute: Callable[[], Splits]
) -> Splits:
    """Return ``compute()``, or its result for the same ``request`` from the folder ``cache``, if there is one.

    Args:
        name: prefix of the file name.
        request: everything the features depend on; its repr is the key.
    """
    if cache is None:
        return compute()
    key = hashlib.sha256(repr((CACHE_VERSION, request)).encode()).hexdigest()[:16]
    file = Path(cache) / f"{name}-{key}.npz"
    if is_file(file):
        return _load_cached(file, classes)
    data = compute()
    arrays = {}
    for part in PARTS:
        if (pair := getattr(data, part)) is not None:
            arrays[f"{part}_x"], arrays[f"{part}_y"] = (tensor.numpy() for tensor in pair)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomically(file, buffer.getvalue())
    return data


def _load_cached(file: Path, classes: tuple[str, ...]) -> Splits:
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            parts = [part for part in PARTS if f"{part}_x" in content]
            arrays, labels = ({part: content[f"{part}_{name}"] for part in parts} for name in "xy")
            return _to_splits(arrays, labels, classes)
    except (ValueError, KeyError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f"the cached features {file} are damaged ({error}): delete the file.") from error


def _to_splits(arrays: Mapping[str, Floats], labels: Mapping[str, Any], classes: tuple[str, ...]) -> Splits:
    pairs = {part: Labelled(torch.from_numpy(arrays[part]), torch.from_numpy(labels[part])) for part in arrays}
    return Splits(pairs["train"], pairs.get("test"), classes, pairs.get("validation"))


def _features(samples: Sequence[S], load: Callable[[S], Floats], length: int, spec: Mfcc, title: str) -> Floats:
    out = np.empty((len(samples), spec.coefficients, spec.frames(length)), np.float32)
    order = sorted(range(len(samples)), key=lambda i: samples[i].clip or "")  # so that each clip is decoded once
    for start in tracked(range(0, len(order), _BLOCK), title):
        chosen = order[start : start + _BLOCK]
        out[chosen] = features(np.stack([load(samples[i]) for i in chosen]), spec, rate_hz=RATE_HZ)
    return out
