"""Where data sets are looked for, and how they are fetched."""

import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.archives import packed
from helpers.file_server import CONTENT, Server
from penstock.datasets.fetch.locations import (
    DatasetLayout,
    DatasetSpec,
    cache_folder,
    fetch_dataset,
    find_dataset,
    locate,
)
from penstock.datasets.fetch.sources import OfficialArchive, PythonPackage, unpack
from penstock.errors import DataError, StorageError


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return packed(tmp_path)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toys"


def toys(*sources: Any) -> DatasetSpec:
    return DatasetSpec(
        "toys", (DatasetLayout("loose", ("a.txt", "b.txt"), inner="package", archive="toys.tar.gz"),), sources
    )


def filled(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file).write_text(file)
    return folder


def test_the_cache_folder_is_what_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("PENSTOCK_DATA", "~/big")
    assert cache_folder() == Path.home() / "big"
    monkeypatch.setenv("PENSTOCK_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/penstock")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "penstock"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache_folder() == Path.home() / "Library" / "Caches" / "penstock"


def test_the_cache_is_searched_before_an_installed_package(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = filled(tmp_path / "toy_package" / "data", "a.txt", "b.txt")
    (tmp_path / "toy_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    spec = toys(PythonPackage("toy_package", "data"))
    assert find_dataset(spec).path == installed, "without importing it"
    assert find_dataset(spec, None).path == installed
    filled(cache / "package", "a.txt", "b.txt")
    assert find_dataset(spec).path == cache / "package"
    filled(cache, "toys.tar.gz")
    assert find_dataset(spec).path == cache / "toys.tar.gz"


def test_a_given_folder_is_the_only_one_looked_at(cache: Path, tmp_path: Path) -> None:
    filled(cache, "a.txt", "b.txt")
    spec = toys()
    assert locate(spec) is not None
    with pytest.raises(DataError, match=rf"{tmp_path}/mine \(does not exist\)\. "):
        find_dataset(spec, tmp_path / "mine")
    mine = filled(tmp_path / "mine", "toys.tar.gz")
    assert find_dataset(spec, mine).path == find_dataset(spec, mine / "toys.tar.gz").path == mine / "toys.tar.gz"


def test_a_part_of_a_download_is_not_found(cache: Path) -> None:
    filled(cache, "toys.tar.gz.part", "a.txt")
    assert locate(toys()) is None


# --- fetching


def test_an_official_archive_is_unpacked_and_deleted(cache: Path, server: Server, archive: Path) -> None:
    server.content = archive.read_bytes()
    source = OfficialArchive(server.file(server.content, file="toys.tar"), "toys-1")
    spec = DatasetSpec("toys", (DatasetLayout("loose", ("package/a.txt", "package/b.txt"), inner="toys-1"),), (source,))
    assert fetch_dataset(spec).path == cache / "toys-1"
    assert names(cache) == ["toys-1"]
    assert (cache / "toys-1" / "package" / "b.txt").read_text() == "b"


def test_an_archive_that_lies_in_the_cache_is_checked_before_it_is_unpacked(
    cache: Path, server: Server, archive: Path
) -> None:
    content = archive.read_bytes()
    spec = DatasetSpec(
        "toys",
        (DatasetLayout("loose", ("package/a.txt",), inner="toys-1"),),
        (OfficialArchive(server.file(content, file="toys.tar"), "toys-1"),),
    )
    cache.mkdir(parents=True)
    (archive.parent / "in" / "a.txt").write_text("another a")
    with tarfile.open(cache / "toys.tar", "w") as other:
        other.add(archive.parent / "in", "package")
    with pytest.raises(DataError, match=r"toys.tar .*expected sha256"):
        fetch_dataset(spec)
    assert names(cache) == ["toys.tar"]
    (cache / "toys.tar").write_bytes(content)
    assert fetch_dataset(spec).path == cache / "toys-1"
    assert server.starts == []  # nothing was downloaded


# --- two processes at a time

FETCHER = """
import sys
from penstock.datasets.fetch.download import Checksum, Download
from penstock.datasets.fetch.locations import DatasetLayout, DatasetSpec, fetch_dataset
from penstock.datasets.fetch.sources import OfficialArchive
url, digest, size = sys.argv[1:]
file = Download(url, "toys.tar", Checksum("sha256", digest), int(size))
layout, source = DatasetLayout("loose", ("package/big.bin",), inner="toys-1"), OfficialArchive(file, "toys-1")
print(fetch_dataset(DatasetSpec("toys", (layout,), (source,)), progress=True).path)
"""


@pytest.fixture
def fetcher(cache: Path, server: Server, tmp_path: Path) -> Iterator[Callable[[], "subprocess.Popen[str]"]]:
    """Start processes that fetch a tar of 3 MB; the server stops after 2 MB of it until it is told to go on."""
    (tmp_path / "big.bin").write_bytes(CONTENT)
    with tarfile.open(tmp_path / "toys.tar", "w") as opened:
        opened.add(tmp_path / "big.bin", "package/big.bin")
    server.content = (tmp_path / "toys.tar").read_bytes()
    server.goes_on.clear()
    started: list[subprocess.Popen[str]] = []
    file = server.file(server.content)

    def start() -> "subprocess.Popen[str]":
        arguments = (file.url, file.checksum.digest, str(file.size_bytes))
        command = [sys.executable, "-c", FETCHER, *arguments]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    server.goes_on.set()
    for process in started:
        process.kill()
        process.communicate()


def until(true: Callable[[], bool]) -> None:
    for _ in range(1000):
        if true():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that within 20 s")


def test_a_second_process_waits_and_downloads_nothing(
    cache: Path, server: Server, fetcher: Callable[[], "subprocess.Popen[str]"]
) -> None:
    first = fetcher()
    until(lambda: server.starts == [0])
    second = fetcher()
    assert second.stderr is not None
    line = second.stderr.readline()
    assert "waiting" in line and "fetching toys" in line
    server.goes_on.set()
    answers = [process.communicate(timeout=20) for process in (first, second)]
    place = cache / "toys-1"
    assert [out for out, _ in answers] == [f"{place}\n", f"{place}\n"], answers
    assert server.starts == [0]
    assert (place / "package" / "big.bin").read_bytes() == CONTENT


def test_after_a_kill_the_one_that_waits_goes_on_from_there(
    cache: Path, server: Server, fetcher: Callable[[], "subprocess.Popen[str]"]
) -> None:
    first = fetcher()
    until(lambda: (cache / "toys.tar.part").is_file() and (cache / "toys.tar.part").stat().st_size > 0)
    second = fetcher()
    assert second.stderr is not None and "waiting" in second.stderr.readline()
    first.kill()
    first.wait()
    server.goes_on.set()
    out, error = second.communicate(timeout=20)
    assert out == f"{cache / 'toys-1'}\n", error
    assert len(server.starts) == 2 and server.starts[0] == 0 < server.starts[1]
    assert (cache / "toys-1" / "package" / "big.bin").read_bytes() == CONTENT


def test_a_lock_that_cannot_be_made_is_named(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"file/toys.lock .*(Not a directory|File exists)"):
        fetch_dataset(toys(OfficialArchive(server.file(), "toys-1")))
    assert server.starts == []


# --- a folder that is in the way


def test_what_is_in_the_way_is_said_before_anything_is_downloaded(cache: Path, server: Server, archive: Path) -> None:
    server.content = archive.read_bytes()
    source = OfficialArchive(server.file(server.content, file="toys.tar"), "toys-1")
    spec = DatasetSpec("toys", (DatasetLayout("loose", ("package/a.txt",), inner="toys-1"),), (source,))
    filled(cache / "toys-1" / "package", "b.txt")
    text = rf"{cache}/toys-1: .*not empty"
    for ask in (lambda: fetch_dataset(spec), lambda: unpack(archive, cache / "toys-1")):
        with pytest.raises(StorageError, match=text):
            ask()
    assert server.starts == []
    assert names(cache / "toys-1" / "package") == ["b.txt"]
    (cache / "toys-1").rename(cache / "elsewhere")
    (cache / "toys-1").mkdir()  # an empty one is not in the way
    assert fetch_dataset(spec).path == cache / "toys-1"
    assert names(cache / "toys-1" / "package") == ["a.txt", "b.txt"]
