"""Files that the paper's loaders cannot read: the error names the file, without a traceback."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helpers.data_files import commands
from helpers.paper_files import cifar, fashion, photographs, snips, wake_word, wake_words
from helpers.permissions import check_errors_as_nobody, check_folder_in_place_of_file, forbidden_files
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
def test_a_folder_in_the_place_of_a_file_is_an_error(
    tmp_path: Path, make: Callable[[Path], None], load: Callable[[Path], object], file: str, text: str
) -> None:
    check_folder_in_place_of_file(tmp_path, make, load, file, text)


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
)


@pytest.fixture
def forbidden(tmp_path: Path) -> Iterator[Path]:
    """Data sets with something that must not be read."""
    makers = {
        "fashion": fashion,
        "cifar": cifar,
        "snips": snips,
        "commands/list": commands,
        "commands/word": commands,
        "photographs/labels": photographs,
        "photographs/val": photographs,
    }
    with forbidden_files(tmp_path, makers, FORBIDDEN) as root:
        yield root


def test_no_loader_shows_a_traceback_without_permission(forbidden: Path) -> None:
    others = {
        "the listing": "sys.exit(CATALOGUE.listing()[1].get)",
        "a fetch": "os.environ.update(PENSTOCK_DATA='unwritable') or CATALOGUE.fetch('cifar10')",
    }
    errors = check_errors_as_nobody(forbidden, SETUP, ATTEMPTS, others)
    assert "locked/cifar10" in errors["the listing"] and "Permission denied" in errors["the listing"]
    assert errors["a fetch"].startswith("StorageError: ") and "unwritable/cifar10" in errors["a fetch"]
