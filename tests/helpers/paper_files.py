"""Files of the paper's data sets, each as small as it can be, and calls that read all of one."""

import gzip
import json
from pathlib import Path

from PIL import Image

from helpers.data_files import clip
from reproduction.datasets.balance import Balance
from reproduction.datasets.catalogue import CIFAR10_BATCHES
from reproduction.datasets.fashion_mnist import SHA256
from reproduction.datasets.hey_snips import hey_snips
from reproduction.datasets.speech_commands import WakeWord, speech_commands


def fashion(root: Path) -> None:
    for name in SHA256:
        (root / name).write_bytes(gzip.compress(b""))


def cifar(root: Path) -> None:
    for name in CIFAR10_BATCHES:
        (root / f"{name}.bin").write_bytes(b"")


def snips(root: Path) -> None:
    for part in ("train", "dev", "test"):
        listed = [{"audio_file_path": f"{part}{i}.wav", "duration": 1.0, "is_hotword": i} for i in range(2)]
        (root / f"{part}.json").write_text(json.dumps(listed))
        for entry in listed:
            clip(root / str(entry["audio_file_path"]))


def photographs(root: Path) -> None:
    for synset in ("n1", "n2"):
        (root / "train" / synset).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(root / "train" / synset / "a.JPEG")
    (root / "val").mkdir()
    Image.new("RGB", (4, 4)).save(root / "val" / "ILSVRC2012_val_1.JPEG")
    (root / "val_labels.txt").write_text("ILSVRC2012_val_1.JPEG n1")


def wake_word(root: Path) -> None:
    speech_commands(root, task=WakeWord("yes"), balance=Balance(1))


def wake_words(root: Path) -> None:
    hey_snips(root, balance=Balance(1))
