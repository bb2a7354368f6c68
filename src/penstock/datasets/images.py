"""Pictures in files: read one, look at a part of it, make it a tensor; a data set that does so one by one.

Needs Pillow. A *view* says which part of a picture the network sees: `CentreCrop` to test with, `RandomCrop` to train.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from penstock.errors import DataError, MissingExtraError

if TYPE_CHECKING:
    from PIL.Image import Image


@dataclass(frozen=True)
class Standard:
    """Mean and standard deviation of red, green and blue, in the scale from 0 to 1."""

    mean: tuple[float, float, float]
    std: tuple[float, float, float]


IMAGENET_STANDARD = Standard((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Of ImageNet's training images; near enough for other photographs."""


@dataclass(frozen=True)
class CentreCrop:
    """The middle square, after the shorter side became ``resize`` pixels long; by default the square is all of it."""

    size: int
    resize: int | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or (self.resize is not None and self.resize < self.size):
            raise DataError(f"a crop of {self.size} from a side of {self.resize} is not possible: 1 ≤ size ≤ resize.")

    def __call__(self, picture: Image) -> Image:
        factor = (self.resize or self.size) / min(picture.size)
        side = self.size / factor  # of the square in the picture as it is, so that it is cut and resized in one go
        left, top = ((length - side) / 2 for length in picture.size)
        return _resized(picture, self.size, (left, top, left + side, top + side))


@dataclass(frozen=True)
class RandomCrop:
    """A random rectangle, resized to a square, and mirrored every other time: as ImageNet is usually trained.

    Attributes:
        size: of the square.
        area: the least and the greatest share of the picture.
        ratio: the least and the greatest width for a height of 1.
    """

    size: int
    area: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def __call__(self, picture: Image) -> Image:
        width, height = self._rectangle(picture.size)
        left = _uniform(0, picture.width - width)
        top = _uniform(0, picture.height - height)
        seen = _resized(picture, self.size, (left, top, left + width, top + height))
        return seen.transpose(_pillow().Transpose.FLIP_LEFT_RIGHT) if _uniform(0, 1) < 0.5 else seen

    def _rectangle(self, within: tuple[int, int]) -> tuple[float, float]:
        """Draw width and height; after ten that do not fit, take the greatest square."""
        for _ in range(10):
            area = _uniform(*self.area) * within[0] * within[1]
            ratio = math.exp(_uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if width <= within[0] and height <= within[1]:
                return width, height
        return min(within), min(within)


View: TypeAlias = CentreCrop | RandomCrop


class Pictures(Dataset[tuple[Tensor, int]]):
    """Pictures that are read when they are asked for.

    Attributes:
        files: one a sample.
        targets: the label of each, (n,), int64; known without reading a picture.
        view: which part of a picture is seen.
        standard: what its channels are standardised with.

    Shapes:
        data[i]: (3, size, size), float32, and its label
    """

    def __init__(self, files: Sequence[Path], targets: Tensor, view: View, standard: Standard = IMAGENET_STANDARD):
        if len(files) != len(targets):
            raise DataError(f"{len(files)} files came with {len(targets)} labels: give one label for each file.")
        self.files, self.targets, self.view, self.standard = list(files), targets, view, standard

    def chosen(self, indices: Tensor) -> Pictures:
        """Return some of the pictures, by their numbers."""
        files = [self.files[i] for i in indices.tolist()]
        return Pictures(files, self.targets[indices], self.view, self.standard)

    def seen_through(self, view: View) -> Pictures:
        """Return the same pictures with another view."""
        return Pictures(self.files, self.targets, view, self.standard)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = self.view(read_rgb(self.files[index], str(self.files[index])))
        return to_tensor(picture, self.standard), int(self.targets[index])


def read_rgb(file: Path | BinaryIO, name: str) -> Image:
    """Read a picture, grey or coloured, as red, green and blue with 8 bits each.

    Raises:
        DataError: when it cannot be read, or has more than 16 bits; ``name`` is what the error calls it.
        MissingExtraError: when Pillow is not installed.
    """
    pillow = _pillow()
    try:
        with pillow.open(file) as opened:
            return _eight_bits(opened, name).convert("RGB")
    except DataError:
        raise
    except Exception as error:  # a damaged picture raises almost anything
        raise DataError(
            f"{name} cannot be read as a picture ({error}). Replace or remove the file; png and jpg are read."
        ) from error


def _eight_bits(picture: Image, name: str) -> Image:
    """Return a picture that Pillow converts rightly: left alone, it clips whatever has more than 8 bits to white."""
    if picture.mode != "F" and not picture.mode.startswith("I"):
        return picture
    values = np.asarray(picture)  # I;16: 16 bits; I: 32 bits, in which old Pillows put a PNG's 16
    if picture.mode == "F" or values.min() < 0 or values.max() > 65_535:
        kind = "floats" if picture.mode == "F" else "32-bit values"
        raise DataError(
            f"{name} holds {kind} (mode {picture.mode}), and pictures of 8 or 16 bits are read: convert it first."
        )
    return _pillow().fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))  # 65,535 is 255 times 257


def to_tensor(picture: Image, standard: Standard) -> Tensor:
    """Return a picture as a standardised tensor, (3, height, width), float32."""
    x = torch.from_numpy(np.asarray(picture, np.float32) / 255).permute(2, 0, 1)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (standard.mean, standard.std))
    return ((x - mean) / std).contiguous()


def _resized(picture: Image, size: int, box: tuple[float, float, float, float]) -> Image:
    left, top, right, bottom = box
    inside = (max(0.0, left), max(0.0, top), min(right, picture.width), min(bottom, picture.height))  # but for rounding
    return picture.resize((size, size), _pillow().Resampling.BILINEAR, box=inside)


def _uniform(low: float, high: float) -> float:
    """Draw from torch's own generator, which a training seeds for each epoch."""
    return low + (high - low) * torch.rand(()).item()


def _pillow() -> ModuleType:
    """Return Pillow's module of images."""
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "pictures need 'pillow', which is not installed: pip install 'penstock[images]'."
        ) from error
    return Image
