"""Files that a loader cannot read: the error names the file, without a traceback."""

import errno
import os
from pathlib import Path

import pytest

from helpers.data_files import commands, every_command, every_image, images, sounds
from helpers.permissions import FolderInPlace, check_forbidden
from penstock.datasets import sound_folder
from penstock.datasets.files import file_stamp, read_bytes, read_text, reading, storing
from penstock.errors import DataError, StorageError


def test_an_error_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=rf"{tmp_path}/a \(No such file"):
        read_bytes(tmp_path / "a")
    with pytest.raises(DataError, match=rf"{tmp_path} \(Is a directory\)"):
        read_text(tmp_path)
    with pytest.raises(DataError, match=rf"{tmp_path}/a \(No such file"):
        file_stamp(tmp_path / "a")
    with (
        pytest.raises(DataError, match=r"inner \(Input/output error\)"),
        reading(tmp_path),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "inner")
    with (
        pytest.raises(StorageError, match=rf"{tmp_path} \(No space left on device\)"),
        storing(tmp_path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "inner")


def test_only_utf8_is_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("α β", encoding="utf-8")
    assert read_text(tmp_path / "a") == "α β"
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"a is not UTF-8"):
        read_text(tmp_path / "a")


def test_a_stamp_changes_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1")
    before = file_stamp(file)
    assert file_stamp(file) == before
    os.utime(file, (1, 1))
    assert file_stamp(file) != before


# --- a folder where a file is expected


IN_PLACE = [
    FolderInPlace(commands, every_command, "testing_list.txt", r"testing_list.txt .*Is a directory"),
    FolderInPlace(commands, every_command, "_background_noise_/a_nohash_0.wav", r"a_nohash_0.wav \(Is a directory\)"),
    FolderInPlace(sounds, sound_folder, "train/bell/a.wav", r"train/bell has no sounds"),
    FolderInPlace(images, every_image, "test/other/a.png", r"test/other has no images"),
]


@pytest.mark.parametrize("case", IN_PLACE, ids=lambda case: case.file)
def test_a_folder_in_the_place_of_a_file_is_an_error(tmp_path: Path, case: FolderInPlace) -> None:
    case.check(tmp_path)


# --- without permission

SETUP = """
from helpers import data_files as files
from penstock.datasets import sound_folder
from penstock.datasets.fetch.catalogue import import_function
from penstock.datasets.fetch.download import Checksum
from penstock.datasets.fetch.table import CATALOGUE
from penstock.datasets.speech_commands import count_clips
from penstock.datasets.wrist import wrist

for folder_format in CATALOGUE.folders.values():
    import_function(folder_format.count)
sound_folder("sounds/fine")
files.every_image(Path("images/fine"))
"""

ATTEMPTS = {  # name: (call, file that the error names)
    "a locked folder": ("CATALOGUE.check('speech-commands-v0.02', 'locked/x')", "locked/x"),
    "a locked cache": ("CATALOGUE.check('speech-commands-v0.02')", "locked/speech-commands-v0.02"),
    "a checksum": ("Checksum('md5', '').check(Path('secret.npy'))", "secret.npy"),
    "speech commands, list": ("files.every_command(Path('commands/list'))", "commands/list/testing_list.txt"),
    "speech commands, check": ("count_clips(Path('commands/list'), expected=6)", "commands/list/testing_list.txt"),
    "speech commands, word": ("files.every_command(Path('commands/word'))", "commands/word/no"),
    "wrist": ("wrist('secret.npy')", "secret.npy"),
    "wrist, locked": ("wrist('locked/watch_dataset.npy')", "locked/watch_dataset.npy"),
    "sounds, class": ("sound_folder('sounds/class')", "sounds/class/train/bell"),
    "sounds, clip": ("sound_folder('sounds/clip')", "sounds/clip/test/other/a.wav"),
    "sounds, locked": ("sound_folder('locked/sounds')", "locked/sounds"),
    "sounds, cache": ("sound_folder('sounds/fine', cache='locked/cache')", "locked/cache"),
    "images, class": ("CATALOGUE.check('image-folder', 'images/class')", "images/class/test/bell"),
    "images, one": ("CATALOGUE.check('image-folder', 'images/one')", "images/one/train/bell/a.png"),
}

MAKERS = {
    "commands/list": commands,
    "commands/word": commands,
    "sounds/class": sounds,
    "sounds/clip": sounds,
    "sounds/fine": sounds,
    "images/class": images,
    "images/one": images,
    "images/fine": images,
}


def test_no_loader_shows_a_traceback_without_permission(tmp_path: Path) -> None:
    (tmp_path / "secret.npy").write_bytes(b"")
    errors = check_forbidden(tmp_path, MAKERS, SETUP, ATTEMPTS, listed="speech-commands-v0.02")
    assert "1 of 4 images" in errors["images, one"]
