"""Shoulder exercises at the wrist: accelerometer and gyroscope of a smartwatch.

Physiotherapy exercises recorded by Burns et al. (arXiv:1802.01489), a part of which is inside the PyPI
package ``seglearn`` (BSD licence) as ``seglearn/data/watch_dataset.npy``:

- 10 subjects x 7 exercises x 2 sides = 140 recordings of about twenty repetitions, 81 minutes in all;
- 6 axes at 50 Hz: acceleration ax, ay, az in g, turning rate wx, wy, wz in rad/s;
- 19 to 52 s per recording; a repetition takes 1.3 s (PEN) to 2.1 s (FEL).

    PEN pendulum    ABD abduction    FEL forward elevation    IR internal rotation    ER external rotation
    TRAP trapezius extension    ROW upright row

An always-on watch reports some of these exercises and ignores the others, the background. IR is hard to tell from ER,
and ABD from FEL. By default IR and ER are both positives: a gate detects them early, and deeper stages distinguish
them. With one of a pair in the background even the whole network struggles. Windows of one person are similar, so
every subject is in one split only.

The file is a pickle inside npy. A pickle can run any code, so it is read with `files.load_arrays` instead of
``numpy.load``, and ``seglearn`` is never imported.
"""

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from penstock.datasets.fetch.locations import find_dataset
from penstock.datasets.fetch.table import WRIST
from penstock.datasets.files import is_file, load_arrays, read_bytes
from penstock.datasets.splits import Labelled
from penstock.errors import DataError

RATE_HZ = 50
WINDOW = 2 * RATE_HZ  # samples in a window: 2 s, about one repetition
STEP = RATE_HZ // 2  # samples between the starts of two windows: 0.5 s
AXES = 6


@dataclass(frozen=True)
class Windows:
    """Windows cut from the recordings of some subjects.

    Attributes:
        x: (n, 6, 100), float32, standardised axis by axis.
        y: (n,), int64; 0 is the background.
        subject: (n,), int64, number of the subject, 1 to 10.
        recording: (n,), int64, index of the recording in the file, 0 to 139.
    """

    x: Tensor
    y: Tensor
    subject: Tensor
    recording: Tensor

    @property
    def samples(self) -> Labelled:
        """The windows and their labels, as training and evaluation expect them."""
        return Labelled(self.x, self.y)


@dataclass(frozen=True)
class Wrist:
    """The data set, windowed, split by subject and standardised.

    Attributes:
        train, validation, test: the windows of each split.
        class_names: the name of each label.
        mean, std: (6,), of each axis over the training windows; used to standardise all splits.
    """

    train: Windows
    validation: Windows
    test: Windows
    class_names: tuple[str, ...]
    mean: Tensor
    std: Tensor


@dataclass(frozen=True)
class Recording:
    """One subject doing one exercise with one arm; ``signal`` is (time, 6), in g and rad/s."""

    signal: np.ndarray
    exercise: str
    subject: int


def wrist(
    file: str | Path | None = None,
    *,
    positives: Sequence[str] = ("IR", "ER", "TRAP"),
    validation: Collection[int] = (7, 8),
    test: Collection[int] = (9, 10),
) -> Wrist:
    """Load the recordings as windows of 2 s, one every 0.5 s.

    Args:
        file: the npy file, under any name, or its folder; default: the cache, or the installed package ``seglearn``.
        positives: the exercises to report, labels 1, 2, ...; all others are the background.
        validation: subjects of the validation split.
        test: subjects of the test split; all others are in the training split.

    Raises:
        DataError: if the file is missing or damaged, or has no such exercise or subject.
    """
    path = None if file is None else Path(file)
    recordings = read_recordings(path if path and is_file(path) else find_dataset(WRIST, path).path)
    _check_names("positives", positives, {r.exercise for r in recordings})
    everyone = {r.subject for r in recordings}
    _check_names("validation subjects", validation, everyone)
    _check_names("test subjects", test, everyone)
    _check_names("held-out subjects", [*validation, *test], everyone)
    training = everyone - {*validation, *test}

    parts = [_cut(recordings, positives, subjects) for subjects in (training, validation, test)]
    mean = parts[0].x.mean(dim=(0, 2))
    std = parts[0].x.std(dim=(0, 2))
    train, held_out, tested = (replace(part, x=(part.x - mean[:, None]) / std[:, None]) for part in parts)
    return Wrist(train, held_out, tested, ("background", *positives), mean, std)


def read_recordings(file: Path) -> list[Recording]:
    """Read all recordings of the file, unprocessed."""
    content = _read_pickled_npy(io.BytesIO(read_bytes(file)), file)
    try:
        names = [str(name) for name in content["y_labels"]]
        columns = zip(content["X"], content["y"], content["subject"], strict=True)
        recordings = [Recording(np.asarray(x), names[int(y)], int(subject)) for x, y, subject in columns]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(
            f"expected X, y, y_labels and subject of equal length in {file} ({error!r}): use seglearn's "
            "watch_dataset.npy."
        ) from error
    for i, recording in enumerate(recordings):
        shape = recording.signal.shape
        if len(shape) != 2 or shape[1] != AXES or shape[0] < WINDOW:
            raise DataError(
                f"expected shape (at least {WINDOW}, {AXES}) of recording {i} in {file}, got {shape}: use seglearn's "
                "watch_dataset.npy."
            )
    return recordings


def _read_pickled_npy(opened: BinaryIO, file: Path) -> Any:
    try:
        if np.lib.format.read_magic(opened) != (1, 0):
            raise ValueError("expected npy version 1.0")
        np.lib.format.read_array_header_1_0(opened)
        return load_arrays(opened).item()
    except Exception as error:  # a damaged pickle raises almost anything
        raise DataError(
            f"{file} is not an npy file with a dict of arrays ({error}). Install it again: `pip install --no-deps "
            "--force-reinstall seglearn`."
        ) from error


def _check_names(what: str, chosen: Collection[Any], known: set[Any]) -> None:
    if not chosen or len(set(chosen)) != len(chosen) or not set(chosen) < known:
        raise DataError(
            f"{what} must be some of {', '.join(map(str, sorted(known)))}, each once and not all, got "
            f"{', '.join(map(str, chosen)) or 'none'}."
        )


def _cut(recordings: list[Recording], positives: Sequence[str], subjects: Collection[int]) -> Windows:
    """Cut the recordings of these subjects into windows, in file order."""
    label = {name: i for i, name in enumerate(positives, start=1)}
    xs, rows = [], []
    for i, recording in enumerate(recordings):
        if recording.subject in subjects:
            windows = np.lib.stride_tricks.sliding_window_view(recording.signal, WINDOW, axis=0)[::STEP]
            xs.append(windows.astype(np.float32))  # (count, 6, 100)
            rows += [(label.get(recording.exercise, 0), recording.subject, i)] * len(windows)
    y, subject, index = torch.tensor(rows).unbind(1)
    return Windows(torch.from_numpy(np.concatenate(xs)), y, subject, index)
