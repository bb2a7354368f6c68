"""Files read from a tar archive: in any order, and from a damaged one."""

import tarfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError
from reproduction.datasets.archives import read_files


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("a")
    (tmp_path / "in" / "b.txt").write_text("b")
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as opened:
        opened.add(tmp_path / "in", "package")
    return tmp_path / "set.tar.gz"


def test_files_are_read_from_an_archive_as_from_a_folder(archive: Path) -> None:
    from_folder = read_files(archive.parent / "in", ["a.txt", "b.txt"])
    assert read_files(archive, ["a.txt", "b.txt"]) == from_folder == {"a.txt": b"a", "b.txt": b"b"}
    for place in (archive, archive.parent / "in"):
        with pytest.raises(DataError, match=r"lacks c.txt"):
            read_files(place, ["a.txt", "c.txt"])


@given(st.permutations(["a.txt", "b.txt", "c.txt"]), st.permutations(["a.txt", "b.txt", "c.txt"]))
def test_files_come_in_the_order_that_is_asked_for(
    tmp_path_factory: pytest.TempPathFactory, packed: list[str], asked: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("shuffled")
    with tarfile.open(folder / "set.tar", "w") as opened:
        for name in packed:
            (folder / name).write_text(name)
            opened.add(folder / name, f"package/{name}")
    assert list(read_files(folder / "set.tar", asked)) == list(read_files(folder, asked)) == asked


def test_a_truncated_archive_is_an_error(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"cannot read .*set.tar.gz"):
        read_files(archive, ["a.txt"])


def test_any_damage_to_an_archive_is_a_damaged_archive(tmp_path: Path) -> None:
    """One bit in a hundred bytes is turned around: zlib, gzip and tar each have errors of their own."""
    words = np.random.default_rng(0).choice(["foo ", "bar ", "quux "], 40_000)
    (tmp_path / "a.txt").write_text("".join(words))
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as opened:
        opened.add(tmp_path / "a.txt", "package/a.txt")
    content, errors = (tmp_path / "set.tar.gz").read_bytes(), 0
    for at in range(0, len(content), 100):
        harmed = bytearray(content)
        harmed[at] ^= 1 << at // 100 % 8
        (tmp_path / "set.tar.gz").write_bytes(harmed)
        try:
            read_files(tmp_path / "set.tar.gz", ["a.txt"])
        except DataError:
            errors += 1
    assert errors
