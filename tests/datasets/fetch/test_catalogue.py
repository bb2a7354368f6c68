"""The catalogue: listing, fetching and checking."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from helpers.data_files import own_folders
from penstock.datasets.fetch.catalogue import Catalogue, count_loaded, import_function
from penstock.datasets.fetch.table import CATALOGUE
from penstock.datasets.speech_commands import count_clips
from penstock.errors import DataError

ROOT = Path(__file__).parents[3]


@pytest.fixture
def nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    return tmp_path


def test_the_listing_loads_no_loader_and_no_torch() -> None:
    code = (
        "import sys; from penstock.datasets.fetch.table import CATALOGUE\n"
        "CATALOGUE.listing(); print('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_listing_has_the_location_or_how_to_get_it(nothing: Path) -> None:
    rows = {row.name: row for row in CATALOGUE.listing()}
    assert list(rows) == ["wrist", "speech-commands-v0.01", "speech-commands-v0.02"]
    assert rows["speech-commands-v0.02"].found is None
    assert rows["speech-commands-v0.02"].get.startswith("`penstock data fetch speech-commands-v0.02` (2.4 GB")
    folder = nothing / "speech-commands-v0.02"
    folder.mkdir()
    for name in ("validation_list.txt", "testing_list.txt"):
        (folder / name).write_text("")
    assert {row.name: row.found for row in CATALOGUE.listing()}[folder.name] == str(folder)


def test_an_unknown_name_lists_the_known_ones() -> None:
    for ask in (CATALOGUE.fetch, CATALOGUE.check):
        with pytest.raises(DataError, match=r"'mnist'.*wrist, speech-commands.*, image-folder, sound-folder\."):
            ask("mnist")


TOY_LOADER = """
import torch
from torch.utils.data import TensorDataset
from penstock.datasets.splits import Splits

def toys(at):
    assert at.name == "toys"
    return Splits((torch.zeros(5, 2), torch.zeros(5)), TensorDataset(torch.zeros(3)), ("background", "toy"))
"""


def test_a_data_set_that_its_loader_reads_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_loader.py").write_text(TOY_LOADER)
    monkeypatch.syspath_prepend(tmp_path)
    assert count_loaded("toy_loader:toys", Path("toys")) == {"train": 5, "test": 3}


# --- folders of one's own


@pytest.mark.parametrize("name", list(CATALOGUE.folders))
def test_functions_of_own_folders_are_there(name: str) -> None:
    folder_format = CATALOGUE.folders[name]
    assert callable(import_function(folder_format.loader.replace("penstock.datasets.", "penstock.datasets:")))
    assert callable(import_function(folder_format.count))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    own_folders(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "file"), [("image-folder", "3.png"), ("sound-folder", "3.wav")])
def test_a_folder_of_ones_own_is_read_and_counted(own: Path, name: str, file: str) -> None:
    checked = CATALOGUE.check(name, own / name)
    assert checked.found == str(own / name)
    assert checked.samples == {"train": 14, "validation": 2, "test": 4}
    assert checked.classes == {
        part: {"bell": count, "other": count} for part, count in (("train", 7), ("validation", 1), ("test", 2))
    }
    (own / name / "bell" / file).write_bytes(b"something else")
    with pytest.raises(DataError, match=rf"1 of 20 \w+ .*bell/{file} "):
        CATALOGUE.check(name, own / name)


@pytest.mark.parametrize(("name", "files"), [("image-folder", "images"), ("sound-folder", "sounds")])
def test_a_folder_of_ones_own_must_be_named_and_is_not_fetched(name: str, files: str) -> None:
    with pytest.raises(DataError, match=rf"{name} .*{files}.*`penstock data check {name} --folder FOLDER`"):
        CATALOGUE.check(name)
    with pytest.raises(DataError, match=rf"{name} .*{files}.*penstock data list"):
        CATALOGUE.fetch(name)


# --- sets of sounds


@pytest.fixture
def words(nothing: Path) -> Path:
    """Speech Commands' layout with six clips."""
    folder = nothing / "speech-commands-v0.02" / "speech_commands_v0.02"
    for name in ("yes/a.wav", "yes/b.wav", "no/a.wav", "no/b.wav", "no/c.wav", "go/a.wav", "_background_noise_/n.wav"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    (folder / "validation_list.txt").write_text("yes/a.wav\n")
    (folder / "testing_list.txt").write_text("no/a.wav\nno/c.wav\n")
    return folder


SIX = replace(CATALOGUE.entry("speech-commands-v0.02"), count=partial(count_clips, expected=6))
SIX_CLIPS = Catalogue("toys", (SIX,))


def test_clips_are_counted(words: Path) -> None:
    checked = SIX_CLIPS.check("speech-commands-v0.02")
    assert checked.samples == {"train": 3, "validation": 1, "test": 2}
    assert checked.found == str(words)


def test_missing_clips_are_found(words: Path) -> None:
    (words / "yes" / "b.wav").unlink()
    with pytest.raises(DataError, match=r"6 clips .*found 5"):
        SIX_CLIPS.check("speech-commands-v0.02")
    (words / "no" / "c.wav").unlink()
    with pytest.raises(DataError, match=r"lacks 1 .*3 .*no/c.wav"):
        SIX_CLIPS.check("speech-commands-v0.02")


def test_a_subset_in_zips_is_not_checked_against_the_official_lists(words: Path) -> None:
    shutil.rmtree(words / "yes")
    (words / "train.zip").write_bytes(b"")
    with pytest.raises(DataError, match=r"speech_commands_v0.02 has train.zip"):
        SIX_CLIPS.check("speech-commands-v0.02")


def test_fetching_an_incomplete_data_set_is_an_error(words: Path) -> None:
    assert SIX_CLIPS.fetch("speech-commands-v0.02").path == words
    (words / "no" / "c.wav").unlink()
    with pytest.raises(DataError, match=r"lacks 1 .*3 .*no/c.wav"):
        SIX_CLIPS.fetch("speech-commands-v0.02")
    (words / "train.zip").write_bytes(b"")
    with pytest.raises(DataError, match=r"train.zip.*move the subset away"):
        SIX_CLIPS.fetch("speech-commands-v0.02")


@pytest.mark.parametrize("version", ["v0.01"])
def test_the_lists_of_the_official_release_fit_its_count(version: str) -> None:
    lists = ROOT.parent / "shared" / "data" / f"speech_commands_{version}_subset"
    if not lists.is_dir():
        pytest.skip("needs the subset of Speech Commands beside the repository, in ../shared/data")
    held_out = sum(len((lists / name).read_text().split()) for name in ("validation_list.txt", "testing_list.txt"))
    count = CATALOGUE.entry(f"speech-commands-{version}").count
    assert isinstance(count, partial) and count.func is count_clips
    assert 0.15 < held_out / count.keywords["expected"] < 0.25  # a tenth each


def test_a_bar_is_shown_on_a_terminal_and_nowhere_else(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    CATALOGUE.check("image-folder", own / "image-folder")
    assert capsys.readouterr() == ("", "")
    code = (
        "from penstock.datasets.fetch.table import CATALOGUE; import sys; CATALOGUE.check('image-folder', sys.argv[1])"
    )
    ours, theirs = os.openpty()
    subprocess.run([sys.executable, "-c", code, str(own / "image-folder")], stderr=theirs, check=True)
    os.close(theirs)
    shown = os.read(ours, 100_000)
    os.close(ours)
    assert b"reading images" in shown
