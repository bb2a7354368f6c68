"""Small networks: within their share of the multiply-accumulates, for every kind of input."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from penstock.comparison.tiny import SHARES, check_input, macs_of, tiny, widths
from penstock.errors import LayerError


@pytest.mark.parametrize(
    ("sample", "macs"),
    [((3, 32, 32), 3_000_000), ((1, 28, 28), 400_000), ((2, 64), 63_776), ((6,), 300), ((4, 5, 6, 7), 90_000)],
)
def test_each_is_within_its_share_and_the_next_wider_one_is_not(sample, macs):
    found = widths(sample, 3, macs)
    assert found == sorted(set(found)) and 1 <= len(found) <= len(SHARES)
    assert all(macs_of(sample, 3, width) <= 0.1 * macs for width in found)
    assert macs_of(sample, 3, found[-1] + 1) > 0.1 * macs
    net = tiny(sample, 3, found[-1]).eval()
    with FlopCounterMode(display=False) as counter:
        assert net(torch.randn(1, *sample)).shape == (1, 3)
    assert counter.get_total_flops() == 2 * macs_of(sample, 3, found[-1])


def test_a_network_may_be_too_small_for_any():
    assert widths((6,), 3, 60) == []


def test_there_is_none_for_tokens():
    with pytest.raises(LayerError, match=r"no small network for inputs of torch\.int64"):
        check_input(torch.zeros(2, 8, dtype=torch.long))
    check_input(torch.zeros(2, 8))
