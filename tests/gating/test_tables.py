"""Tables fit a terminal of 100 columns."""

import pytest
import torch

import penstock as ps
from helpers.zoo import sequential
from penstock.gating.tables import percent


def test_cuts_print_as_a_table():
    text = str(ps.cuts(sequential(), torch.zeros(1, 6)))
    assert "MACs before" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_gated_network_prints_as_a_table():
    text = str(ps.gate(sequential(), torch.zeros(2, 6), at=[0.3, 0.7], positives=[{1, 2}, {1}]))
    assert "{1, 2}" in text
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 %"), (0.25, "25.0 %"), (0.0005, "0.1 %"), (0.0004, "0.04 %"), (-0.5, "-50.0 %")]
)
def test_small_shares_get_more_digits(value, text):
    assert percent(value) == text
