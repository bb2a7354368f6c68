"""Load clips of words and recordings of noise, split by split, into memory.

Two layouts are read: Speech Commands (a release or a subset of it, split by its official lists), and any folder of
sounds that `sound_folder` reads, with noise in an optional folder `_background_noise_`. No speaker of Speech Commands
and no second of noise is in two splits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from penstock.datasets.audio_clips import PARTS, RATE_HZ, SUFFIXES, Samples, noise_span, read_clip
from penstock.datasets.class_folders import HoldOut, files_by_part
from penstock.datasets.progress import tracked
from penstock.datasets.sound_files import SOUNDS
from penstock.datasets.speech_commands import LISTS, NOISE_FOLDER, open_speech_commands
from penstock.errors import DataError
from penstock.runtime.streaming.features import FULL_SCALE

T = TypeVar("T")

CLIPS = replace(SOUNDS, ignored_folders=(NOISE_FOLDER,))  # folders of sounds, with the noise folder set apart
FRAME = RATE_HZ // 100  # samples in 10 ms, the step in which a clip's power is measured
BELOW_PEAK_DB = 25  # a word begins and ends where its power is this far below the peak


@dataclass(frozen=True, eq=False)
class Clip:
    """A recording of one spoken word.

    Attributes:
        samples: the whole recording.
        begin, end: the samples between which the word lies.
        loudness: root mean square of the word, relative to full scale.
    """

    samples: Samples
    begin: int
    end: int
    loudness: float


@dataclass(frozen=True, eq=False)
class ClipSet:
    """The clips and noises of one split.

    Attributes:
        words: the clips of each word.
        noises: recordings of noise, each at least one second long.
    """

    words: Mapping[str, Sequence[Clip]]
    noises: Sequence[Samples]

    def other_words(self, word: str) -> list[str]:
        """Return the names of all words but this one, sorted."""
        return sorted(set(self.words) - {word})


def load_clip_sets(folder: str | Path, word: str, *, subset: bool = False) -> dict[str, ClipSet]:
    """Load train, validation and test clips to train or evaluate a wake word on.

    Args:
        folder: Speech Commands, or a folder with one sub-folder of clips per word.
        subset: accept a Speech Commands folder without some of the clips that its lists name.

    Raises:
        DataError: when the word or a split is missing, or a clip is damaged or in another format.
    """
    root = Path(folder).expanduser()
    if all((root / name).is_file() for name in LISTS.values()):
        return _load_speech_commands(root, word, subset)
    return _load_folder(root, word)


def locate_word(samples: Samples) -> Clip:
    """Find where the word is in a recording.

    >>> quiet, loud = np.zeros(1600, np.int16), np.full(3200, 9000, np.int16)
    >>> clip = locate_word(np.concatenate([quiet, loud, quiet])); clip.begin, clip.end, round(clip.loudness, 3)
    (1600, 4800, 0.275)
    """
    padded = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME).astype(np.float32) / FULL_SCALE
    power = (padded**2).mean(1)
    loud = np.flatnonzero(power >= power.max() * 10 ** (-BELOW_PEAK_DB / 10))
    begin, end = int(loud[0]) * FRAME, min(len(samples), (int(loud[-1]) + 1) * FRAME)
    return Clip(samples, begin, end, float(np.sqrt(power[loud].mean())))


def _load_speech_commands(root: Path, word: str, subset: bool) -> dict[str, ClipSet]:
    with open_speech_commands(root, (word,), subset=subset) as (clips, noises, read, _):
        recordings = [read(name) for name in noises]
        return {part: _clip_set(sorted(clips[part].items()), read, recordings, part) for part in PARTS}


def _load_folder(root: Path, word: str) -> dict[str, ClipSet]:
    parts = files_by_part(root, CLIPS, HoldOut())
    known = sorted(parts["train"])
    if word not in known:
        raise DataError(f"{root} has no folder '{word}', only {', '.join(known)}.")
    folder = root / NOISE_FOLDER
    recordings = [read_clip(file) for file in sorted(folder.glob("*")) if file.suffix in SUFFIXES]
    return {part: _clip_set(files.items(), read_clip, recordings, part) for part, files in parts.items()}


def _clip_set(
    files: Iterable[tuple[str, Sequence[T]]], read: Callable[[T], Samples], recordings: Sequence[Samples], part: str
) -> ClipSet:
    """Read the clips of each word, and take the split's share of each noise recording, or else synthetic noise."""
    words = {word: [locate_word(read(file)) for file in tracked(clips, f"reading {word}")] for word, clips in files}
    spans = [(samples, noise_span(len(samples), part, RATE_HZ)) for samples in recordings]
    noises = [samples[span.start : span.stop] for samples, span in spans if span]
    return ClipSet(words, noises or _synthetic_noises(PARTS.index(part)))


def _synthetic_noises(seed: int, seconds: int = 30) -> list[Samples]:
    """Return white and pink noise."""
    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft(rng.standard_normal(seconds * RATE_HZ))
    slopes = np.maximum(np.arange(len(spectrum)), 20) ** -0.5  # power falls as 1/f
    waves = [np.fft.irfft(spectrum), np.fft.irfft(spectrum * slopes)]
    return [(wave / np.abs(wave).max() * 0.5 * FULL_SCALE).astype(np.int16) for wave in waves]
