"""Pictures in files: upright, 8 bits, RGB; found in folders; all that cannot be read are named."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from penstock.errors import DataError
from penstock.runtime.images.files import image_files, read_image, read_images


def test_a_photograph_is_turned_as_its_camera_says(tmp_path: Path) -> None:
    pixels = np.zeros((8, 16, 3), np.uint8)
    pixels[:, :8] = 255  # the left half is white
    tags = Image.Exif()
    tags[0x0112] = 6  # the camera was turned: the first row is the right side
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=tags)
    read = read_image(tmp_path / "a.png", "a")
    assert read.shape == (16, 8, 3) and read[:8].min() == 255 and read[8:].max() == 0


def test_folders_are_searched_and_files_taken_as_they_are(tmp_path: Path) -> None:
    for name in ("b/2.JPG", "b/1.png", "a.jpeg", "b/c/3.jpg", "notes.txt", "other.gif"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = image_files([tmp_path / "other.gif", tmp_path, tmp_path / "missing.jpg"])
    names = [file.relative_to(tmp_path).as_posix() for file in found]
    assert names == ["other.gif", "a.jpeg", "b/1.png", "b/2.JPG", "b/c/3.jpg", "missing.jpg"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty has no images; supported: \.png"):
        image_files([tmp_path / "empty"])


def test_all_that_cannot_be_read_are_named_at_once(tmp_path: Path) -> None:
    files = [tmp_path / f"{i}.png" for i in range(6)]
    for i in (0, 3):
        Image.new("RGB", (4, 4), (i, i, i)).save(files[i])
    files[1].write_bytes(b"no picture")
    files[2].write_bytes(files[0].read_bytes()[:40])
    files[4].mkdir()
    pictures = read_images(files)
    assert [next(pictures)[0, 0, 0] for _ in range(2)] == [0, 3]
    with pytest.raises(DataError, match=r"^4 of 6 images.*1\.png.*2\.png.*4\.png.*5\.png .*No such file"):
        next(pictures)
