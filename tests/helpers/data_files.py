"""Files of data sets in their official layouts, each as small as it can be, and calls that read all of one."""

import gzip
import json
from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

from penstock.datasets.fetch.addresses import CIFAR10_BATCHES
from penstock.datasets.image_folder import image_folder
from penstock.datasets.sound_folder import sound_folder
from penstock.datasets.speech_commands import WakeWord, speech_commands
from reproduction.datasets.cifar10 import cifar10
from reproduction.datasets.fashion_mnist import SHA256, fashion_mnist
from reproduction.datasets.hey_snips import hey_snips
from reproduction.datasets.imagenet import imagenet

__all__ = [
    "cifar",
    "cifar10",
    "clip",
    "commands",
    "every_picture",
    "fashion",
    "fashion_mnist",
    "hey_snips",
    "imagenet",
    "photographs",
    "pictures",
    "snips",
    "sound_folder",
    "sounds",
    "wake_word",
    "wake_words",
]


def clip(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(file, np.random.default_rng(0).integers(-999, 999, 16_000).astype(np.int16), 16_000)


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


def commands(root: Path) -> None:
    for word in ("yes", "no", "_background_noise_"):
        for speaker in "abc":
            clip(root / word / f"{speaker}_nohash_0.wav")
    (root / "validation_list.txt").write_text("yes/b_nohash_0.wav\nno/b_nohash_0.wav")
    (root / "testing_list.txt").write_text("yes/c_nohash_0.wav\nno/c_nohash_0.wav")


def photographs(root: Path) -> None:
    for synset in ("n1", "n2"):
        (root / "train" / synset).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(root / "train" / synset / "a.JPEG")
    (root / "val").mkdir()
    Image.new("RGB", (4, 4)).save(root / "val" / "ILSVRC2012_val_1.JPEG")
    (root / "val_labels.txt").write_text("ILSVRC2012_val_1.JPEG n1")


def sounds(root: Path) -> None:
    for part in ("train", "test"):
        for name in ("bell", "other"):
            clip(root / part / name / "a.wav")


def pictures(root: Path) -> None:
    for part in ("train", "test"):
        for name in ("bell", "other"):
            (root / part / name).mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(root / part / name / "a.png")


def wake_word(root: Path) -> None:
    speech_commands(root, task=WakeWord("yes"), negatives_per_positive=1)


def wake_words(root: Path) -> None:
    hey_snips(root, negatives_per_positive=1)


def every_picture(root: Path) -> None:
    data = image_folder(root, size=4)
    for part in (data.train, data.test):
        for i in range(len(part)):
            part[i]
