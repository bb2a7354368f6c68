"""Downloads from a real server that misbehaves in every way."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from helpers.file_server import CONTENT, Server
from penstock.datasets.fetch.download import Checksum, download
from penstock.errors import DataError, StorageError


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_whole_download(server: Server, tmp_path: Path, tells_length: bool) -> None:
    server.tells_length = tells_length
    file = download(server.file(), tmp_path / "new")
    assert file.read_bytes() == CONTENT
    assert names(tmp_path / "new") == ["set.bin"]


@pytest.mark.parametrize("tells_length", [True, False])
def test_a_cut_connection_keeps_what_came_and_the_next_try_goes_on_there(
    server: Server, tmp_path: Path, tells_length: bool
) -> None:
    server.cut_at, server.tells_length = 2_000_000, tells_length
    with pytest.raises(DataError, match=r"2,000,000 of 3,072,000 bytes"):
        download(server.file(), tmp_path)
    assert names(tmp_path) == ["set.bin.part"]  # never mistaken for the complete file
    server.cut_at = None
    assert download(server.file(), tmp_path).read_bytes() == CONTENT
    assert server.starts == [0, 2_000_000]
    assert names(tmp_path) == ["set.bin"]


@settings(max_examples=15, deadline=None)
@given(have=st.integers(0, len(CONTENT) + 5), ranges=st.booleans())
@example(have=len(CONTENT), ranges=True)
@example(have=len(CONTENT) + 5, ranges=True)
def test_whatever_part_is_there_the_file_becomes_whole(
    tmp_path_factory: pytest.TempPathFactory, have: int, ranges: bool
) -> None:
    server, folder = Server(), tmp_path_factory.mktemp("downloads")
    server.ranges = ranges
    (folder / "set.bin.part").write_bytes((CONTENT + b"extra")[:have])
    try:
        assert download(server.file(), folder).read_bytes() == CONTENT
        if have == len(CONTENT):
            assert server.starts == []  # nothing is left to ask for
    finally:
        server.close()


def test_a_wrong_checksum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    wrong = server.file(checksum=Checksum("md5", "0" * 32))
    with pytest.raises(DataError, match=r"set.bin.part .*md5 0+, .*[0-9a-f]{32}"):
        download(wrong, tmp_path)
    assert names(tmp_path) == []


def test_a_part_of_another_file_is_not_trusted_twice(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(b"of something else")
    with pytest.raises(DataError, match="discarded"):
        download(server.file(), tmp_path)
    assert download(server.file(), tmp_path).read_bytes() == CONTENT


def test_a_login_page_in_its_place_is_not_written(server: Server, tmp_path: Path) -> None:
    server.content = b"<html>please log in</html>"
    with pytest.raises(DataError, match=r"3,072,000 bytes .*got 26"):
        download(server.file(), tmp_path)
    assert names(tmp_path) == []


def test_a_server_that_sends_too_much_is_not_listened_to(server: Server, tmp_path: Path) -> None:
    server.tells_length = False
    assert download(server.file(CONTENT[:1000]), tmp_path).read_bytes() == CONTENT[:1000]


def test_a_missing_file_says_404(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match=r"set.bin returned 404"):
        download(server.file(), tmp_path)


def test_a_part_that_the_server_cannot_go_on_from_is_given_up(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:1000]
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:2000])
    with pytest.raises(DataError, match="416"):
        download(server.file(), tmp_path)
    assert names(tmp_path) == []


def test_without_a_network_the_error_says_so(tmp_path: Path) -> None:
    gone = Server()
    gone.close()
    with pytest.raises(DataError, match=r"cannot reach .*refused"):
        download(gone.file(), tmp_path)


def test_a_disk_with_too_little_room_is_seen_before_anything_is_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
    with pytest.raises(StorageError, match=r"3 MB.* 1 MB.*PENSTOCK_DATA"):
        download(server.file(), tmp_path)
    assert names(tmp_path) == []
    assert server.starts == []


LIMITED = """
import resource, signal, sys
from pathlib import Path
from penstock.datasets.fetch.download import Checksum, Download, download
from penstock.errors import StorageError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
try:
    download(Download(sys.argv[1], "set.bin", Checksum("md5", ""), 3_072_000), Path(sys.argv[2]))
except StorageError as error:
    print(error)
"""


def test_a_disk_that_is_full_in_the_middle_leaves_nothing(server: Server, tmp_path: Path) -> None:
    """The system lets the process write 1.5 MB and no more."""
    command = [sys.executable, "-c", LIMITED, server.file().url, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "set.bin.part (File too large)" in done.stdout
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"(Not a directory|File exists)"):
        download(server.file(), tmp_path / "file")


def test_a_progress_bar_goes_to_standard_error_alone(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download(server.file(), tmp_path, progress=True)
    assert capsys.readouterr().out == ""
