"""What the disk refuses: the paper's loaders name the file, and none shows a traceback."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.data_files import commands
from helpers.paper_files import cifar, fashion, photographs, snips, wake_word, wake_words
from helpers.permissions import errors_as_nobody, unreadable
from penstock.errors import DataError
from reproduction.datasets.cifar10 import cifar10
from reproduction.datasets.fashion_mnist import fashion_mnist
from reproduction.datasets.hey_snips import hey_snips
from reproduction.datasets.imagenet import imagenet

IN_PLACE: list[tuple[Callable[[Path], None], Callable[[Path], object], str, str]] = [
    (fashion, fashion_mnist, "train-images-idx3-ubyte.gz", r"train-images-idx3-ubyte.gz \(Is a directory\)"),
    (cifar, cifar10, "data_batch_3.bin", r"lacks data_batch_3.bin"),
    (snips, hey_snips, "dev.json", r"dev.json \(Is a directory\)"),
    (snips, wake_words, "test1.wav", r"test1.wav \(Is a directory\)"),
    (commands, wake_word, "testing_list.txt", r"testing_list.txt .*Is a directory"),
    (commands, wake_word, "_background_noise_/a_nohash_0.wav", r"a_nohash_0.wav \(Is a directory\)"),
    (photographs, lambda root: imagenet(root, classes=2), "val_labels.txt", r"val_labels.txt does not exist"),
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


SETUP = """
import soundfile
import PIL.Image
from helpers.paper_files import wake_word
from reproduction.datasets.catalogue import CATALOGUE, HasListedFiles
from reproduction.datasets.cifar10 import cifar10
from reproduction.datasets.fashion_mnist import fashion_mnist
from reproduction.datasets.hey_snips import hey_snips
from reproduction.datasets.imagenet import imagenet
"""

ATTEMPTS = {  # name: (call, file that the error names)
    "a locked folder": ("CATALOGUE.check('cifar10', 'locked/x')", "locked/x"),
    "a locked cache": ("fashion_mnist()", "locked/fashion-mnist"),
    "fashion-mnist": ("fashion_mnist('fashion')", "fashion/train-images-idx3-ubyte.gz"),
    "cifar10": ("cifar10('cifar')", "cifar/test_batch.bin"),
    "hey-snips, list": ("hey_snips('snips')", "snips/train.json"),
    "hey-snips, check": ("HasListedFiles().count(Path('snips'))", "snips/train.json"),
    "speech commands, list": ("wake_word(Path('commands/list'))", "commands/list/testing_list.txt"),
    "speech commands, word": ("wake_word(Path('commands/word'))", "commands/word/no"),
    "imagenet, labels": ("imagenet('photographs/labels', classes=2)", "photographs/labels/val_labels.txt"),
    "imagenet, val": ("imagenet('photographs/val', classes=2)", "photographs/val/val"),
}

FORBIDDEN = (
    "fashion/train-images-idx3-ubyte.gz",
    "cifar/test_batch.bin",
    "snips/train.json",
    "commands/list/testing_list.txt",
    "commands/word/no",
    "photographs/labels/val_labels.txt",
    "photographs/val/val",
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
    }
    for name, make in makers.items():
        (tmp_path / name).mkdir(parents=True)
        make(tmp_path / name)
    (tmp_path / "locked" / "x").mkdir(parents=True)
    (tmp_path / "unwritable").mkdir(mode=0o555)
    with unreadable(tmp_path, FORBIDDEN):
        yield tmp_path


def test_no_loader_shows_a_traceback_without_permission(forbidden: Path) -> None:
    calls = {name: call for name, (call, _) in ATTEMPTS.items()} | {
        "the listing": "sys.exit(CATALOGUE.listing()[1].get)",
        "a fetch": "os.environ.update(PENSTOCK_DATA='unwritable') or CATALOGUE.fetch('cifar10')",
    }
    errors = errors_as_nobody(forbidden, SETUP, calls)
    assert set(errors) == set(calls)
    for name, (_, file) in ATTEMPTS.items():
        assert errors[name].startswith("DataError: ") and file in errors[name], errors[name]
        assert "Permission denied" in errors[name]
    assert "locked/cifar10" in errors["the listing"] and "Permission denied" in errors["the listing"]
    assert errors["a fetch"].startswith("StorageError: ") and "unwritable/cifar10" in errors["a fetch"]
