"""ImageNet's loader, on small files in ImageNet's layout."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from penstock.datasets.image_files import RandomCrop
from penstock.errors import DataError
from penstock.runtime.images.config import ImageConfig
from reproduction.datasets.imagenet import imagenet, read_val_labels
from reproduction.experiments.tasks import with_validation

SYNSETS = ("n01440764", "n01443537", "n01484850", "n01491361")


def photograph(file: Path, grey: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (50, 40), (grey, grey, grey)).save(file)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Four synsets, three photographs to train and two to test of each; each synset has its own grey."""
    for i, synset in enumerate(SYNSETS):
        for k in range(3):
            photograph(tmp_path / "train" / synset / f"{synset}_{k}.JPEG", 60 * i)
        for k in range(2):
            photograph(tmp_path / "val" / synset / f"ILSVRC2012_val_{2 * i + k + 1:08}.JPEG", 60 * i)
    return tmp_path


def flatten(root: Path) -> None:
    """Put val as the archive has it, and write its labels, in another order than the files'."""
    lines = []
    for file in sorted((root / "val").glob("*/*"), reverse=True):
        lines.append(f"{file.name} {file.parent.name}\n")
        file.rename(root / "val" / file.name)
    for synset in SYNSETS:
        (root / "val" / synset).rmdir()
    (root / "val_labels.txt").write_text("".join(lines))


def test_even_synsets_are_of_interest(root: Path) -> None:
    data = imagenet(root, size=16, classes=4)
    assert data.class_names == ("background", "n01440764", "n01484850")
    assert data.train.targets.tolist() == [1] * 3 + [0] * 3 + [2] * 3 + [0] * 3
    assert data.test.targets.tolist() == [1, 1, 0, 0, 2, 2, 0, 0]
    assert data.validation is None


def test_photographs_are_read_and_standardised(root: Path) -> None:
    data = imagenet(root, size=16, classes=4)
    for part in (data.train, data.test):
        x, y = part[len(part) // 2]  # the first of the third synset
        assert x.shape == (3, 16, 16)
        assert y == 2
        expected = (120 / 255 - torch.tensor(ImageConfig(1, 1).mean)) / torch.tensor(ImageConfig(1, 1).std)
        torch.testing.assert_close(x.mean(dim=(1, 2)), expected, rtol=0, atol=0.02)


def test_training_sees_random_parts_and_testing_the_middle(root: Path) -> None:
    data = imagenet(root, classes=4)
    assert (data.train.crop, data.test.crop, data.test.image) == (
        RandomCrop(),
        None,
        ImageConfig(224, 224, share=224 / 256),
    )


def test_a_share_of_each_synset_is_held_out_for_validation(root: Path) -> None:
    complete = imagenet(root, size=16, classes=4).train
    data = imagenet(root, size=16, classes=4, validation_share=1 / 3)
    assert sorted(data.train.files + data.validation.files) == complete.files
    assert [file.parent.name for file in data.validation.files] == list(SYNSETS)
    for part in (data.train, data.validation):
        assert part.targets.tolist() == [{0: 1, 2: 2}.get(SYNSETS.index(file.parent.name), 0) for file in part.files]
    assert (data.train.crop, data.validation.crop) == (RandomCrop(), None)
    x, _ = data.validation[0]
    assert data.validation[0][0].equal(x)  # nothing is drawn
    assert with_validation(data, 0.1) is data


def test_the_seed_draws_what_is_held_out(root: Path) -> None:
    def files(seed: int) -> tuple[Path, ...]:
        return tuple(imagenet(root, classes=4, validation_share=1 / 3, seed=seed).validation.files)

    assert files(3) == files(3)
    assert len({files(seed) for seed in range(5)}) > 1


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (1.0, r"share .*got 1\.0"),
        (-0.1, r"share .*got -0\.1"),
        (0.1, r"class n01440764.*0\.1 of its 3 samples"),
    ],
)
def test_a_share_that_is_not_possible_is_refused(root: Path, share: float, text: str) -> None:
    with pytest.raises(DataError, match=text):
        imagenet(root, classes=4, validation_share=share)


def test_a_flat_val_is_the_same_as_a_sorted_one(root: Path) -> None:
    before = imagenet(root, size=16, classes=4).test
    flatten(root)
    after = imagenet(root, size=16, classes=4).test
    assert after.targets.tolist() == before.targets.tolist()
    assert [file.name for file in after.files] == [file.name for file in before.files]
    (root / "val_labels.txt").rename(root / "elsewhere.txt")
    assert imagenet(root, size=16, classes=4, val_labels=root / "elsewhere.txt").test.targets.tolist() == [
        *before.targets.tolist()
    ]


def test_a_flat_val_without_labels_says_what_to_write(root: Path) -> None:
    flatten(root)
    (root / "val_labels.txt").unlink()
    with pytest.raises(DataError, match=r"val_labels.txt .*00000001.JPEG n01751748"):
        imagenet(root, classes=4)


def test_the_official_numbers_are_not_taken_for_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("490\n361\n")
    with pytest.raises(DataError, match=r"line 1 of .*labels.txt.*'490'"):
        read_val_labels(tmp_path / "labels.txt")


def test_a_photograph_without_a_label_is_named(root: Path) -> None:
    flatten(root)
    text = (root / "val_labels.txt").read_text()
    (root / "val_labels.txt").write_text(text.replace("ILSVRC2012_val_00000003.JPEG n01443537\n", ""))
    with pytest.raises(DataError, match=r"ILSVRC2012_val_00000003.JPEG the synset None"):
        imagenet(root, classes=4)
    (root / "val_labels.txt").write_text(text.replace("n01443537", "n99999999"))
    with pytest.raises(DataError, match=r"synset n99999999"):
        imagenet(root, classes=4)


def test_a_subset_must_be_asked_for(root: Path) -> None:
    with pytest.raises(DataError, match=r"1000 synsets.*found 4.*classes=4"):
        imagenet(root)


def test_what_cannot_be_downloaded_says_where_to_ask(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"imagenet .*https://image-net.org/download-images .*train, val"):
        imagenet(tmp_path)


def test_a_synset_that_is_missing_in_val_is_named(root: Path) -> None:
    for file in (root / "val" / SYNSETS[3]).iterdir():
        file.unlink()
    (root / "val" / SYNSETS[3]).rmdir()
    with pytest.raises(DataError, match=r"val has different classes.*n01491361"):
        imagenet(root, classes=4)
