"""Parts of a data set: train, validation and test; a held-out share; a stream at a given rate of positives.

All of it depends on its arguments alone: the same labels and the same seed give the same samples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from penstock.datasets.loading import Data
from penstock.errors import DataError


@dataclass(frozen=True)
class Splits:
    """A data set in its parts, each a pair of tensors or a Dataset; what every loader returns.

    Attributes:
        train: to learn from.
        test: to measure on, once everything is chosen.
        class_names: the name of each label; 0 is the background.
        validation: to choose with; None where the official data set has none (`with_validation` makes one).
    """

    train: Data
    test: Data
    class_names: tuple[str, ...]
    validation: Data | None = None


class Labelled(NamedTuple):
    """Samples and their labels, which unpack like a pair: ``x, y = data.train``.

    Shapes:
        x: (n, *sample); y: (n,), int64
    """

    x: Tensor
    y: Tensor


def to_background(labels: Tensor) -> Tensor:
    """Apply the paper's mapping: odd classes become 0, the even ones 0, 2, 4, ... become 1, 2, 3, ...

    >>> to_background(torch.arange(10)).tolist()
    [1, 0, 2, 0, 3, 0, 4, 0, 5, 0]
    """
    return torch.where(labels % 2 == 0, labels // 2 + 1, 0)


def with_validation(data: Splits, share: float, seed: int = 0) -> Splits:
    """Return the data set with a share of each class moved from train to validation; as it is if it has one.

    Raises:
        DataError: when train is no pair of tensors, or a class is too small.
    """
    if data.validation is not None:
        return data
    if not isinstance(data.train, tuple):
        raise DataError(
            f"a {type(data.train).__name__} cannot be split here: hold a share of its files out, and give it as "
            "validation."
        )
    train, validation = split(*data.train, share, seed)
    return replace(data, train=train, validation=validation)


def split(
    x: Tensor, y: Tensor, share: float, seed: int, *, names: Sequence[str] | None = None
) -> tuple[Labelled, Labelled]:
    """Hold out a share of each class, chosen at random.

    Args:
        x: samples, (n, *sample).
        y: labels, (n,).
        share: the part of each class to hold out, between 0 and 1.
        seed: another seed holds out other samples.
        names: what an error calls each label; by default its number.

    Returns:
        What stays and what is held out. Each sample is in one of the two, in the order it had.

    Raises:
        DataError: when x and y differ in length, or a class would be missing on one side.
    """
    if len(x) != len(y):
        raise DataError(f"{len(x)} samples came with {len(y)} labels: give one label a sample.")
    _check_share(share, "the share to hold out")
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.zeros(len(y), dtype=torch.bool)
    for label in sorted(set(y.tolist())):
        members = (y == label).nonzero().squeeze(1)
        count = round(share * len(members))
        if not 0 < count < len(members):
            named = label if names is None else names[label]
            raise DataError(
                f"class {named} has {len(members)} samples, and a share of {share} of them is {count}: each class "
                "needs a sample on both sides. Choose another share or merge classes."
            )
        held_out[_draw(members, count, generator)] = True
    return Labelled(x[~held_out], y[~held_out]), Labelled(x[held_out], y[held_out])


def stream(labels: Tensor, positive_share: float, n: int, seed: int, background: int = 0) -> Tensor:
    """Draw a stream in which positives are as rare as the use case has them.

    The paper's image sets have as many positives as negatives; an always-on sensor sees fewer. No sample is
    drawn twice, so that counts over the stream are counts of independent samples.

    Args:
        labels: labels to draw from, (m,).
        positive_share: the share of positives in the stream, between 0 and 1: 0.1 for one in ten.
        n: the length of the stream.
        seed: another seed draws another stream.
        background: the label that is not positive.

    Returns:
        Indices into ``labels``, (n,), in random order, round(n * positive_share) of them positives.

    Raises:
        DataError: when there are too few samples of either kind.

    >>> y = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])
    >>> chosen = stream(y, 0.25, n=4, seed=0)
    >>> (y[chosen] > 0).sum().item()
    1
    """
    _check_share(positive_share, "the share of positives")
    positives = (labels != background).nonzero().squeeze(1)
    negatives = (labels == background).nonzero().squeeze(1)
    wanted = round(n * positive_share)
    if wanted > len(positives) or n - wanted > len(negatives):
        longest = int(min(len(positives) / positive_share, len(negatives) / (1 - positive_share)))
        raise DataError(
            f"a stream of {n} with a share of {positive_share} positives needs {wanted} positives and {n - wanted} of "
            f"the background; there are {len(positives)} and {len(negatives)}. At this share ask for no more than "
            f"{longest}."
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.cat([_draw(positives, wanted, generator), _draw(negatives, n - wanted, generator)])
    return chosen[torch.randperm(n, generator=generator)]


def _check_share(share: float, name: str) -> None:
    if not 0 < share < 1:
        raise DataError(f"{name} is {share}: it must lie between 0 and 1, both excluded.")


def _draw(members: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return members[torch.randperm(len(members), generator=generator)[:count]]
