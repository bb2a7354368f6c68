"""What streams and windows are made of: clips of words, and noise, part by part, in memory.

Two layouts are read: Speech Commands (a release or a subset of it, by its official lists), and any folder of sounds, as
`sound_folder` reads it, where a folder `_background_noise_` may hold noises. Nobody's voice is in two parts of Speech
Commands, and no second of noise in two parts of either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from penstock.datasets.class_folders import HoldOut, parts_in
from penstock.datasets.clip_crops import PARTS
from penstock.datasets.progress import tracked
from penstock.datasets.sound_folder import SOUNDS
from penstock.datasets.sounds import RATE_HZ, SUFFIXES, Samples, noise_span, read_clip
from penstock.datasets.speech_commands import LISTS, NOISE_FOLDER, opened
from penstock.errors import DataError
from penstock.runtime.streaming.features import FULL_SCALE

CLIPS = replace(SOUNDS, apart=(NOISE_FOLDER,))

FRAME = RATE_HZ // 100
"""Samples of 10 ms: in these the loudness of a clip is looked at."""

BELOW_PEAK_DB = 25
"""A word begins and ends where it is so much quieter than at its loudest."""


@dataclass(frozen=True, eq=False)
class Clip:
    """A word somebody said.

    Attributes:
        samples: all of the recording.
        begin, end: where the word is in it.
        loudness: the root mean square of the word, of full scale.
    """

    samples: Samples
    begin: int
    end: int
    loudness: float


@dataclass(frozen=True, eq=False)
class ClipSet:
    """The sounds of one part.

    Attributes:
        words: the clips of each word.
        noises: recordings of noise, none shorter than a second.
    """

    words: Mapping[str, Sequence[Clip]]
    noises: Sequence[Samples]

    def without(self, word: str) -> list[str]:
        """Return the names of all other words, sorted."""
        return sorted(set(self.words) - {word})


def load_clip_sets(folder: str | Path, word: str, *, subset: bool = False) -> dict[str, ClipSet]:
    """Read the sounds of a folder, for a word that is to be heard.

    Args:
        folder: Speech Commands, or a folder with a folder of clips for each word.
        subset: let a release of Speech Commands lack clips that its lists name.

    Raises:
        DataError: when the word or a part of the data is missing, or a clip is damaged or in another format.
    """
    root = Path(folder).expanduser()
    if all((root / name).is_file() for name in LISTS.values()):
        return _of_speech_commands(root, word, subset)
    return _of_folder(root, word)


def heard(samples: Samples) -> Clip:
    """Return a clip with where its word is.

    >>> quiet, loud = np.zeros(1600, np.int16), np.full(3200, 9000, np.int16)
    >>> clip = heard(np.concatenate([quiet, loud, quiet])); clip.begin, clip.end, round(clip.loudness, 3)
    (1600, 4800, 0.275)
    """
    padded = np.pad(samples, (0, -len(samples) % FRAME)).reshape(-1, FRAME).astype(np.float32) / FULL_SCALE
    power = (padded**2).mean(1)
    loud = np.flatnonzero(power >= power.max() * 10 ** (-BELOW_PEAK_DB / 10))
    begin, end = int(loud[0]) * FRAME, min(len(samples), (int(loud[-1]) + 1) * FRAME)
    return Clip(samples, begin, end, float(np.sqrt(power[loud].mean())))


def _of_speech_commands(root: Path, word: str, subset: bool) -> dict[str, ClipSet]:
    with opened(root, (word,), subset=subset) as (clips, noises, read, _):
        recordings = [read(name) for name in noises]
        return {
            part: ClipSet(
                {name: [heard(read(clip)) for clip in tracked(inside, f"reading {name}")] for name, inside in some},
                _noises(recordings, part),
            )
            for part in PARTS
            for some in [sorted(clips[part].items())]
        }


def _of_folder(root: Path, word: str) -> dict[str, ClipSet]:
    parts = parts_in(root, CLIPS, HoldOut())
    known = sorted(parts["train"])
    if word not in known:
        raise DataError(f"{root} has no folder '{word}'. There are: {', '.join(known)}.")
    folder = root / NOISE_FOLDER
    recordings = [read_clip(file) for file in sorted(folder.glob("*")) if file.suffix in SUFFIXES]
    return {
        part: ClipSet(
            {
                name: [heard(read_clip(file)) for file in tracked(inside, f"reading {name}")]
                for name, inside in files.items()
            },
            _noises(recordings, part),
        )
        for part, files in parts.items()
    }


def _noises(recordings: Sequence[Samples], part: str) -> list[Samples]:
    """Return a part's stretches of all noises; where there are none, noise that is made up: white and pink."""
    spans = [(samples, noise_span(len(samples), part, RATE_HZ)) for samples in recordings]
    found = [samples[span.start : span.stop] for samples, span in spans if span]
    return found or _made_up(PARTS.index(part))


def _made_up(seed: int, seconds: int = 30) -> list[Samples]:
    rng = np.random.default_rng(seed)
    spectrum = np.fft.rfft(rng.standard_normal(seconds * RATE_HZ))
    slopes = np.maximum(np.arange(len(spectrum)), 20) ** -0.5  # a power of 1/f
    waves = [np.fft.irfft(spectrum), np.fft.irfft(spectrum * slopes)]
    return [(wave / np.abs(wave).max() * 0.5 * FULL_SCALE).astype(np.int16) for wave in waves]
