"""Folders of images: crops, labels, splits, and damaged files."""

import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from penstock.datasets.class_folders import HoldOut, class_labels
from penstock.datasets.image_files import (
    ImageDataset,
    RandomCrop,
    count_images,
    image_folder,
)
from penstock.datasets.loading import cheap_labels
from penstock.errors import DataError, MissingExtraError
from penstock.runtime.images.config import ImageConfig
from penstock.runtime.images.files import read_image

PLAIN = ImageConfig(8, 8, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))


def paint(file: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 12)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(file)


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Four kinds of ten pictures each; each kind has its own colour."""
    for kind, name in enumerate(("ant", "bee", "cat", "dog")):
        for i in range(10):
            paint(tmp_path / name / f"{i}.{'jpg' if i % 2 else 'PNG'}", (kind * 60, i * 20, 0))
    (tmp_path / "ant" / "notes.txt").write_text("no picture")
    (tmp_path / ".hidden").mkdir()
    return tmp_path


# --- what is seen of a picture


def test_a_picture_is_what_a_device_sees_to_the_last_bit(zoo: Path) -> None:
    """The law of pictures: the data set and a device that has the same file compute the same input."""
    pixels = np.random.default_rng(0).integers(0, 256, (61, 47, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(zoo / "ant" / "0.PNG")
    Image.fromarray(pixels).save(zoo / "ant" / "1.jpg", quality=90)
    for image in (ImageConfig(24, 32), ImageConfig(24, 24, "stretch", 0.875, (0.5,), (0.25,))):
        data = image_folder(zoo, image=image)
        assert data.image_config == image
        for part in (data.train, data.validation, data.test):
            for i, file in enumerate(part.files):
                with Image.open(file) as opened:
                    frame = np.asarray(opened)
                x = part[i][0]
                assert x.shape == image.shape and x.numpy().tobytes() == image.preprocess(frame).tobytes()


def test_random_crops_differ_depend_on_the_seed_alone_and_are_mirrored_every_other_time() -> None:
    slope = np.tile(np.arange(64, dtype=np.uint8)[None, :, None], (48, 1, 3))

    def views() -> list[np.ndarray]:
        torch.manual_seed(5)
        inputs = [RandomCrop().preprocess(slope, PLAIN) for _ in range(200)]
        return [np.round(255 * x).astype(int).transpose(1, 2, 0) for x in inputs]

    first, again = views(), views()
    assert all(map(np.array_equal, first, again))
    assert all(seen.shape == (8, 8, 3) for seen in first)
    mirrored = sum(seen[0, 0, 0] > seen[0, -1, 0] for seen in first)
    assert 60 < mirrored < 140  # 5.6 standard deviations of a fair coin
    spans = [abs(seen[0, 0, 0] - seen[0, -1, 0]) for seen in first]
    assert min(spans) < 25 < 45 < max(spans)  # small and large parts of the picture


def test_a_random_crop_of_a_strip_is_a_square_of_it() -> None:
    assert RandomCrop().preprocess(np.zeros((4, 1000, 3), np.uint8), PLAIN).shape == (3, 8, 8)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_every_kind_of_picture_becomes_red_green_and_blue(tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.new("RGB", (8, 8), (102, 102, 102)).convert(mode).save(file)
    pixels = np.asarray(read_image(file, "a"))
    assert pixels.shape == (8, 8, 3)
    assert np.abs(pixels.astype(int) - 102).max() <= 3


@pytest.mark.parametrize(("mode", "kind"), [("I;16", "PNG"), ("I;16B", "TIFF"), ("I", "TIFF")])
def test_16_bits_keep_their_relative_values(tmp_path: Path, mode: str, kind: str) -> None:
    """Left to Pillow, whatever is above 255 of 65,535 becomes white."""
    ramp = np.linspace(0, 65_535, 32 * 32).round().astype(np.uint16).reshape(32, 32)
    values = ramp.astype({"I;16": "<u2", "I;16B": ">u2", "I": "<i4"}[mode])
    Image.frombytes(mode, (32, 32), values.tobytes()).save(tmp_path / "a.png", kind)
    with Image.open(tmp_path / "a.png") as written:
        assert written.mode == mode
    pixels = np.asarray(read_image(tmp_path / "a.png", "a"), float)
    assert pixels.shape == (32, 32, 3) and (pixels == pixels[:, :, :1]).all()
    assert np.abs(pixels[:, :, 0] - ramp * (255 / 65_535)).max() <= 0.5


@pytest.mark.parametrize(
    ("picture", "text"),
    [
        (
            Image.new("F", (4, 4), 0.5),
            r"a.png .*mode F",
        ),
        (
            Image.new("I", (4, 4), 65_536),
            r"a.png .*32-bit values \(mode I\)",
        ),
        (Image.new("I", (4, 4), -1), r"a.png .*32-bit values \(mode I\)"),
    ],
)
def test_more_bits_are_refused_by_name(tmp_path: Path, picture: Image.Image, text: str) -> None:
    picture.save(tmp_path / "a.png", "TIFF")
    with pytest.raises(DataError, match=text):
        read_image(tmp_path / "a.png", str(tmp_path / "a.png"))


# --- labels and parts


@given(st.lists(st.text("abc", min_size=1), min_size=2, max_size=9, unique=True))
def test_by_default_every_other_class_is_of_interest(names: list[str]) -> None:
    labels = class_labels(names)
    assert [labels[name] for name in names] == [0 if i % 2 else i // 2 + 1 for i in range(len(names))]


@pytest.mark.parametrize("positives", [(), ("ant", "ant"), ("cow",), ("ant", "bee")])
def test_classes_of_interest_are_checked(positives: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"positives.*ant, bee\."):
        class_labels(["ant", "bee"], positives)


def test_a_folder_of_classes_is_dealt_out(zoo: Path) -> None:
    data = image_folder(zoo, image=PLAIN, hold_out=HoldOut(test=0.2, validation=0.1))
    assert data.class_names == ("background", "ant", "cat")
    assert [len(part) for part in (data.train, data.validation, data.test)] == [28, 4, 8]
    dealt = [file for part in (data.train, data.validation, data.test) for file in part.files]
    assert len(set(dealt)) == len(dealt) == 40
    for part in (data.train, data.validation, data.test):
        assert torch.equal(cheap_labels(part), part.targets)  # without a picture being read
        for i in range(len(part)):
            x, y = part[i]
            assert x.shape == (3, 8, 8)
            assert (1, 0, 2, 0)[round(x[0].mean().item() * 255 / 60)] == y  # by its red


def test_a_share_of_each_folder_is_held_out(zoo: Path) -> None:
    """A small folder among a large background has its share too, whatever the seed."""
    for i in range(90):
        paint(zoo / "dog" / f"more{i}.png", (180, i, 0))
    for seed in range(5):
        data = image_folder(zoo, size=8, hold_out=HoldOut(test=0.2, validation=0.1, seed=seed))
        for part, shares in ((data.train, (7, 70)), (data.validation, (1, 10)), (data.test, (2, 20))):
            counts = Counter(file.parent.name for file in part.files)
            small, large = shares
            assert counts == {"ant": small, "bee": small, "cat": small, "dog": large}
            assert part.targets.tolist() == [{"ant": 1, "cat": 2}.get(file.parent.name, 0) for file in part.files]


def test_a_folder_too_small_for_its_share_is_named(zoo: Path) -> None:
    paint(zoo / "eel" / "only.png", (0, 0, 0))
    with pytest.raises(DataError, match=r"eel.*0\.2.* 1 samples"):
        image_folder(zoo, size=8, positives=("ant",))


def test_the_same_seed_deals_the_same_files(zoo: Path) -> None:
    def files(seed: int) -> list[Path]:
        return image_folder(zoo, size=8, hold_out=HoldOut(seed=seed)).test.files

    assert files(1) == files(1) != files(2)


def test_parts_of_the_folder_are_taken_as_they_are(zoo: Path) -> None:
    for part in ("train", "test", "val"):
        for kind in ("ant", "bee"):
            paint(zoo / "parts" / part / kind / "a.png", (0, 0, 0))
    data = image_folder(zoo / "parts", size=8, positives=("bee",), train_crop=RandomCrop())
    assert data.class_names == ("background", "bee")
    assert data.train.targets.tolist() == data.test.targets.tolist() == data.validation.targets.tolist() == [0, 1]
    assert (data.train.crop, data.test.crop) == (RandomCrop(), None)
    assert data.validation.files[0].parts[-3:] == ("val", "ant", "a.png")


def test_train_and_val_are_taken_as_imagenet_has_them(zoo: Path) -> None:
    """What is missing stays missing: nothing is taken from train for a test."""
    for part, count in (("train", 3), ("val", 2)):
        for kind in ("ant", "bee"):
            for i in range(count):
                paint(zoo / "parts" / part / kind / f"{i}.png", (0, 0, 0))
    data = image_folder(zoo / "parts", size=8)
    assert (len(data.train), len(data.validation), data.test) == (6, 4, None)
    assert {file.parts[-3] for file in data.validation.files} == {"val"}
    shutil.rmtree(zoo / "parts" / "train")
    with pytest.raises(DataError, match=r"parts has val, expected train"):
        image_folder(zoo / "parts", size=8)


def test_the_size_is_given_once(zoo: Path) -> None:
    assert image_folder(zoo, size=8).image_config == ImageConfig(8, 8)
    for both in ({}, {"size": 8, "image": PLAIN}):
        with pytest.raises(DataError, match=r"either size=96.* or image=ImageConfig"):
            image_folder(zoo, **both)


def test_it_works_in_the_processes_of_a_loader(zoo: Path) -> None:
    data = image_folder(zoo, size=8)
    alone = [x for x, _ in DataLoader(data.test, batch_size=4)]
    together = [x for x, _ in DataLoader(data.test, batch_size=4, num_workers=1)]
    assert all(map(torch.equal, alone, together))


# --- what goes wrong


def test_a_damaged_picture_is_named(zoo: Path) -> None:
    data = image_folder(zoo, size=8)
    file = data.train.files[3]
    for content in (file.read_bytes()[:40], b"", b"no picture at all"):
        file.write_bytes(content)
        with pytest.raises(DataError, match=rf"cannot read {file}"):
            data.train[3]
    data.train.files[5].write_bytes(b"no picture either")
    with pytest.raises(DataError, match=rf"^2 of {len(data.train)} images.*{file}.*{data.train.files[5]}"):
        data.train[3]
    file.unlink()
    with pytest.raises(DataError, match=r"ant/5.jpg .*No such file"):
        data.train[3]


def test_folders_that_make_no_sense_say_so(zoo: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist"):
        image_folder(tmp_path / "nowhere", size=8)
    with pytest.raises(DataError, match=r"ant has 0 sub-folders"):
        image_folder(zoo / "ant", size=8)
    (zoo / "eel").mkdir()
    with pytest.raises(DataError, match=r"eel has no images.*\.jpeg"):
        image_folder(zoo, size=8)
    paint(zoo / "parts" / "train" / "ant" / "a.png", (0, 0, 0))
    with pytest.raises(DataError, match=r"parts has train, expected train and at least one of val and test"):
        image_folder(zoo / "parts", size=8)
    for file in ("train/bee/a.png", "test/ant/a.png", "test/cow/a.png"):
        paint(zoo / "parts" / file, (0, 0, 0))
    with pytest.raises(DataError, match=r"test has.*bee, cow"):
        image_folder(zoo / "parts", size=8)


def test_every_picture_is_read_and_counted(zoo: Path) -> None:
    kinds = ("ant", "bee", "cat", "dog")
    assert count_images(zoo) == {
        part: dict.fromkeys(kinds, count) for part, count in (("train", 7), ("validation", 1), ("test", 2))
    }
    (zoo / "bee" / "1.jpg").write_bytes((zoo / "bee" / "1.jpg").read_bytes()[:300])
    (zoo / "dog" / "2.PNG").write_bytes(b"")
    with pytest.raises(DataError, match=r"^2 of 40 .*(bee/1.jpg|dog/2.PNG)"):
        count_images(zoo)


def test_one_label_for_each_file() -> None:
    with pytest.raises(DataError, match=r"2 labels.* 1 files"):
        ImageDataset([Path("a")], torch.tensor([0, 1]), PLAIN)


def test_without_pillow_the_error_names_the_extra(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = image_folder(zoo, size=8)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"PIL.*penstock\[images\]"):
        data.train[0]
