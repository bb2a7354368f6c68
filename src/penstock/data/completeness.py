"""What it takes for a data set to be whole, and how many samples each part then has.

Small sets are read by their loader, which compares checksums. Sets of many sound files would take minutes and gigabytes
to turn into features, so their files are counted and compared with the official lists.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from penstock.errors import DataError

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Loads:
    """It is whole when its loader, given as package.module:function, reads it."""

    loader: str

    def count(self, at: Path) -> dict[str, int]:
        """Return how many samples each part has, or raise what the loader raises."""
        module, _, function = self.loader.partition(":")
        load: Callable[[Path], Any] = getattr(import_module(module), function)
        data = load(at)
        parts = {part: getattr(data, part, None) for part in PARTS}
        return {part: _samples(samples) for part, samples in parts.items() if samples is not None}


@dataclass(frozen=True)
class HasClips:
    """It is whole when it has so many clips in folders, and all that Speech Commands' two lists name."""

    clips: int

    def count(self, at: Path) -> dict[str, int]:
        """Return how many clips each part has.

        Raises:
            DataError: when clips are missing, or it is a subset in zips.
        """
        if (at / "train.zip").is_file():
            raise DataError(
                f"{at} has train.zip, a subset of Speech Commands: only the official release can be checked, a folder "
                "of .wav files for each word. To see whether the subset is whole, read it with speech_commands(folder)."
            )
        folders = [e.path for e in os.scandir(at) if e.is_dir() and e.name[0] not in "._"]  # not _background_noise_
        clips = {f"{Path(f).name}/{e.name}" for f in folders for e in os.scandir(f) if e.name.endswith(".wav")}
        held_out = {
            part: (at / file).read_text().split()
            for part, file in (("validation", "validation_list.txt"), ("test", "testing_list.txt"))
        }
        _check_listed(at, [*held_out["validation"], *held_out["test"]], clips)
        if len(clips) != self.clips:
            raise DataError(
                f"{at} has {len(clips):,} clips, and the official release {self.clips:,}. Delete it and fetch it again."
            )
        held = {part: len(names) for part, names in held_out.items()}
        return {"train": len(clips) - sum(held.values()), **held}


@dataclass(frozen=True)
class HasListedFiles:
    """It is whole when each sound file is there that Hey Snips' JSON lists name."""

    def count(self, at: Path) -> dict[str, int]:
        """Return how many sounds each part has.

        Raises:
            DataError: when a list is damaged, or a sound is missing.
        """
        counts = {}
        for part, file in zip(PARTS, ("train.json", "dev.json", "test.json"), strict=True):
            try:
                names = [entry["audio_file_path"] for entry in json.loads((at / file).read_text())]
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(
                    f"{at / file} is no JSON list of sounds with their audio_file_path ({error!r})."
                ) from error
            _check_listed(at, names, {name for name in names if (at / name).is_file()})
            counts[part] = len(names)
        return counts


Completeness: TypeAlias = Loads | HasClips | HasListedFiles


def _check_listed(at: Path, listed: Collection[str], there: set[str]) -> None:
    missing = [name for name in listed if name not in there]
    if missing:
        raise DataError(
            f"{at} lacks {len(missing):,} of the {len(listed):,} files that its lists name, such as {missing[0]}. "
            "Unpack its archive again."
        )


def _samples(part: Any) -> int:
    return len(part[0] if isinstance(part, tuple) else getattr(part, "y", part))  # a pair, wrist's windows, a Dataset
