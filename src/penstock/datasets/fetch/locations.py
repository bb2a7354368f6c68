"""Where a data set is on this machine, and how to fetch it.

A loader looks and never downloads: only in the folder it is given, or else in the cache (``$PENSTOCK_DATA``, or the
platform's cache folder) and where a system or Python package installs its files. `fetch_dataset` downloads into the
cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.datasets.fetch.sources import Fetchable, Installed, Source
from penstock.datasets.files import reading
from penstock.errors import DataError
from penstock.runtime.locks import wait_for_lock


@dataclass(frozen=True)
class DatasetLayout:
    """One layout of a data set on disk.

    Attributes:
        kind: its name, by which the loader chooses how to read it.
        files: the files or folders that must all exist.
        inner: the folder that contains them after unpacking the archive in place.
        archive: an archive that contains them and can be read without unpacking.
    """

    kind: str
    files: tuple[str, ...]
    inner: str | None = None
    archive: str | None = None

    def missing(self, folder: Path) -> list[str]:
        """Return the files that a folder lacks."""
        return [name for name in self.files if not (folder / name).exists()]

    def path_in(self, folder: Path) -> Path | None:
        """Return the archive, or the folder with the files, if either is in ``folder`` or is ``folder``."""
        if self.archive is not None:
            for file in (folder, folder / self.archive):
                if file.is_file() and file.name == self.archive:
                    return file
        folders = [folder] if self.inner is None else [folder, folder / self.inner]
        return next((one for one in folders if one.is_dir() and not self.missing(one)), None)


@dataclass(frozen=True)
class DatasetSpec:
    """A data set, its layouts on disk, and its sources in order of preference.

    Attributes:
        name: in the listing; also the name of its folder in the cache.
        layouts: any of these is accepted.
        sources: where else to look, and how to fetch it.
        command: the command that fetches it, for errors.
    """

    name: str
    layouts: tuple[DatasetLayout, ...]
    sources: tuple[Source, ...]
    command: str = "penstock data fetch"

    @property
    def advice(self) -> str:
        """How to get the data set, in one line."""
        fetched = " or ".join(source.advice for source in self.fetchable)
        others = [source.advice for source in self.sources if source not in self.fetchable]
        return ", or ".join([f"`{self.command} {self.name}` ({fetched})", *others] if fetched else others)

    @property
    def fetchable(self) -> tuple[Fetchable, ...]:
        """The sources that a program can fetch from."""
        return tuple(one for one in self.sources if isinstance(one, Fetchable))


@dataclass(frozen=True)
class DatasetLocation:
    """A data set on this machine: its archive or folder, and its layout."""

    path: Path
    layout: DatasetLayout


def cache_folder() -> Path:
    """Return the folder for fetched data: ``$PENSTOCK_DATA``, or the platform's cache folder."""
    if chosen := os.environ.get("PENSTOCK_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "penstock"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "penstock"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def locate(spec: DatasetSpec, folder: str | Path | None = None) -> DatasetLocation | None:
    """Return where a data set is, or None. If a folder is given, no other is searched."""
    for place in _search_path(spec, folder):
        for layout in spec.layouts:
            with reading(place):
                path = layout.path_in(place)
            if path is not None:
                return DatasetLocation(path, layout)
    return None


def find_dataset(spec: DatasetSpec, folder: str | Path | None = None) -> DatasetLocation:
    """Return where a data set is, or raise a DataError with the folders searched and how to get it."""
    found = locate(spec, folder)
    if found is None:
        searched = "; ".join(f"{place} ({_what_is_missing(spec, place)})" for place in _search_path(spec, folder))
        raise DataError(
            f"{spec.name} not found. Searched: {searched}. To get it: {spec.advice}; or pass a folder with "
            f"{_expected_files(spec)}."
        )
    return found


def fetch_dataset(spec: DatasetSpec, *, progress: bool = False) -> DatasetLocation:
    """Return where a data set is, after downloading it into the cache if necessary.

    One process downloads at a time; others wait for it and use its result.

    Raises:
        DataError: if no source provided it, with the error of each.
        StorageError: if it cannot be written.
    """
    found = locate(spec)
    if found is not None:
        return found
    if not spec.fetchable:
        raise DataError(f"{spec.name} cannot be fetched automatically: {spec.advice}.")
    lock = cache_folder() / f"{spec.name}.lock"
    with wait_for_lock(lock, f"fetching {spec.name}", progress=progress):
        return locate(spec) or _fetch(spec, progress)


def _fetch(spec: DatasetSpec, progress: bool) -> DatasetLocation:
    """Try each source in turn."""
    failures = []
    for source in spec.fetchable:
        try:
            source.fetch(cache_folder() / spec.name, progress=progress)
        except DataError as error:
            failures.append(error)
        else:
            return find_dataset(spec)
    raise DataError(f"cannot fetch {spec.name}. " + " ".join(map(str, failures))) from failures[-1]


def _search_path(spec: DatasetSpec, folder: str | Path | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder).expanduser()
        return
    yield cache_folder() / spec.name
    for source in spec.sources:
        if isinstance(source, Installed) and source.folder is not None:
            yield source.folder


def _what_is_missing(spec: DatasetSpec, place: Path) -> str:
    """Return why a place does not hold the data set: the files missing from the most complete layout."""
    if not place.exists():
        return "does not exist"
    if not place.is_dir():
        return "neither a folder nor one of its archives"
    folders = [(layout, place / inner) for layout in spec.layouts for inner in ("", layout.inner or "")]
    missing, expected = min(
        ((layout.missing(folder), len(layout.files)) for layout, folder in folders),
        key=lambda pair: len(pair[0]) / pair[1],
    )
    return "none of its files" if len(missing) == expected else f"lacks {', '.join(missing)}"


def _expected_files(spec: DatasetSpec) -> str:
    archives = [layout.archive for layout in spec.layouts if layout.archive]
    files = [
        ", ".join(layout.files) if len(layout.files) <= 4 else f"{layout.files[0]} and {len(layout.files) - 1} others"
        for layout in spec.layouts
        if layout.files
    ]
    return ", or ".join(dict.fromkeys(archives + files))
