"""Resized pictures against Pillow, and the reason why every machine computes the same bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from penstock.runtime.images.resizing import UNIT, _filters, resize

SIDES = st.integers(1, 70)
SHARES = st.tuples(st.floats(0, 0.4), st.floats(0, 0.4), st.floats(0.6, 1), st.floats(0.6, 1))


@settings(max_examples=200, deadline=None)
@given(SIDES, SIDES, SIDES, SIDES, SHARES, st.integers(0, 99))
def test_it_is_what_pillow_computes_up_to_one_level(rows, columns, height, width, shares, seed) -> None:
    """Pillow's rounds differ: columns first, and weights of 22 bits."""
    image = np.random.default_rng(seed).integers(0, 256, (rows, columns, 3), dtype=np.uint8)
    box = tuple(share * side for share, side in zip(shares, (columns, rows, columns, rows), strict=True))
    pillow = Image.fromarray(image).resize((width, height), Image.Resampling.BILINEAR, box=box)
    assert np.abs(resize(image, height, width, box).astype(int) - np.asarray(pillow, int)).max() <= 1


def test_a_photograph_of_twelve_megapixels_is_what_pillow_computes() -> None:
    image = np.random.default_rng(0).integers(0, 256, (3000, 4000, 3), dtype=np.uint8)
    pillow = Image.fromarray(image).resize((96, 96), Image.Resampling.BILINEAR, box=(500, 0, 3500, 3000))
    assert np.abs(resize(image, 96, 96, (500, 0, 3500, 3000)).astype(int) - np.asarray(pillow, int)).max() <= 1


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 300), st.floats(0, 0.4), st.floats(0.6, 1))
def test_weights_add_up_to_one_in_exact_steps(size, count, low, high) -> None:
    """So that no sum of weighted pixels is rounded in float32, and its order does not matter."""
    filters = _filters.__wrapped__(size, count, low * size, high * size)
    assert len(filters) == count
    for start, weights in filters:
        steps = weights.astype(np.float64) * UNIT
        assert 0 <= start <= size - len(weights) and (steps >= 0).all() and (steps == np.round(steps)).all()
        assert steps.sum() == UNIT and 255 * UNIT < 2**24


def test_the_order_of_a_sum_does_not_matter() -> None:
    (_, weights), *_ = _filters(4000, 3, 0.3, 3999.2)
    pixels = np.random.default_rng(0).integers(0, 256, len(weights)).astype(np.float32)
    sums = {
        np.float32(np.cumsum((weights * pixels)[order])[-1])
        for order in map(np.random.default_rng(1).permutation, [len(weights)] * 50)
    }
    assert sums == {np.float32(weights @ pixels)}


@pytest.mark.parametrize("channels", [1, 3])
def test_a_picture_of_the_right_size_is_itself_and_a_plain_one_stays_plain(channels) -> None:
    image = np.random.default_rng(0).integers(0, 256, (17, 23, channels), dtype=np.uint8)
    assert np.array_equal(resize(image, 17, 23, (0, 0, 23, 17)), image)
    assert np.array_equal(resize(image, 5, 7, (3, 2, 10, 7)), image[2:7, 3:10])
    for level in (0, 1, 254, 255):
        assert (resize(np.full_like(image, level), 40, 9, (0.3, 0, 22.9, 17)) == level).all()
