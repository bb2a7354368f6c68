"""A small tar archive, and archives with every kind of damage."""

import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from penstock.errors import DataError


def packed(folder: Path) -> Path:
    """Make `set.tar.gz` of a folder with a.txt and b.txt, which is called package in it."""
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("a")
    (folder / "in" / "b.txt").write_text("b")
    with tarfile.open(folder / "set.tar.gz", "w:gz") as opened:
        opened.add(folder / "in", "package")
    return folder / "set.tar.gz"


def check_any_damage(folder: Path, read: Callable[[Path], object]) -> None:
    """Turn one bit in a hundred bytes around, and expect no error but a DataError.

    zlib, gzip and tar each have errors of their own.
    """
    words = np.random.default_rng(0).choice(["foo ", "bar ", "quux "], 40_000)
    (folder / "a.txt").write_text("".join(words))
    archive = folder / "set.tar.gz"
    with tarfile.open(archive, "w:gz") as opened:
        opened.add(folder / "a.txt", "package/a.txt")
    content, errors = archive.read_bytes(), 0
    for at in range(0, len(content), 100):
        harmed = bytearray(content)
        harmed[at] ^= 1 << at // 100 % 8
        archive.write_bytes(harmed)
        try:
            read(archive)
        except DataError:
            errors += 1
    assert errors
