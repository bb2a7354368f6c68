"""Images in files: read, crop and normalise them; a Dataset that does so on access; folders of images.

    data = image_folder("photos", size=96)  # photos/<class>/*.png or *.jpg

Images are read on access, so the folder may be larger than memory. Its layout is that of `class_folders`. Needs Pillow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from penstock.datasets import class_folders
from penstock.datasets.class_folders import FileKind, Files, HoldOut
from penstock.datasets.splits import Splits
from penstock.errors import DataError, require

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGES = FileKind("images", (".png", ".jpg", ".jpeg"))


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation of red, green and blue, on a scale from 0 to 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET_NORMALIZATION = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""ImageNet's training images; close enough for other photographs."""


@dataclass(frozen=True)
class CentreCrop:
    """Resize the shorter side to ``resize`` pixels (default: ``size``), then cut out the central square."""

    size: int
    resize: int | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or (self.resize is not None and self.resize < self.size):
            raise DataError(f"expected 1 ≤ size ≤ resize, got size={self.size}, resize={self.resize}.")

    def __call__(self, image: Image) -> Image:
        factor = (self.resize or self.size) / min(image.size)
        side = self.size / factor  # of the square in the original image, to crop and resize in one step
        left, top = ((length - side) / 2 for length in image.size)
        return _resize(image, self.size, (left, top, left + side, top + side))


@dataclass(frozen=True)
class RandomCrop:
    """Resize a random rectangle to a square, and mirror it half of the time: the usual ImageNet augmentation.

    Attributes:
        size: side of the square.
        area: smallest and largest share of the image.
        ratio: smallest and largest width to height.
    """

    size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __call__(self, image: Image) -> Image:
        width, height = self._rectangle(image.size)
        left = _uniform(0, image.width - width)
        top = _uniform(0, image.height - height)
        cropped = _resize(image, self.size, (left, top, left + width, top + height))
        return cropped.transpose(_pillow().Transpose.FLIP_LEFT_RIGHT) if _uniform(0, 1) < 0.5 else cropped

    def _rectangle(self, within: tuple[int, int]) -> tuple[float, float]:
        """Draw a width and a height; after ten that do not fit, use the largest square."""
        for _ in range(10):
            area = _uniform(*self.area) * within[0] * within[1]
            ratio = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if width <= within[0] and height <= within[1]:
                return width, height
        return min(within), min(within)


Crop: TypeAlias = CentreCrop | RandomCrop


class ImageDataset(Dataset[tuple[Tensor, int]]):
    """Images that are read on access.

    Attributes:
        targets: the labels, (n,), int64; known without reading an image.

    Shapes:
        data[i]: (3, size, size), float32, and its label
    """

    def __init__(
        self,
        files: Sequence[Path],
        targets: Tensor,
        crop: Crop,
        normalization: Normalization = IMAGENET_NORMALIZATION,
    ):
        if len(files) != len(targets):
            raise DataError(f"expected one label per file, got {len(targets)} labels for {len(files)} files.")
        self.files, self.targets, self.crop, self.normalization = list(files), targets, crop, normalization

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.crop(read_rgb(self.files[index]))
        return to_tensor(image, self.normalization), int(self.targets[index])


def image_folder(
    root: str | Path,
    *,
    size: int,
    positives: Sequence[str] | None = None,
    train_crop: Crop | None = None,
    normalization: Normalization = IMAGENET_NORMALIZATION,
    hold_out: HoldOut = HoldOut(),
) -> Splits:
    """Load a folder of images, ``root/class/*.png`` or ``*.jpg``; each image is read on access.

    Args:
        root: has one folder per class; or ``train``, ``test`` and optionally ``validation`` with one folder per class.
        size: side of the square network input, in pixels: the centre of the image.
        positives: the positive classes, labels 1, 2, ...; all others are the background. Default: every other class
            in sorted order, from the first, as in the paper.
        train_crop: crop for training; default: the centre. `RandomCrop` augments.
        normalization: of the channels.
        hold_out: the shares to hold out if the folder has no splits of its own.

    Raises:
        DataError: if there are no images, a class is empty or not in every split, or ``positives`` are invalid.
    """
    centre = CentreCrop(size)
    crops = {"train": train_crop or centre}
    parts = class_folders.files_by_part(Path(root).expanduser(), IMAGES, hold_out)
    labels = class_folders.class_labels(tuple(parts["train"]), positives)
    datasets = {
        part: image_dataset(files, labels, crops.get(part, centre), normalization) for part, files in parts.items()
    }
    return Splits(datasets["train"], datasets["test"], class_folders.label_names(labels), datasets.get("validation"))


def image_dataset(
    files: Files, labels: Mapping[str, int], crop: Crop, normalization: Normalization = IMAGENET_NORMALIZATION
) -> ImageDataset:
    """Return the images of all classes, class by class, with the label of their class."""
    targets = [labels[name] for name, paths in files.items() for _ in paths]
    return ImageDataset(
        [file for paths in files.values() for file in paths], torch.tensor(targets), crop, normalization
    )


def count_images(root: str | Path) -> dict[str, dict[str, int]]:
    """Read every image of a folder, and return the number in each split and class; see `count_files`."""
    return class_folders.count_files(root, IMAGES, read_rgb)


def read_rgb(file: Path | BinaryIO, name: str | None = None) -> Image:
    """Read a grey or colour image as 8-bit RGB.

    Raises:
        DataError: if it cannot be read or has more than 16 bits; it has ``name``, or else the path.
        MissingExtraError: if Pillow is not installed.
    """
    pillow, name = _pillow(), name or str(file)
    try:
        with pillow.open(file) as opened:
            return _to_8_bit(opened, name).convert("RGB")
    except DataError:
        raise
    except Exception as error:  # a damaged image raises almost anything
        raise DataError(f"cannot read {name} as a png or jpg image ({error}). Replace or remove the file.") from error


def to_tensor(image: Image, normalization: Normalization) -> Tensor:
    """Return an image as a normalised tensor, (3, height, width), float32."""
    x = torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (normalization.mean, normalization.std))
    return ((x - mean) / std).contiguous()


def _to_8_bit(image: Image, name: str) -> Image:
    """Scale to 8 bits; Pillow's own conversion clips everything above to white."""
    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    values = np.asarray(image)  # I;16: 16 bits; I: 32 bits, which old Pillows use for a 16-bit PNG
    if image.mode == "F" or values.min() < 0 or values.max() > 65_535:
        kind = "floats" if image.mode == "F" else "32-bit values"
        raise DataError(f"expected 8 or 16 bits per channel, {name} has {kind} (mode {image.mode}): convert it first.")
    return _pillow().fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))  # 65,535 is 255 times 257


def _resize(image: Image, size: int, box: tuple[float, float, float, float]) -> Image:
    left, top, right, bottom = box
    inside = (max(0.0, left), max(0.0, top), min(right, image.width), min(bottom, image.height))  # rounding errors
    return image.resize((size, size), _pillow().Resampling.BILINEAR, box=inside)


def _uniform(low: float, high: float) -> float:
    """Draw from torch's global generator, which training seeds for each epoch."""
    return low + (high - low) * torch.rand(()).item()


def _pillow() -> ModuleType:
    return require("PIL.Image", extra="images")
