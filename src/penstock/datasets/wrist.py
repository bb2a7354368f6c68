"""Shoulder exercises at the wrist: accelerometer and gyroscope of a smartwatch.

Physiotherapy exercises recorded by Burns et al. (arXiv:1802.01489), a part of which is inside the PyPI
package ``seglearn`` (BSD licence) as ``seglearn/data/watch_dataset.npy``:

- 10 subjects x 7 exercises x 2 sides = 140 recordings, none missing, of some twenty repetitions each;
- 6 axes at 50 Hz: acceleration ax, ay, az in g, turning rate wx, wy, wz in rad/s; ax is 0.5 g on
  average on the left wrist and -0.6 g on the right;
- 19 to 52 s a recording, 244,102 samples (81 minutes) in all; a repetition takes 1.3 s (PEN) to 2.1 s (FEL).

    PEN pendulum    ABD abduction    FEL forward elevation    IR internal rotation    ER external rotation
    TRAP trapezius extension    ROW upright row

An always-on watch is to report some of these exercises and to sleep through the others, the background. What
is hard is to tell IR from ER and ABD from FEL. By default IR and ER are both of interest: a gate finds them
early, and telling them apart is left to the deep end. With one of a pair in the background even the whole
network struggles. The windows of one person resemble each other, so no subject is in two splits.

The file is a pickle inside npy. A pickle can run any code, so it is read without ``numpy.load`` (see `safe_pickle`),
and ``seglearn`` is never imported.
"""

import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from penstock.datasets.disk import is_file, read_bytes
from penstock.datasets.fetch.addresses import WRIST
from penstock.datasets.fetch.places import find
from penstock.datasets.safe_pickle import load_arrays
from penstock.datasets.splits import Labelled
from penstock.errors import DataError

RATE_HZ = 50
WINDOW = 2 * RATE_HZ
"""Samples of a window: 2 s, about one repetition."""

STEP = RATE_HZ // 2
"""Samples from one window to the next: 0.5 s."""

AXES = 6


@dataclass(frozen=True)
class Windows:
    """Windows cut from the recordings of some subjects.

    Attributes:
        x: (n, 6, 100), float32, standardised axis by axis.
        y: (n,), int64; 0 is the background.
        subject: (n,), int64, the number of the subject, 1 to 10.
        recording: (n,), int64, the place of the recording in the file, 0 to 139.
    """

    x: Tensor
    y: Tensor
    subject: Tensor
    recording: Tensor

    @property
    def samples(self) -> Labelled:
        """The windows and their labels alone, as training and evaluation take them."""
        return Labelled(self.x, self.y)


@dataclass(frozen=True)
class Wrist:
    """The data set, windowed, split by subject and standardised.

    Attributes:
        train, validation, test: the windows of the subjects of each split.
        class_names: the name of each label.
        mean, std: (6,), of the axes over the training windows; all splits are standardised with them.
    """

    train: Windows
    validation: Windows
    test: Windows
    class_names: tuple[str, ...]
    mean: Tensor
    std: Tensor


@dataclass(frozen=True)
class Recording:
    """One subject doing one exercise with one arm; ``signal`` is (time, 6) in g and rad/s."""

    signal: np.ndarray
    exercise: str
    subject: int


def wrist(
    file: str | Path | None = None,
    *,
    of_interest: Sequence[str] = ("IR", "ER", "TRAP"),
    validation: Collection[int] = (7, 8),
    test: Collection[int] = (9, 10),
) -> Wrist:
    """Read the recordings and cut them into windows of 2 s, one every 0.5 s.

    Args:
        file: the npy file, whatever its name, or the folder it is in; by default the cache, or the installed package
            ``seglearn``.
        of_interest: the exercises to report, labels 1, 2, ...; all others are the background.
        validation: the subjects to validate with.
        test: the subjects to test with; all who remain are trained with.

    Raises:
        DataError: when the file is missing or damaged, or has no such exercise or subject.
    """
    given = None if file is None else Path(file)
    recordings = read_recordings(given if given and is_file(given) else find(WRIST, given).at)
    _check_names("exercises of interest", of_interest, {r.exercise for r in recordings})
    everybody = {r.subject for r in recordings}
    _check_names("subjects to validate with", validation, everybody)
    _check_names("subjects to test with", test, everybody)
    _check_names("subjects held out", [*validation, *test], everybody)
    training = everybody - {*validation, *test}

    parts = [_cut(recordings, of_interest, subjects) for subjects in (training, validation, test)]
    mean = parts[0].x.mean(dim=(0, 2))
    std = parts[0].x.std(dim=(0, 2))
    train_part, validation_part, test_part = (_standardise(part, mean, std) for part in parts)
    names = ("background", *of_interest)
    return Wrist(train_part, validation_part, test_part, names, mean, std)


def read_recordings(file: Path) -> list[Recording]:
    """Read all recordings of the file, as they were measured."""
    if not is_file(file):
        raise DataError(f"{file} is not there. Install the data with `pip install --no-deps seglearn`.")
    content = _read_pickled_npy(io.BytesIO(read_bytes(file)), file)
    try:
        names = [str(name) for name in content["y_labels"]]
        columns = zip(content["X"], content["y"], content["subject"], strict=True)
        recordings = [Recording(np.asarray(x), names[int(y)], int(subject)) for x, y, subject in columns]
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise DataError(
            f"{file} must hold X, y, y_labels and subject, as long as each other ({error!r}). Give seglearn's "
            "watch_dataset.npy."
        ) from error
    for i, recording in enumerate(recordings):
        shape = recording.signal.shape
        if len(shape) != 2 or shape[1] != AXES or shape[0] < WINDOW:
            raise DataError(
                f"recording {i} of {file} has the shape {shape}, and it takes (at least {WINDOW}, {AXES}). Give "
                "seglearn's watch_dataset.npy."
            )
    return recordings


def _read_pickled_npy(opened: BinaryIO, file: Path) -> Any:
    try:
        if np.lib.format.read_magic(opened) != (1, 0):
            raise ValueError("another version of npy than 1.0")
        np.lib.format.read_array_header_1_0(opened)
        return load_arrays(opened).item()
    except Exception as error:  # a damaged pickle raises almost anything
        raise DataError(
            f"{file} is not an npy file of arrays in a dict ({error}). Fetch it again: `pip install --no-deps "
            "--force-reinstall seglearn`."
        ) from error


def _check_names(what: str, asked: Collection[Any], known: set[Any]) -> None:
    if not asked or len(set(asked)) != len(asked) or not set(asked) < known:
        raise DataError(
            f"{what}: {', '.join(map(str, asked)) or 'none'}. Name each once, at least one and not all of "
            f"{', '.join(map(str, sorted(known)))}."
        )


def _cut(recordings: list[Recording], of_interest: Sequence[str], subjects: Collection[int]) -> Windows:
    """Cut the recordings of these subjects into windows, in the order of the file."""
    label = {name: i for i, name in enumerate(of_interest, start=1)}
    xs, rows = [], []
    for i, recording in enumerate(recordings):
        if recording.subject in subjects:
            windows = np.lib.stride_tricks.sliding_window_view(recording.signal, WINDOW, axis=0)[::STEP]
            xs.append(windows.astype(np.float32))  # (count, 6, 100)
            rows += [(label.get(recording.exercise, 0), recording.subject, i)] * len(windows)
    y, subject, index = torch.tensor(rows).unbind(1)
    return Windows(torch.from_numpy(np.concatenate(xs)), y, subject, index)


def _standardise(part: Windows, mean: Tensor, std: Tensor) -> Windows:
    x = (part.x - mean[:, None]) / std[:, None]
    return Windows(x, part.y, part.subject, part.recording)
