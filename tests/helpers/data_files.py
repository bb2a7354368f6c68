"""Files of the library's data sets, each as small as it can be, and calls that read all of one."""

from pathlib import Path

import numpy as np
import soundfile
from PIL import Image

from penstock.datasets import image_folder
from penstock.datasets.speech_commands import open_speech_commands


def clip(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(file, np.random.default_rng(0).integers(-999, 999, 16_000).astype(np.int16), 16_000)


def commands(root: Path) -> None:
    for word in ("yes", "no", "_background_noise_"):
        for speaker in "abc":
            clip(root / word / f"{speaker}_nohash_0.wav")
    (root / "validation_list.txt").write_text("yes/b_nohash_0.wav\nno/b_nohash_0.wav")
    (root / "testing_list.txt").write_text("yes/c_nohash_0.wav\nno/c_nohash_0.wav")


def sounds(root: Path) -> None:
    for part in ("train", "test"):
        for name in ("bell", "other"):
            clip(root / part / name / "a.wav")


def images(root: Path) -> None:
    for part in ("train", "test"):
        for name in ("bell", "other"):
            (root / part / name).mkdir(parents=True)
            Image.new("RGB", (4, 4)).save(root / part / name / "a.png")


def own_folders(root: Path) -> None:
    """Make a folder of images and one of sounds, ten of each of two classes."""
    for i in range(10):
        for name in ("bell", "other"):
            for kind in ("image-folder", "sound-folder"):
                (root / kind / name).mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(root / "image-folder" / name / f"{i}.png")
            soundfile.write(root / "sound-folder" / name / f"{i}.wav", np.arange(99, dtype=np.int16), 16_000)


def every_command(root: Path) -> None:
    with open_speech_commands(root, ("yes",)) as (_, _, read, stamps):
        for name in stamps:
            read(name)


def every_image(root: Path) -> None:
    data = image_folder(root, size=4)
    for part in (data.train, data.test):
        for i in range(len(part)):
            part[i]
