"""Pictures in files: read them as arrays, and find them in folders. Needs Pillow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from penstock.errors import DataError, require
from penstock.runtime.images.resizing import Pixels

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg")


def read_image(file: Path | BinaryIO, name: str | None = None) -> Pixels:
    """Read a grey or colour picture as 8-bit RGB, upright as its camera says: (rows, columns, 3).

    Raises:
        DataError: if it cannot be read or has more than 16 bits; it has ``name``, or else the path.
        MissingExtraError: if Pillow is not installed.
    """
    pillow, operations = (require(f"PIL.{name}", extra="images") for name in ("Image", "ImageOps"))
    name = name or str(file)
    try:
        with pillow.open(file) as opened:
            operations.exif_transpose(opened, in_place=True)
            return np.asarray(_to_8_bit(opened, name).convert("RGB"))
    except DataError:
        raise
    except Exception as error:  # a damaged picture raises almost anything
        raise DataError(f"cannot read {name} as a png or jpg image ({error}). Replace or remove the file.") from error


def read_images(files: Sequence[Path]) -> Iterator[Pixels]:
    """Yield the pictures of files; after the last one, name all that could not be read.

    Raises:
        DataError: if there are such files.
    """
    errors = []
    for file in files:
        try:
            yield read_image(file)
        except DataError as error:
            errors.append(str(error))
    if errors:
        raise DataError(f"{len(errors)} of {len(files)} images cannot be read. {' '.join(errors)}")


def image_files(paths: Iterable[Path]) -> list[Path]:
    """Return files as they are, and of folders the pictures in them and in their sub-folders, sorted."""
    return [file for path in paths for file in (_pictures_in(path) if path.is_dir() else [path])]


def _pictures_in(folder: Path) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())
    if not found:
        raise DataError(f"{folder} has no images; supported: {', '.join(SUFFIXES)}.")
    return found


def _to_8_bit(image: Image, name: str) -> Image:
    """Scale to 8 bits; Pillow's own conversion clips everything above to white."""
    if image.mode != "F" and not image.mode.startswith("I"):
        return image
    values = np.asarray(image)  # I;16: 16 bits; I: 32 bits, which old Pillows use for a 16-bit PNG
    if image.mode == "F" or values.min() < 0 or values.max() > 65_535:
        kind = "floats" if image.mode == "F" else "32-bit values"
        raise DataError(f"expected 8 or 16 bits per channel, {name} has {kind} (mode {image.mode}): convert it first.")
    scaled = ((values.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65,535 is 255 times 257
    return require("PIL.Image", extra="images").fromarray(scaled)  # type: ignore[no-any-return]
