"""From a picture to an input: what is seen of it, its channels, its values, and what is refused."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from penstock.errors import DataError, ShapeError
from penstock.runtime.images.config import ImageConfig

PLAIN = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
GREY = {"mean": (0.5,), "std": (0.25,)}


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def levels(x: np.ndarray) -> np.ndarray:
    """Return the pixels of an input that was not standardised: (channels, height, width) -> the same, integers."""
    return np.round(x * 255).astype(int)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 40), st.integers(1, 40), st.sampled_from([1.0, 0.875]))
def test_what_is_seen_is_pillows_centre_crop(rows, columns, height, width, share) -> None:
    image = noise(rows, columns, 3)
    factor = max(height / rows, width / columns)
    across, down = (share * side / factor for side in (width, height))
    box = ((columns - across) / 2, (rows - down) / 2, (columns + across) / 2, (rows + down) / 2)
    inside = (max(0, box[0]), max(0, box[1]), min(columns, box[2]), min(rows, box[3]))  # rounding errors
    pillow = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR, box=inside)
    x = ImageConfig(height, width, share=share, **PLAIN).preprocess(image)
    assert x.shape == (3, height, width) and x.dtype == np.float32 and x.flags.c_contiguous
    assert np.abs(levels(x) - np.asarray(pillow, int).transpose(2, 0, 1)).max() <= 1


def test_stretched_pictures_are_seen_whole() -> None:
    image = noise(40, 90, 3)
    pillow = np.asarray(Image.fromarray(image).resize((16, 24), Image.Resampling.BILINEAR), int)
    x = ImageConfig(24, 16, fit="stretch", **PLAIN).preprocess(image)
    assert np.abs(levels(x) - pillow.transpose(2, 0, 1)).max() <= 1


def test_values_are_normalised_channel_by_channel() -> None:
    image = np.full((4, 4, 3), (255, 51, 0), np.uint8)
    x = ImageConfig(2, 2, mean=(0.5, 0.2, 0.1), std=(0.5, 0.1, 0.2)).preprocess(image)
    np.testing.assert_allclose(x[:, 0, 0], (1.0, 0.0, -0.5), atol=1e-7)


def test_grey_inputs_are_pillows_luma_and_grey_pictures_fill_three_channels() -> None:
    image = noise(30, 20, 3)
    luma = np.asarray(Image.fromarray(image).convert("L"))
    one = ImageConfig(8, 8, **GREY)
    assert np.array_equal(one.preprocess(image), one.preprocess(luma)) and one.shape == (1, 8, 8)
    assert np.array_equal(one.preprocess(luma), one.preprocess(luma[:, :, None]))
    three = ImageConfig(8, 8)
    assert np.array_equal(three.preprocess(luma), three.preprocess(np.stack([luma] * 3, axis=2)))


def test_a_view_of_a_frame_and_its_copy_give_the_same_bits() -> None:
    frame, config = noise(48, 64, 3), ImageConfig(24, 24)
    view = frame[::-1, ::2, ::-1]  # upside down, every other column, from blue first to red first
    assert np.array_equal(config.preprocess(view), config.preprocess(np.ascontiguousarray(view)))


def test_the_bits_do_not_change() -> None:
    """Golden: a change here changes what every exported bundle sees."""
    ramp = (np.arange(30 * 40 * 3) * 7919 % 256).astype(np.uint8).reshape(30, 40, 3)
    x = ImageConfig(3, 2, share=0.875).preprocess(ramp)
    assert x.astype("<f4").tobytes().hex() == (
        "2d5fb63b01e1b93c1c15233d77c1ba3dc4d3dd3db739693de52d403e8a402e3ee52d403e"
        "9b08643ee52d403e401b523e4084c83e4084c83e355dda3eb049e33eb049e33e355dda3e"
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"height": 0}, "height and width must be at least 1, got 0 and 8"),
        ({"fit": "pad"}, "fit must be one of crop, stretch, got 'pad'"),
        ({"share": 0.0}, r"share .*got 0\.0"),
        ({"share": 1.1}, r"share .*got 1\.1"),
        ({"mean": (0.5,)}, "got 1 and 3"),
        ({"mean": (0.5, 0.5), "std": (0.5, 0.5)}, "3 values, or 1 for a grey input, got 2 and 2"),
        ({"std": (0.5, 0.0, 0.5)}, "std finite and above 0"),
        ({"mean": (0.5, float("nan"), 0.5)}, "mean must be finite"),
    ],
)
def test_configs_that_make_no_sense_are_refused(fields, text) -> None:
    with pytest.raises(DataError, match=text):
        ImageConfig(**{"height": 8, "width": 8, **fields})


@pytest.mark.parametrize(
    ("image", "got"),
    [
        (np.zeros((3, 8, 8), np.float32), r"\(3, 8, 8\) float32"),
        (np.zeros((8, 8, 4), np.uint8), r"\(8, 8, 4\) uint8"),
        (np.zeros((3, 8, 8), np.uint8), r"\(3, 8, 8\) uint8"),
        (np.zeros((0, 8, 3), np.uint8), r"\(0, 8, 3\) uint8"),
        (np.zeros(8, np.uint8), r"\(8,\) uint8"),
        (Image.new("RGB", (8, 8)), r"Image.*numpy\.asarray"),
    ],
)
def test_what_is_no_picture_is_refused(image, got) -> None:
    with pytest.raises(ShapeError, match=rf"\(height, width, 3\).*uint8, .*{got}"):
        ImageConfig(8, 8).preprocess(image)


def test_json_holds_all_of_it() -> None:
    config = ImageConfig(8, 9, "stretch", 1, (0, 0, 0), (1, 1, 1))
    values = json.loads(json.dumps(config.to_dict()))
    assert json.dumps(values) == json.dumps(config.to_dict()) and '"share": 1.0' in json.dumps(values)
    assert ImageConfig(**{**values, "mean": tuple(values["mean"]), "std": tuple(values["std"])}) == config
