"""How to tell that a data set is complete, and how many samples each split has.

Small data sets are read by their loader, which compares checksums. Data sets of many files would take minutes to read,
so their files are counted, and compared with the official lists if there are any.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

from penstock.datasets.files import is_file, read_text, reading
from penstock.errors import DataError


class Completeness(Protocol):
    """A check that a data set is complete.

    Attributes:
        quick: it takes seconds, so that fetching can end with it.
    """

    quick: ClassVar[bool]

    def count(self, path: Path) -> dict[str, int]:
        """Return the number of samples in each split, or raise a DataError."""


@dataclass(frozen=True)
class Loads:
    """Complete if its loader, given as package.module:function, reads it."""

    loader: str
    quick: ClassVar[bool] = False

    def count(self, path: Path) -> dict[str, int]:
        data = import_function(self.loader)(path)
        parts = {part: getattr(data, part, None) for part in ("train", "validation", "test")}
        return {part: _length(samples) for part, samples in parts.items() if samples is not None}


@dataclass(frozen=True)
class HasClips:
    """Complete if it has this many clips in folders, and all that the two lists of Speech Commands name."""

    clips: int
    quick: ClassVar[bool] = True

    def count(self, path: Path) -> dict[str, int]:
        if is_file(path / "train.zip"):
            raise DataError(
                f"{path} has train.zip, a subset of Speech Commands; only the official release can be checked, with a "
                "folder of .wav files per word. To fetch the release, move the subset away."
            )
        with reading(path):
            folders = [e for e in os.scandir(path) if e.is_dir() and e.name[0] not in "._"]  # not _background_noise_
            clips = {f"{f.name}/{e.name}" for f in folders for e in os.scandir(f) if e.name.endswith(".wav")}
        held_out = {
            part: read_text(path / file).split()
            for part, file in (("validation", "validation_list.txt"), ("test", "testing_list.txt"))
        }
        check_listed(path, [*held_out["validation"], *held_out["test"]], clips, "Delete it and fetch it again.")
        if len(clips) != self.clips:
            raise DataError(
                f"expected {self.clips:,} clips in {path}, found {len(clips):,}. Delete it and fetch it again."
            )
        held = {part: len(names) for part, names in held_out.items()}
        return {"train": len(clips) - sum(held.values()), **held}


def import_function(name: str) -> Callable[..., Any]:
    """Import a function given as package.module:function."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def check_listed(path: Path, listed: Collection[str], existing: Collection[str], advice: str) -> None:
    """Raise a DataError that ends with the advice unless every listed file exists."""
    missing = [name for name in listed if name not in existing]
    if missing:
        raise DataError(
            f"{path} lacks {len(missing):,} of the {len(listed):,} files in its lists, such as {missing[0]}. {advice}"
        )


def _length(part: Any) -> int:
    return len(part[0] if isinstance(part, tuple) else getattr(part, "y", part))  # a pair, wrist's windows, a Dataset
