"""How a picture becomes the input of a network. Part of the manifest, so that device and training do the same."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, ShapeError
from penstock.runtime.images.resizing import Box, Pixels, resize

Fit = Literal["crop", "stretch"]


@dataclass(frozen=True)
class ImageConfig:
    """From a picture to the input of the first stage, (channels, height, width).

    Attributes:
        height, width: of the input, in pixels.
        fit: "crop" keeps proportions and cuts off what is too long; "stretch" distorts instead.
        share: of each side of what fits, around the centre: 0.875 is the usual 224 out of 256.
        mean, std: of red, green and blue, on a scale from 0 to 1; one value each for a grey input. Default: ImageNet's.
    """

    height: int
    width: int
    fit: Fit = "crop"
    share: float = 1.0
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)

    def __post_init__(self) -> None:
        if self.height < 1 or self.width < 1:
            raise DataError(f"height and width must be at least 1, got {self.height} and {self.width}")
        if self.fit not in get_args(Fit):
            raise DataError(f"fit must be one of {', '.join(get_args(Fit))}, got {self.fit!r}")
        if not 0 < self.share <= 1:
            raise DataError(f"share must be above 0 and at most 1, got {self.share}")
        if len(self.mean) not in (1, 3) or len(self.std) != len(self.mean):
            raise DataError(
                f"mean and std must have 3 values, or 1 for a grey input, got {len(self.mean)} and {len(self.std)}"
            )
        if not all(map(math.isfinite, self.mean)) or not all(0 < value < math.inf for value in self.std):
            raise DataError("mean must be finite, and std finite and above 0")

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of an input: (channels, height, width)."""
        return (len(self.mean), self.height, self.width)

    def preprocess(self, image: Pixels, *, box: Box | None = None) -> npt.NDArray[np.float32]:
        """Return the input for a picture, such as a camera's frame: crop, resize and normalise it.

        Args:
            image: (rows, columns, 3) in the order red, green, blue, or grey (rows, columns); uint8.
            box: the part to see, (left, top, right, bottom); default: as ``fit`` and ``share`` say.

        Returns:
            (channels, height, width), float32: the same to the last bit on every machine.
        """
        _check_image(image)
        pixels = image if image.ndim == 3 else image[:, :, None]
        if pixels.shape[2] > len(self.mean):
            pixels = _to_grey(pixels)
        seen = self._box(image.shape[1], image.shape[0]) if box is None else box
        resized = resize(pixels, self.height, self.width, seen).transpose(2, 0, 1)
        channels = np.arange(len(self.mean))[:, None, None]
        return np.ascontiguousarray(self._table[channels, resized])  # a grey picture becomes three channels

    def _box(self, columns: int, rows: int) -> Box:
        across, down = columns / self.width, rows / self.height
        if self.fit == "crop":
            across = down = min(across, down)
        width, height = across * self.width * self.share, down * self.height * self.share
        return ((columns - width) / 2, (rows - height) / 2, (columns + width) / 2, (rows + height) / 2)

    @cached_property
    def _table(self) -> npt.NDArray[np.float32]:
        """The normalised value of each of the 256 levels: (channels, 256)."""
        mean, std = np.array([self.mean, self.std])[:, :, None]
        return ((np.arange(256) / 255 - mean) / std).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; numbers as the manifest's reader returns them."""
        floats = {"share": float(self.share), "mean": [*map(float, self.mean)], "std": [*map(float, self.std)]}
        return {**asdict(self), **floats}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ImageConfig:
        """Return what `to_dict` was called on."""
        return cls(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])})


def _check_image(image: Pixels) -> None:
    known = isinstance(image, np.ndarray)
    if known and image.dtype == np.uint8 and image.size and (image.ndim == 2 or image.shape[2:] in ((1,), (3,))):
        return
    got = f"{image.shape} {image.dtype}" if known else type(image).__name__
    raise ShapeError(
        f"expected a picture as an array (height, width, 3) or (height, width), uint8, got {got}. A Pillow image "
        "becomes one with numpy.asarray(image.convert('RGB'))."
    )


def _to_grey(image: Pixels) -> Pixels:
    """Return the luma of ITU-R 601, as Pillow's ``convert("L")``: (rows, columns, 3) -> (rows, columns, 1)."""
    weights = np.array([19595, 38470, 7471], np.uint32)
    return ((image * weights).sum(axis=2, dtype=np.uint32, keepdims=True) + 32768 >> 16).astype(np.uint8)
