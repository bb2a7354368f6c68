"""Change coordinates before the mask: principal components across channels, cosines along places or time.

Values of a feature map resemble their neighbours, and channels resemble each other, so dropping single values drops
much that is needed, and most of what is kept says the same twice. In other coordinates few values say nearly all, which
is why image codecs drop cosine coefficients and not pixels. Both changes are orthonormal: with a full mask nothing is
lost (docs/decisions/0024-transforms.md).
"""

from __future__ import annotations

from math import pi, prod

import torch
from torch import Tensor, nn

MEMORY = 0.95
"""Of the running mean of the channels' covariance: about 20 batches."""


class Transform(nn.Module):
    """The coefficients of features, and back. The identity until `fit` has chosen the channels' axes.

    Coefficients are divided by their root mean square in the first batch after that, so that they have one range.

    Args:
        feature: the shape of one sample's features, (C, *places).

    Shapes:
        x: (batch, C, *places) -> (batch, C, *places)

    >>> x = torch.randn(64, 4, 6)
    >>> transform = Transform((4, 6))
    >>> transform.observe(x); transform.fit(); bool(torch.allclose(transform.inverse(transform(x)), x, atol=1e-5))
    True
    """

    mean: Tensor
    product: Tensor
    seen: Tensor
    rotation: Tensor
    scale: Tensor
    fitted: Tensor
    scaled: Tensor

    def __init__(self, feature: tuple[int, ...]):
        super().__init__()
        channels, self.places = feature[0], tuple(feature[1:])
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("product", torch.zeros(channels, channels))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))
        self.register_buffer("rotation", torch.eye(channels))
        self.register_buffer("scale", torch.ones(feature))
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("scaled", torch.zeros((), dtype=torch.bool))
        for axis, size in enumerate(self.places):
            self.register_buffer(f"cosines{axis}", cosines(size), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if not self.fitted:
            return x
        if self.training and not self.scaled:
            self._set_scale(x)
        return self.coefficients(x)

    def inverse(self, coefficients: Tensor) -> Tensor:
        """Return the features of what `forward` gave."""
        return self.features(coefficients) if self.fitted else coefficients

    def coefficients(self, x: Tensor) -> Tensor:
        """Return the coefficients of features in the axes that were fitted."""
        with torch.autocast(x.device.type, enabled=False):
            x = self._across_channels(self.rotation, x.float())
            for axis in range(len(self.places)):
                x = _along(axis, self._cosines(axis), x)
            return x / self.scale

    def features(self, coefficients: Tensor) -> Tensor:
        """Undo `coefficients`."""
        with torch.autocast(coefficients.device.type, enabled=False):
            x = coefficients.float() * self.scale
            for axis in range(len(self.places)):
                x = _along(axis, self._cosines(axis).T, x)
            return self._across_channels(self.rotation.T, x)

    @torch.no_grad()
    def _set_scale(self, x: Tensor) -> None:
        spread = self.coefficients(x).square().mean(0).sqrt()
        self.scale.copy_(spread.clamp(min=max(1e-3 * float(spread.max()), 1e-12)))
        self.scaled.fill_(True)

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Add a batch to the running covariance of the channels."""
        values = x.detach().float().movedim(1, -1).flatten(0, -2)  # (batch · places, C)
        weight = 1 - MEMORY if self.seen else 1.0
        with torch.autocast(x.device.type, enabled=False):
            self.mean.lerp_(values.mean(0), weight)
            self.product.lerp_(values.T @ values / len(values), weight)
        self.seen.fill_(True)

    @torch.no_grad()
    def fit(self) -> None:
        """Take the principal components of what was observed as the channels' axes, the largest first."""
        covariance = self.product - torch.outer(self.mean, self.mean)
        self.rotation.copy_(torch.linalg.eigh(covariance.double()).eigenvectors.flip(1).T)
        self.fitted.fill_(True)

    def macs(self) -> int:
        """Return the multiply-accumulates of one sample, each way."""
        return transform_macs((len(self.rotation), *self.places))

    def _across_channels(self, matrix: Tensor, x: Tensor) -> Tensor:
        return (matrix @ x.flatten(2)).unflatten(2, self.places)

    def _cosines(self, axis: int) -> Tensor:
        return getattr(self, f"cosines{axis}")  # type: ignore[no-any-return]


def transform_macs(feature: tuple[int, ...]) -> int:
    """Return the multiply-accumulates of a `Transform` of one sample, each way.

    >>> transform_macs((40, 12, 12))
    368640
    """
    return prod(feature) * sum(feature)


def cosines(size: int) -> Tensor:
    """Return the orthonormal cosine transform (DCT-II) of ``size`` values, a row for each frequency.

    >>> bool(torch.allclose(cosines(5) @ cosines(5).T, torch.eye(5), atol=1e-6))
    True
    """
    frequencies, places = torch.arange(size)[:, None], torch.arange(size)[None]
    matrix = torch.cos(pi * (places.double() + 0.5) * frequencies / size) * (2 / size) ** 0.5
    matrix[0] /= 2**0.5
    return matrix.float()


def _along(axis: int, matrix: Tensor, x: Tensor) -> Tensor:
    """Multiply by a matrix along one axis of the places of (batch, C, *places)."""
    if axis == x.ndim - 3:
        return x @ matrix.T
    return (matrix @ x.flatten(axis + 3)).unflatten(axis + 3, x.shape[axis + 3 :])
