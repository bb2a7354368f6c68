"""Splits of a data set: train, validation and test; a held-out share; a stream with a given share of positives.

Everything depends only on the arguments: the same labels and the same seed give the same samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.datasets.loading import Data
from penstock.errors import DataError
from penstock.runtime.images.config import ImageConfig


@dataclass(frozen=True)
class Splits:
    """The splits of a data set, each a pair of tensors or a Dataset; what every loader returns.

    Attributes:
        class_names: the name of each label; 0 is the background.
        test: data to evaluate on; None if the data set has none, such as a folder with ``train`` and ``val`` alone.
        validation: data for choosing models and thresholds; None if the data set has none.
        image_config: how pictures become these inputs, for a bundle; None if they are no pictures.
    """

    train: Data
    test: Data | None
    class_names: tuple[str, ...]
    validation: Data | None = None
    image_config: ImageConfig | None = None


class Labelled(NamedTuple):
    """Samples and their labels; unpacks as ``x, y = data.train``.

    Shapes:
        x: (n, *sample); y: (n,), int64
    """

    x: Tensor
    y: Tensor


def stratified_split(
    x: Tensor, y: Tensor, share: float, seed: int, *, names: Sequence[str] | None = None
) -> tuple[Labelled, Labelled]:
    """Hold out a share of each class, chosen at random.

    Args:
        names: name of each label for errors; default: its number.

    Returns:
        The samples kept and those held out, both in the original order.

    Raises:
        DataError: if x and y differ in length, or a class would be missing on one side.
    """
    if len(x) != len(y):
        raise DataError(f"expected one label per sample, got {len(y)} labels for {len(x)} samples.")
    _check_share(share, "share")
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.zeros(len(y), dtype=torch.bool)
    for label in sorted(set(y.tolist())):
        members = (y == label).nonzero().squeeze(1)
        count = round(share * len(members))
        if not 0 < count < len(members):
            name = label if names is None else names[label]
            raise DataError(
                f"cannot split class {name}: {share:g} of its {len(members)} samples is {count}, and each side needs "
                "at least one. Choose another share or merge classes."
            )
        held_out[_draw(members, count, generator)] = True
    return Labelled(x[~held_out], y[~held_out]), Labelled(x[held_out], y[held_out])


def draw_stream(labels: Tensor, positive_share: float, n: int, seed: int) -> Tensor:
    """Draw a stream of n samples with a given share of positives: all labels but 0.

    The paper's image sets have as many positives as negatives; an always-on sensor sees fewer. Samples are drawn
    without replacement, so that they are independent.

    Returns:
        Indices into ``labels``, (n,), in random order, round(n * positive_share) of them positives.

    Raises:
        DataError: if there are too few positives or negatives.

    >>> y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
    >>> chosen = draw_stream(y, 0.25, n=4, seed=0)
    >>> (y[chosen] > 0).sum().item()
    1
    """
    _check_share(positive_share, "positive_share")
    positives = (labels != 0).nonzero().squeeze(1)
    negatives = (labels == 0).nonzero().squeeze(1)
    positive_count = round(n * positive_share)
    if positive_count > len(positives) or n - positive_count > len(negatives):
        longest = int(min(len(positives) / positive_share, len(negatives) / (1 - positive_share)))
        raise DataError(
            f"a stream of {n} with positive_share={positive_share} needs {positive_count} positives and "
            f"{n - positive_count} negatives, but there are only {len(positives)} and {len(negatives)}: n can be "
            f"at most {longest}."
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.cat([_draw(positives, positive_count, generator), _draw(negatives, n - positive_count, generator)])
    return chosen[torch.randperm(n, generator=generator)]


def _check_share(share: float, name: str) -> None:
    if not 0 < share < 1:
        raise DataError(f"{name} must be between 0 and 1 (exclusive), got {share}.")


def _draw(members: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return members[torch.randperm(len(members), generator=generator)[:count]]
