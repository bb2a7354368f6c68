"""`penstock data`."""

import json
from importlib.util import find_spec

import pytest

from helpers.data_files import own_folders
from penstock.datasets.fetch.table import CATALOGUE


def test_data_sets_are_listed(typed, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    text = typed("data", "list").out
    assert max(map(len, text.splitlines())) <= 100
    assert "`penstock data fetch speech-commands-v0.02`" in text
    rows = {row["name"]: row for row in json.loads(typed("data", "list", "--json").out)}
    assert rows["speech-commands-v0.02"]["found"] is None
    assert rows["speech-commands-v0.02"]["licence"] == "CC BY 4.0"


@pytest.mark.skipif(find_spec("seglearn") is None, reason="needs the wrist data: pip install --no-deps seglearn")
def test_a_data_set_is_fetched_and_checked(typed, tmp_path):
    assert typed("data", "fetch", "wrist").out.endswith("watch_dataset.npy\n")
    assert "wrist is complete: train 5,293, validation 2,000, test 1,983." in typed("data", "check", "wrist").out
    checked = json.loads(typed("data", "check", "wrist", "--json").out)
    assert checked["samples"] == {"train": 5293, "validation": 2000, "test": 1983}
    done = typed("data", "check", "wrist", "--folder", str(tmp_path), code=1)
    assert "wrist not found" in done.err
    assert "unknown data set 'mnist'" in typed("data", "fetch", "mnist", code=1).err


def test_the_list_explains_folders_of_ones_own(typed, tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_DATA", str(tmp_path))
    text = " ".join(typed("data", "list").out.split())
    for name, loader in (("image-folder", "image_folder"), ("sound-folder", "sound_folder")):
        assert f"penstock.datasets.{loader}" in text and f"penstock data check {name} --folder FOLDER" in text
    rows = json.loads(typed("data", "list", "--json").out)
    assert [row["name"] for row in rows] == [entry.spec.name for entry in CATALOGUE.entries]


@pytest.mark.parametrize("name", list(CATALOGUE.folders))
def test_a_check_prints_the_samples_of_each_class(typed, tmp_path, name):
    own_folders(tmp_path)
    folder = tmp_path / name
    (folder / "bell").rename(folder / "[bell]")
    text = typed("data", "check", name, "--folder", str(folder)).out
    rows = [line.split() for line in text.splitlines()]
    for row in (["class", "train", "validation", "test"], ["[bell]", "7", "1", "2"], ["other", "7", "1", "2"]):
        assert row in rows
    assert f"{name} is complete: train 14, validation 2, test 4." in text
    checked = json.loads(typed("data", "check", name, "--folder", str(folder), "--json").out)
    assert checked["classes"]["test"] == {"[bell]": 2, "other": 2}
    assert f"penstock data check {name} --folder FOLDER" in typed("data", "check", name, code=1).err
