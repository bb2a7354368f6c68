"""What it takes for a data set to be whole, and how many samples each part then has.

Small sets are read by their loader, which compares checksums. Sets of many files would take minutes and gigabytes to
read, so their files are counted, and compared with the official lists where there are some.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from penstock.datasets.disk import is_file, read_text, reading
from penstock.datasets.progress import tracked
from penstock.errors import DataError

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Loads:
    """It is whole when its loader, given as package.module:function, reads it."""

    loader: str

    def count(self, at: Path) -> dict[str, int]:
        """Return how many samples each part has, or raise what the loader raises."""
        data = function_of(self.loader)(at)
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
        if is_file(at / "train.zip"):
            raise DataError(
                f"{at} has train.zip, a subset of Speech Commands: only the official release can be checked, a folder "
                "of .wav files for each word. To see whether the subset is whole, read it with speech_commands(folder)."
                " To fetch the release, move the subset away."
            )
        with reading(at):
            folders = [e for e in os.scandir(at) if e.is_dir() and e.name[0] not in "._"]  # not _background_noise_
            clips = {f"{f.name}/{e.name}" for f in folders for e in os.scandir(f) if e.name.endswith(".wav")}
        held_out = {
            part: read_text(at / file).split()
            for part, file in (("validation", "validation_list.txt"), ("test", "testing_list.txt"))
        }
        check_listed(at, [*held_out["validation"], *held_out["test"]], clips, "Delete it and fetch it again.")
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
                names = [entry["audio_file_path"] for entry in json.loads(read_text(at / file))]
                there = {name for name in names if is_file(at / name)}
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(
                    f"{at / file} is no JSON list of sounds with their audio_file_path ({error!r})."
                ) from error
            check_listed(at, names, there, "Unpack its archive again.")
            counts[part] = len(names)
        return counts


@dataclass(frozen=True)
class HasPhotographs:
    """ImageNet is whole when its parts have so many photographs, none empty, and the first of each synset is read."""

    train: int
    test: int
    synsets: int

    def count(self, at: Path) -> dict[str, int]:
        """Return how many photographs each part has.

        Raises:
            DataError: when some are missing, empty or damaged.
        """
        from penstock.datasets.images import read_rgb
        from reproduction.datasets.imagenet import imagenet, read_val_labels

        data = imagenet(at, classes=self.synsets)
        counts = {}
        for part, folder, wanted in (("train", "train", self.train), ("test", "val", self.test)):
            files: list[Path] = getattr(data, part).files
            _check_count(at / folder, files, wanted)
            _check_filled(at / folder, files)
            synset_of = read_val_labels(at / "val_labels.txt") if files[0].parent == at / "val" else {}  # a flat val
            first = {synset_of.get(file.name, file.parent.name): file for file in reversed(files)}
            for file in tracked(list(first.values()), f"reading one of each synset of {folder}"):
                read_rgb(file, str(file))
            counts[part] = len(files)
        return counts


Completeness: TypeAlias = Loads | HasClips | HasListedFiles | HasPhotographs


def function_of(name: str) -> Callable[..., Any]:
    """Import what package.module:function names."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def check_listed(at: Path, listed: Collection[str], there: Collection[str], advice: str) -> None:
    """Raise a DataError unless all files are there that lists name; it ends with the advice."""
    missing = [name for name in listed if name not in there]
    if missing:
        raise DataError(
            f"{at} lacks {len(missing):,} of the {len(listed):,} files that its lists name, such as {missing[0]}. "
            f"{advice}"
        )


def _check_count(folder: Path, files: Sequence[Path], wanted: int) -> None:
    if len(files) != wanted:
        raise DataError(
            f"{folder} has {len(files):,} photographs, and ImageNet-2012 has {wanted:,}. Unpack its archive again."
        )


def _check_filled(folder: Path, files: Sequence[Path]) -> None:
    with reading(folder):
        empty = [file for file in tracked(files, f"looking at {folder.name}") if not file.stat().st_size]
    if empty:
        raise DataError(f"{folder} has {len(empty):,} empty files, such as {empty[0]}. Unpack its archive again.")


def _samples(part: Any) -> int:
    return len(part[0] if isinstance(part, tuple) else getattr(part, "y", part))  # a pair, wrist's windows, a Dataset
