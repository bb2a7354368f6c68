"""What the disk refuses: every loader names the file and says what to do, and none shows a traceback."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.data_files import (
    cifar,
    commands,
    every_picture,
    fashion,
    photographs,
    pictures,
    snips,
    sounds,
    wake_word,
    wake_words,
)
from penstock.datasets.disk import read_bytes, read_text, reading, stamp, storing
from penstock.datasets.sound_folder import sound_folder
from penstock.errors import DataError, StorageError
from reproduction.datasets.cifar10 import cifar10
from reproduction.datasets.fashion_mnist import fashion_mnist
from reproduction.datasets.hey_snips import hey_snips
from reproduction.datasets.imagenet import imagenet


def test_a_refusal_names_the_file_and_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=rf"{tmp_path}/a cannot be read \(No such file.*\): unpack or fetch the data ag"
    ):
        read_bytes(tmp_path / "a")
    with pytest.raises(
        DataError, match=rf"{tmp_path} cannot be read \(Is a directory\): a file is wanted there, and it"
    ):
        read_text(tmp_path)
    with pytest.raises(DataError, match=rf"{tmp_path}/a cannot be read \(No such file"):
        stamp(tmp_path / "a")
    with (
        pytest.raises(DataError, match=r"inner cannot be read \(Input/output error\): unpack or fetch"),
        reading(tmp_path),
    ):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "inner")
    with (
        pytest.raises(StorageError, match=rf"{tmp_path} could not be written: No space left on device. Nothing of it"),
        storing(tmp_path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "inner")


def test_a_text_is_read_and_another_file_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("α β", encoding="utf-8")
    assert read_text(tmp_path / "a") == "α β"
    (tmp_path / "a").write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"a is no text in UTF-8 \(.*\): take it from the data set's archive again"):
        read_text(tmp_path / "a")


def test_a_stamp_changes_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1")
    before = stamp(file)
    assert stamp(file) == before
    os.utime(file, (1, 1))
    assert stamp(file) != before


# --- a folder where a file is expected


IN_PLACE: list[tuple[Callable[[Path], None], Callable[[Path], object], str, str]] = [
    (fashion, fashion_mnist, "train-images-idx3-ubyte.gz", r"cannot be read \(Is a directory\): a file is wanted"),
    (cifar, cifar10, "data_batch_3.bin", r"lacks data_batch_3.bin: delete it and fetch it again"),
    (snips, hey_snips, "dev.json", r"dev.json cannot be read \(Is a directory\): a file is wanted"),
    (snips, wake_words, "test1.wav", r"test1.wav cannot be read \(Is a directory\): a file is wanted"),
    (commands, wake_word, "testing_list.txt", r"testing_list.txt is not a list of names \(.*Is a directory"),
    (
        commands,
        wake_word,
        "_background_noise_/a_nohash_0.wav",
        r"a_nohash_0.wav cannot be read \(Is a directory\): a file is wanted",
    ),
    (photographs, lambda root: imagenet(root, classes=2), "val_labels.txt", r"val_labels.txt is not there. Sort them"),
    (sounds, sound_folder, "train/bell/a.wav", r"train/bell has no sounds; .wav, .flac are read"),
    (pictures, every_picture, "test/other/a.png", r"test/other has no pictures; .png, .jpg, .jpeg are read"),
]


@pytest.mark.parametrize(("make", "load", "file", "text"), IN_PLACE, ids=[f"{case[2]}" for case in IN_PLACE])
def test_a_folder_in_the_place_of_a_file(
    tmp_path: Path, make: Callable[[Path], None], load: Callable[[Path], object], file: str, text: str
) -> None:
    make(tmp_path)
    (tmp_path / file).unlink()
    (tmp_path / file).mkdir()
    with pytest.raises(DataError, match=text):
        load(tmp_path)


# --- as somebody who may not

SOMEBODY = """
import os, sys, traceback
from helpers import data_files as files
from pathlib import Path
from penstock.datasets.fetch import catalogue, completeness
from penstock.datasets.fetch.download import Checksum
from penstock.datasets.wrist import wrist
from penstock.errors import PenstockError

catalogue.function_of("penstock.datasets.image_folder:count_pictures")
catalogue.function_of("penstock.datasets.sound_folder:count_sounds")
files.sound_folder("sounds/fine")  # whatever is imported late
files.every_picture(Path("pictures/fine"))
if os.geteuid() == 0:  # what it may, root may
    os.setuid(65_534)
os.environ["PENSTOCK_DATA"] = "locked"
attempts = {
    "a locked folder": lambda: catalogue.check("cifar10", "locked/x"),
    "a locked cache": lambda: files.fashion_mnist(),
    "fashion-mnist": lambda: files.fashion_mnist("fashion"),
    "cifar10": lambda: files.cifar10("cifar"),
    "a checksum": lambda: Checksum("md5", "").check(Path("cifar/test_batch.bin")),
    "hey-snips, list": lambda: files.hey_snips("snips"),
    "hey-snips, check": lambda: completeness.HasListedFiles().count(Path("snips")),
    "speech commands, list": lambda: files.wake_word(Path("commands/list")),
    "speech commands, check": lambda: completeness.HasClips(6).count(Path("commands/list")),
    "speech commands, word": lambda: files.wake_word(Path("commands/word")),
    "imagenet, labels": lambda: files.imagenet("photographs/labels", classes=2),
    "imagenet, val": lambda: files.imagenet("photographs/val", classes=2),
    "wrist": lambda: wrist("cifar/test_batch.bin"),
    "wrist, locked": lambda: wrist("locked/watch_dataset.npy"),
    "sounds, class": lambda: files.sound_folder("sounds/class"),
    "sounds, clip": lambda: files.sound_folder("sounds/clip"),
    "sounds, locked": lambda: files.sound_folder("locked/sounds"),
    "sounds, cache": lambda: files.sound_folder("sounds/fine", cache="locked/cache"),
    "pictures, class": lambda: catalogue.check("image-folder", "pictures/class"),
    "pictures, one": lambda: catalogue.check("image-folder", "pictures/one"),
    "the listing": lambda: sys.exit(catalogue.listing()[1].get),
    "a fetch": lambda: os.environ.update(PENSTOCK_DATA="unwritable") or catalogue.fetch("cifar10"),
}
for name, attempt in attempts.items():
    try:
        attempt()
        print(f"{name}: nothing")
    except PenstockError as error:
        print(f"{name}: {type(error).__name__}: {error}")
    except SystemExit as error:
        print(f"{name}: {error}")
    except Exception:
        print(f"{name}: {traceback.format_exc()}")
"""

FORBIDDEN = (
    "fashion/train-images-idx3-ubyte.gz",
    "cifar/test_batch.bin",
    "snips/train.json",
    "commands/list/testing_list.txt",
    "commands/word/no",
    "photographs/labels/val_labels.txt",
    "photographs/val/val",
    "sounds/class/train/bell",
    "sounds/clip/test/other/a.wav",
    "pictures/class/test/bell",
    "pictures/one/train/bell/a.png",
    "locked",
)


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    """Data sets in which something may not be read."""
    makers = {
        "fashion": fashion,
        "cifar": cifar,
        "snips": snips,
        "commands/list": commands,
        "commands/word": commands,
        "photographs/labels": photographs,
        "photographs/val": photographs,
        "sounds/class": sounds,
        "sounds/clip": sounds,
        "sounds/fine": sounds,
        "pictures/class": pictures,
        "pictures/one": pictures,
        "pictures/fine": pictures,
    }
    for name, make in makers.items():
        (tmp_path / name).mkdir(parents=True)
        make(tmp_path / name)
    (tmp_path / "locked" / "x").mkdir(parents=True)
    (tmp_path / "unwritable").mkdir(mode=0o555)
    tmp_path.chmod(0o755)
    for name in FORBIDDEN:
        (tmp_path / name).chmod(0)
    yield tmp_path
    for name in FORBIDDEN:
        (tmp_path / name).chmod(0o755)


def test_no_loader_shows_a_traceback_to_somebody_who_may_not_read(forbidden: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SOMEBODY]
    done = subprocess.run(command, cwd=forbidden, env=environment, capture_output=True, text=True, check=True)
    answers = dict(line.split(": ", 1) for line in done.stdout.splitlines() if ": " in line)
    assert "Traceback" not in done.stdout, done.stdout
    refused = {
        "a locked folder": "locked/x",
        "a locked cache": "locked/fashion-mnist",
        "fashion-mnist": "fashion/train-images-idx3-ubyte.gz",
        "cifar10": "cifar/test_batch.bin",
        "a checksum": "cifar/test_batch.bin",
        "hey-snips, list": "snips/train.json",
        "hey-snips, check": "snips/train.json",
        "speech commands, check": "commands/list/testing_list.txt",
        "speech commands, word": "commands/word/no",
        "imagenet, labels": "photographs/labels/val_labels.txt",
        "imagenet, val": "photographs/val/val",
        "wrist": "cifar/test_batch.bin",
        "wrist, locked": "locked/watch_dataset.npy",
        "sounds, class": "sounds/class/train/bell",
        "sounds, clip": "sounds/clip/test/other/a.wav",
        "sounds, locked": "locked/sounds",
        "sounds, cache": "locked/cache",
        "pictures, class": "pictures/class/test/bell",
    }
    for name, file in refused.items():
        assert answers[name].startswith(f"DataError: {file}"), answers[name]
        assert "cannot be read (Permission denied): ask its owner for the right to read it" in answers[name]
    assert "testing_list.txt is not a list of names ([Errno 13] Permission denied" in answers["speech commands, list"]
    assert "1 of the 4 pictures are of no use. pictures/one/train/bell/a.png cannot" in answers["pictures, one"]
    assert answers["the listing"].startswith("locked/cifar10") and "Permission denied" in answers["the listing"]
    assert answers["a fetch"].startswith(
        "StorageError: unwritable/cifar10.lock could not be written and locked: Permission denied"
    )
    assert len(answers) == len(refused) + 4
