"""Files read from a tar archive: in any order, and from a damaged one."""

import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.archives import check_any_damage, packed
from penstock.errors import DataError
from reproduction.datasets.archives import read_files


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return packed(tmp_path)


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
    check_any_damage(tmp_path, lambda archive: read_files(archive, ["a.txt"]))
