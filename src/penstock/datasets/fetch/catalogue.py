"""A table of data sets: list them, fetch them, check them.

A `Catalogue` is a plain table. The library's own is in `penstock.datasets.fetch.table`; another program can make one of
its data sets and use the same code. Loaders are named as strings and imported on use, so that listing needs
none of their dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock.datasets.fetch.locations import DatasetLocation, DatasetSpec, fetch_dataset, find_dataset, locate
from penstock.errors import DataError


@dataclass(frozen=True)
class CatalogueEntry:
    """A published data set: where it is found, how the listing describes it, and how to tell that it is complete.

    Attributes:
        count: returns the number of samples in each split of a folder, or raises a DataError if it is not complete.
        quick: ``count`` takes seconds, so that fetching can end with it. A small data set is read by its loader, which
            compares checksums; of one of many files, which would take minutes to read, the files are counted.
    """

    spec: DatasetSpec
    description: str
    licence: str
    size: str
    count: Callable[[Path], dict[str, int]]
    quick: bool = False


@dataclass(frozen=True)
class FolderFormat:
    """A format for folders of the user's own, with one sub-folder of files per class.

    Attributes:
        files: what its files are.
        loader: the function that loads it, for the reader of a listing.
        count: the function that reads every file and returns the number in each split and class, as module:function.
    """

    files: str
    loader: str
    count: str


@dataclass(frozen=True)
class ListingRow:
    """A row of the listing; ``found`` is the folder or archive, None if it is not on this machine."""

    name: str
    description: str
    licence: str
    size: str
    found: str | None
    get: str


@dataclass(frozen=True)
class CheckedDataset:
    """A complete data set: where it is, and the number of samples in each split.

    Attributes:
        classes: the same by class, for a folder of the user's own.
    """

    name: str
    found: str
    samples: dict[str, int]
    classes: dict[str, dict[str, int]] | None = None


@dataclass(frozen=True)
class Catalogue:
    """The published data sets of a program, and its folder formats by name; ``command`` is named in errors."""

    command: str
    entries: tuple[CatalogueEntry, ...]
    folders: Mapping[str, FolderFormat] = field(default_factory=dict)

    def listing(self) -> list[ListingRow]:
        """Return what each data set is, where it is on this machine, and how to get it."""
        rows = []
        for entry in self.entries:
            get = entry.spec.advice
            try:
                found = locate(entry.spec)
            except DataError as error:  # an unreadable folder must not end the listing
                found, get = None, str(error)
            path = None if found is None else str(found.path)
            rows.append(ListingRow(entry.spec.name, entry.description, entry.licence, entry.size, path, get))
        return rows

    def fetch(self, name: str, *, progress: bool = False) -> DatasetLocation:
        """Return the location of a data set, after downloading it into the cache if necessary.

        Raises:
            DataError: if the name is unknown, no source provided it, or the existing files are visibly incomplete.
            StorageError: if it cannot be written.
        """
        entry = self.entry(name)
        found = fetch_dataset(entry.spec, progress=progress)
        if entry.quick:
            entry.count(found.path)
        return found

    def check(self, name: str, folder: str | Path | None = None) -> CheckedDataset:
        """Verify that a data set is complete: its checksum, its files, its loader.

        Args:
            name: of a data set; or of a folder format, to read every file of ``folder``.
            folder: where it is; default: wherever its loader finds it.

        Raises:
            DataError: if it is missing, incomplete or damaged.
        """
        if name in self.folders:
            if folder is None:
                raise DataError(
                    f"{name} needs a folder with one sub-folder of {self.folders[name].files} per class: "
                    f"`{self.command} check {name} --folder FOLDER`."
                )
            classes: dict[str, dict[str, int]] = import_function(self.folders[name].count)(folder)
            samples = {part: sum(counts.values()) for part, counts in classes.items()}
            return CheckedDataset(name, str(folder), samples, classes)
        entry = self.entry(name)
        found = find_dataset(entry.spec, folder)
        for source in entry.spec.fetchable:
            if found.path.name in source.checksums:
                source.checksums[found.path.name].check(found.path)
        return CheckedDataset(name, str(found.path), entry.count(found.path))

    def entry(self, name: str) -> CatalogueEntry:
        """Return the entry of a data set; raise a DataError if the name is unknown or a folder format."""
        known = {entry.spec.name: entry for entry in self.entries}
        if name in self.folders:
            raise DataError(
                f"{name} is a format for your own folders of {self.folders[name].files}; there is nothing to fetch. "
                f"`{self.command} list` shows what can be fetched."
            )
        if name not in known:
            raise DataError(f"unknown data set {name!r}; known: {', '.join((*known, *self.folders))}.")
        return known[name]


def import_function(name: str) -> Callable[..., Any]:
    """Import a function given as package.module:function."""
    module, _, function = name.partition(":")
    return getattr(import_module(module), function)


def count_loaded(loader: str, path: Path) -> dict[str, int]:
    """Load a data set with a function given as package.module:function; return the number of samples in each split."""
    data = import_function(loader)(path)
    parts = {part: getattr(data, part, None) for part in ("train", "validation", "test")}
    return {part: _length(samples) for part, samples in parts.items() if samples is not None}


def _length(part: Any) -> int:
    return len(part[0] if isinstance(part, tuple) else getattr(part, "y", part))  # a pair, wrist's windows, a Dataset
