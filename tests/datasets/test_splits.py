"""Splits and streams: partitions, stratified, reproducible."""

import pytest
import torch

from penstock.datasets.splits import draw_stream, stratified_split
from penstock.errors import DataError


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.tensor([0] * 500 + [1] * 40 + [2] * 60)[torch.randperm(600)]


def test_a_split_is_a_partition_and_keeps_pairs_together(labels: torch.Tensor) -> None:
    x = torch.arange(600)
    kept, held_out = stratified_split(x, labels, 0.25, seed=3)
    assert torch.equal(torch.cat([kept.x, held_out.x]).sort().values, x)
    assert torch.equal(kept.y, labels[kept.x])
    assert torch.equal(held_out.y, labels[held_out.x])


def test_a_split_is_stratified(labels: torch.Tensor) -> None:
    _, held_out = stratified_split(torch.arange(600), labels, 0.25, seed=3)
    assert held_out.y.bincount().tolist() == [125, 10, 15]


def test_a_split_depends_on_its_seed_alone(labels: torch.Tensor) -> None:
    x = torch.arange(600)
    first = stratified_split(x, labels, 0.25, seed=3)[1].x
    torch.manual_seed(99)
    assert torch.equal(first, stratified_split(x, labels, 0.25, seed=3)[1].x)
    assert not torch.equal(first, stratified_split(x, labels, 0.25, seed=4)[1].x)


def test_a_split_that_would_lose_a_class_is_refused() -> None:
    y = torch.tensor([0] * 10 + [1])
    with pytest.raises(DataError, match=r"class 1.* 1 samples"):
        stratified_split(y, y, 0.3, seed=0)


def test_a_split_checks_its_arguments(labels: torch.Tensor) -> None:
    with pytest.raises(DataError, match=r"600 labels .*599 samples"):
        stratified_split(torch.arange(599), labels, 0.2, seed=0)
    with pytest.raises(DataError, match=r"share .*got 1\.0"):
        stratified_split(labels, labels, 1.0, seed=0)


@pytest.mark.parametrize("positive_share", [0.1, 0.25, 0.5])
def test_a_stream_has_the_share_it_was_asked_for(labels: torch.Tensor, positive_share: float) -> None:
    drawn = draw_stream(labels, positive_share, 100, seed=1)
    assert (labels[drawn] > 0).sum() == round(100 * positive_share)
    assert len(drawn.unique()) == len(drawn) == 100


def test_a_stream_is_mixed_and_depends_on_its_seed_alone(labels: torch.Tensor) -> None:
    drawn = draw_stream(labels, 0.1, 500, seed=1)
    assert 0 < (labels[drawn[:250]] > 0).sum() < 50
    assert torch.equal(drawn, draw_stream(labels, 0.1, 500, seed=1))
    assert not torch.equal(drawn, draw_stream(labels, 0.1, 500, seed=2))


def test_the_error_of_a_stream_that_is_too_long_has_the_longest(labels: torch.Tensor) -> None:
    with pytest.raises(DataError, match=r"60 positives and 540.*100 and 500.*555"):
        draw_stream(labels, 0.1, 600, seed=0)
    assert len(draw_stream(labels, 0.1, 555, seed=0)) == 555
    with pytest.raises(DataError, match=r"positive_share .*got 0"):
        draw_stream(labels, 0, 10, seed=0)
