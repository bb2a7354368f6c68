"""Tar archives: unpacked completely or not at all, damaged."""

import errno
import itertools
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from helpers.archives import check_any_damage, packed
from penstock.datasets.fetch.sources import unpack
from penstock.errors import DataError, StorageError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return packed(tmp_path)


def test_a_damaged_archive_says_so_and_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cannot unpack .*set.tar.gz"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["in", "set.tar.gz"]


def test_any_damage_to_an_archive_is_a_damaged_archive(tmp_path: Path) -> None:
    numbers = itertools.count()
    check_any_damage(tmp_path, lambda archive: unpack(archive, tmp_path / f"out{next(numbers)}"))


def test_an_archive_writes_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("harm")
    with tarfile.open(tmp_path / "evil.tar", "w") as opened:
        opened.add(tmp_path / "evil", "../../harm")
    (tmp_path / "inner").mkdir()
    with pytest.raises(DataError, match=r"evil.tar"):
        unpack(tmp_path / "evil.tar", tmp_path / "inner" / "out")
    assert names(tmp_path) == ["evil", "evil.tar", "inner"]


def test_a_full_disk_while_unpacking_leaves_nothing(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "makefile", full)
    with pytest.raises(StorageError, match=r"out \(No space left"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["in", "set.tar.gz"]


def test_a_file_in_the_way_is_named_too(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StorageError, match=r"out: .*already exists"):
        unpack(archive, tmp_path / "out")
