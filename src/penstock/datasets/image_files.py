"""Images in files: a Dataset that reads them on access, as a device does; random crops; folders of images.

    data = image_folder("photos", size=96)  # photos/<class>/*.png or *.jpg

Images are read on access, so the folder may be larger than memory. Its layout is that of `class_folders`. How an image
becomes an input is an `ImageConfig`, which a bundle holds too. Needs Pillow.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import Dataset

from penstock.datasets import class_folders
from penstock.datasets.class_folders import FileKind, Files, HoldOut
from penstock.datasets.splits import Splits
from penstock.errors import DataError
from penstock.runtime.images.config import ImageConfig
from penstock.runtime.images.files import SUFFIXES, read_image, read_images
from penstock.runtime.images.resizing import Pixels

IMAGES = FileKind("images", SUFFIXES)


@dataclass(frozen=True)
class RandomCrop:
    """See a random rectangle, and mirror it half of the time: the usual ImageNet augmentation.

    Attributes:
        area: smallest and largest share of the image.
        ratio: smallest and largest width to height.
    """

    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def preprocess(self, image: Pixels, config: ImageConfig) -> npt.NDArray[np.float32]:
        """Return the input for a random part of an image: (rows, columns, 3) -> (channels, height, width)."""
        rows, columns = image.shape[:2]
        width, height = self._rectangle((columns, rows))
        left, top = _uniform(0, columns - width), _uniform(0, rows - height)
        x = config.preprocess(image, box=(left, top, left + width, top + height))
        return x[:, :, ::-1].copy() if _uniform(0, 1) < 0.5 else x

    def _rectangle(self, within: tuple[int, int]) -> tuple[float, float]:
        """Draw a width and a height; after ten that do not fit, use the largest square."""
        for _ in range(10):
            area = _uniform(*self.area) * within[0] * within[1]
            ratio = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if width <= within[0] and height <= within[1]:
                return width, height
        return min(within), min(within)


class ImageDataset(Dataset[tuple[Tensor, int]]):
    """Images that are read on access, and become inputs as they do on a device.

    Args:
        targets: the labels, (n,), int64; known without reading an image.
        image: how an image becomes an input.
        crop: what is seen in training, instead of the part that a device sees.

    Shapes:
        data[i]: (channels, height, width), float32, and its label
    """

    def __init__(self, files: Sequence[Path], targets: Tensor, image: ImageConfig, crop: RandomCrop | None = None):
        if len(files) != len(targets):
            raise DataError(f"expected one label per file, got {len(targets)} labels for {len(files)} files.")
        self.files, self.targets, self.image, self.crop = list(files), targets, image, crop

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        try:
            pixels = read_image(self.files[index])
        except DataError:
            deque(read_images(self.files), maxlen=0)  # reads the others too, to name all that are damaged at once
            raise
        x = self.image.preprocess(pixels) if self.crop is None else self.crop.preprocess(pixels, self.image)
        return torch.from_numpy(x), int(self.targets[index])


def image_folder(
    root: str | Path,
    *,
    size: int | None = None,
    image: ImageConfig | None = None,
    positives: Sequence[str] | None = None,
    train_crop: RandomCrop | None = None,
    hold_out: HoldOut = HoldOut(),
) -> Splits:
    """Load a folder of images, ``root/class/*.png`` or ``*.jpg``; each image is read on access.

    Args:
        root: has one folder per class; or ``train``, ``val`` and ``test``, or some of them, with one folder per class.
        size: side of a square network input, in pixels: short for ``image=ImageConfig(size, size)``.
        image: how an image becomes the network's input, here and on a device.
        positives: the positive classes, labels 1, 2, ...; all others are the background. Default: every other class
            in sorted order, from the first, as in the paper.
        train_crop: what is seen in training; default: what a device sees. `RandomCrop` augments.
        hold_out: the shares to hold out if the folder has no splits of its own.

    Raises:
        DataError: if there are no images, a class is empty or not in every split, or ``positives`` are invalid.
    """
    if (size is None) == (image is None):
        raise DataError("expected either size=96, for inputs of 96 x 96, or image=ImageConfig(...).")
    image = image or ImageConfig(size or 0, size or 0)
    parts = class_folders.files_by_part(Path(root).expanduser(), IMAGES, hold_out)
    labels = class_folders.class_labels(tuple(parts["train"]), positives)
    crops = {"train": train_crop}
    datasets = {part: image_dataset(files, labels, image, crops.get(part)) for part, files in parts.items()}
    names = class_folders.label_names(labels)
    return Splits(datasets["train"], datasets.get("test"), names, datasets.get("validation"), image)


def image_dataset(
    files: Files, labels: Mapping[str, int], image: ImageConfig, crop: RandomCrop | None = None
) -> ImageDataset:
    """Return the images of all classes, class by class, with the label of their class."""
    targets = [labels[name] for name, paths in files.items() for _ in paths]
    return ImageDataset([file for paths in files.values() for file in paths], torch.tensor(targets), image, crop)


def count_images(root: str | Path) -> dict[str, dict[str, int]]:
    """Read every image of a folder, and return the number in each split and class.

    Raises:
        DataError: if the folder is not laid out as `image_folder` expects, or images are damaged; names them.
    """
    return class_folders.count_files(Path(root).expanduser(), IMAGES, read_image)


def _uniform(low: float, high: float) -> float:
    """Draw from torch's global generator, which training seeds for each epoch."""
    return low + (high - low) * torch.rand(()).item()
