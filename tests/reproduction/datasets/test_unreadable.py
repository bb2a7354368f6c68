"""Files that the paper's loaders cannot read: the error names the file, without a traceback."""

from pathlib import Path

import pytest

from helpers.data_files import commands
from helpers.paper_files import cifar, fashion, photographs, snips, wake_word, wake_words
from helpers.permissions import FolderInPlace, check_forbidden
from reproduction.datasets.cifar10 import cifar10
from reproduction.datasets.fashion_mnist import fashion_mnist
from reproduction.datasets.hey_snips import hey_snips
from reproduction.datasets.imagenet import imagenet

IN_PLACE = [
    FolderInPlace(
        fashion, fashion_mnist, "train-images-idx3-ubyte.gz", r"train-images-idx3-ubyte.gz \(Is a directory\)"
    ),
    FolderInPlace(cifar, cifar10, "data_batch_3.bin", r"lacks data_batch_3.bin"),
    FolderInPlace(snips, hey_snips, "dev.json", r"dev.json \(Is a directory\)"),
    FolderInPlace(snips, wake_words, "test1.wav", r"test1.wav \(Is a directory\)"),
    FolderInPlace(commands, wake_word, "testing_list.txt", r"testing_list.txt .*Is a directory"),
    FolderInPlace(commands, wake_word, "_background_noise_/a_nohash_0.wav", r"a_nohash_0.wav \(Is a directory\)"),
    FolderInPlace(
        photographs, lambda root: imagenet(root, classes=2), "val_labels.txt", r"val_labels.txt does not exist"
    ),
]


@pytest.mark.parametrize("case", IN_PLACE, ids=lambda case: case.file)
def test_a_folder_in_the_place_of_a_file_is_an_error(tmp_path: Path, case: FolderInPlace) -> None:
    case.check(tmp_path)


SETUP = """
import soundfile
import PIL.Image
from helpers.paper_files import wake_word
from reproduction.datasets.catalogue import CATALOGUE, count_listed_files
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
    "hey-snips, check": ("count_listed_files(Path('snips'))", "snips/train.json"),
    "speech commands, list": ("wake_word(Path('commands/list'))", "commands/list/testing_list.txt"),
    "speech commands, word": ("wake_word(Path('commands/word'))", "commands/word/no"),
    "imagenet, labels": ("imagenet('photographs/labels', classes=2)", "photographs/labels/val_labels.txt"),
    "imagenet, val": ("imagenet('photographs/val', classes=2)", "photographs/val/val"),
}

MAKERS = {
    "fashion": fashion,
    "cifar": cifar,
    "snips": snips,
    "commands/list": commands,
    "commands/word": commands,
    "photographs/labels": photographs,
    "photographs/val": photographs,
}


def test_no_loader_shows_a_traceback_without_permission(tmp_path: Path) -> None:
    check_forbidden(tmp_path, MAKERS, SETUP, ATTEMPTS, listed="cifar10")
