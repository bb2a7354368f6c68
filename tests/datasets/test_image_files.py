"""Folders of images: crops, labels, splits, and damaged files."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.utils.data import DataLoader

from penstock.datasets.class_folders import HoldOut, class_labels
from penstock.datasets.image_files import (
    CentreCrop,
    ImageDataset,
    Normalization,
    RandomCrop,
    count_images,
    image_folder,
    read_rgb,
    to_tensor,
)
from penstock.datasets.loading import cheap_labels
from penstock.errors import DataError, MissingExtraError

PLAIN = Normalization((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


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


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 24), st.integers(0, 8))
@example(width=7, height=7, size=17, more=0)  # 17 / (17 / 7) is a little more than 7
def test_the_middle_is_cut_out(width: int, height: int, size: int, more: int) -> None:
    """Against the simplest way: resize the picture, then crop. A slope makes any shift visible."""
    slope = np.add.outer(np.linspace(0, 120, height), np.linspace(0, 120, width)).astype(np.uint8)
    picture = Image.fromarray(np.stack([slope] * 3, axis=2))
    seen = CentreCrop(size, resize=size + more)(picture)
    assert seen.size == (size, size)
    factor = (size + more) / min(width, height)
    resized = picture.resize(
        (max(size, round(width * factor)), max(size, round(height * factor))), Image.Resampling.BILINEAR
    )
    left, top = (resized.width - size) / 2, (resized.height - size) / 2
    simple = resized.crop((round(left), round(top), round(left) + size, round(top) + size))
    step = 1 + 2 * 120 / size  # a pixel of the result covers at most about this much of the slope
    assert np.abs(np.asarray(seen, float) - np.asarray(simple, float)).mean() <= step


def test_a_crop_of_the_right_size_is_the_picture_itself() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(CentreCrop(16)(Image.fromarray(pixels))), pixels)
    wide = np.concatenate([np.zeros((16, 4, 3), np.uint8), pixels, np.zeros((16, 4, 3), np.uint8)], axis=1)
    assert np.array_equal(np.asarray(CentreCrop(16)(Image.fromarray(wide))), pixels)


@pytest.mark.parametrize(("size", "resize"), [(0, None), (8, 7)])
def test_a_crop_that_is_not_possible_is_refused(size: int, resize: int | None) -> None:
    with pytest.raises(DataError, match=rf"size={size}, resize={resize}"):
        CentreCrop(size, resize)


def test_random_crops_differ_depend_on_the_seed_alone_and_are_mirrored_every_other_time() -> None:
    slope = np.tile(np.arange(64, dtype=np.uint8)[None, :, None], (48, 1, 3))
    view = RandomCrop(16)
    torch.manual_seed(5)
    first = [np.asarray(view(Image.fromarray(slope))).astype(int) for _ in range(200)]
    torch.manual_seed(5)
    again = [np.asarray(view(Image.fromarray(slope))).astype(int) for _ in range(200)]
    assert all(map(np.array_equal, first, again))
    assert all(seen.shape == (16, 16, 3) for seen in first)
    mirrored = sum(seen[0, 0, 0] > seen[0, -1, 0] for seen in first)
    assert 60 < mirrored < 140  # 5.6 standard deviations of a fair coin
    spans = [abs(seen[0, 0, 0] - seen[0, -1, 0]) for seen in first]
    assert min(spans) < 25 < 45 < max(spans)  # small and large parts of the picture


def test_a_random_crop_of_a_strip_is_a_square_of_it() -> None:
    assert RandomCrop(8)(Image.new("RGB", (1000, 4))).size == (8, 8)


def test_a_tensor_is_standardised_channel_by_channel() -> None:
    x = to_tensor(Image.new("RGB", (3, 2), (255, 51, 0)), Normalization((0.5, 0.2, 0.1), (0.5, 0.1, 0.2)))
    assert x.shape == (3, 2, 3)
    torch.testing.assert_close(x[:, 0, 0], torch.tensor([1.0, 0.0, -0.5]))


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_every_kind_of_picture_becomes_red_green_and_blue(tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    Image.new("RGB", (8, 8), (102, 102, 102)).convert(mode).save(file)
    pixels = np.asarray(read_rgb(file, "a"))
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
    pixels = np.asarray(read_rgb(tmp_path / "a.png", "a"), float)
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
        read_rgb(tmp_path / "a.png", str(tmp_path / "a.png"))


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
    data = image_folder(zoo, size=8, normalization=PLAIN, hold_out=HoldOut(test=0.2, validation=0.1))
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
    data = image_folder(zoo / "parts", size=8, positives=("bee",), train_crop=RandomCrop(8))
    assert data.class_names == ("background", "bee")
    assert data.train.targets.tolist() == data.test.targets.tolist() == data.validation.targets.tolist() == [0, 1]
    assert (data.train.crop, data.test.crop) == (RandomCrop(8), CentreCrop(8))
    assert data.validation.files[0].parts[-3:] == ("val", "ant", "a.png")


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
    with pytest.raises(DataError, match=r"parts has train, expected"):
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
        ImageDataset([Path("a")], torch.tensor([0, 1]), CentreCrop(8))


def test_without_pillow_the_error_names_the_extra(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = image_folder(zoo, size=8)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match=r"PIL.*penstock\[images\]"):
        data.train[0]
