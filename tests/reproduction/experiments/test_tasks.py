"""The data of a task: a validation split for data sets without one."""

import pytest
import torch

from penstock.datasets.splits import Splits, stratified_split
from penstock.errors import DataError
from reproduction.experiments.tasks import with_validation


def test_a_validation_part_is_taken_from_train_once() -> None:
    labels = torch.tensor([0] * 60 + [1] * 40)
    x = torch.arange(len(labels))
    data = Splits((x, labels), (x, labels), ("background", "a"))
    held = with_validation(data, 0.25, seed=3)
    kept, out = stratified_split(x, labels, 0.25, seed=3)
    assert held.train[0].equal(kept.x) and held.validation[0].equal(out.x)
    assert with_validation(held, 0.5) is held
    with pytest.raises(DataError, match="TensorDataset"):
        with_validation(Splits(torch.utils.data.TensorDataset(x), (x, labels), ("background",)), 0.25)
