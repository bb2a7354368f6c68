"""Send values in fewer bits: round them to 2^bits levels, with a learned step for each channel.

    y = step · (clip(round(x / step) + zero, 0, 2^bits − 1) − zero)

0 stays 0, so that dropped values need no level. Steps learn by a straight-through gradient (Esser et al., Learned Step
Size Quantization, arXiv:1902.08153).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

SPREAD = {8: 8.0, 4: 3.0}
"""A range first reaches this many standard deviations from the mean, but not beyond the values of the first batch."""


class Quantizer(nn.Module):
    """Round values to one of 2^bits levels. The first batch seen in training sets the range of each channel.

    Args:
        feature: the shape of one sample's features, without the batch.
        bits: of each value.
        axis: of the features, along which channels differ in range.

    Shapes:
        x: (batch, *feature) -> (batch, *feature)
    """

    zero: Tensor
    ready: Tensor

    def __init__(self, feature: tuple[int, ...], bits: int, *, axis: int = 0):
        super().__init__()
        shape = [1] * len(feature)
        shape[axis] = feature[axis]
        self.bits, self.levels = bits, 2**bits - 1
        self.step = nn.Parameter(torch.ones(shape))
        self.register_buffer("zero", torch.zeros(shape))
        self.register_buffer("ready", torch.zeros((), dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.ready:
            self._set_range(x.detach())
        if not self.ready:
            return x
        step = self.step.abs().clamp(min=1e-8)
        code = (x / step + self.zero).clamp(0, self.levels)
        code = code + (code.round() - code).detach()
        return step * (code - self.zero)

    @torch.no_grad()
    def _set_range(self, x: Tensor) -> None:
        x = x.float()
        axes = [0, *(i + 1 for i, size in enumerate(self.step.shape) if size == 1)]
        mean, reach = x.mean(axes, keepdim=True), SPREAD[self.bits] * x.std(axes, keepdim=True)
        low = torch.maximum(x.amin(axes, keepdim=True), mean - reach)[0].clamp(max=0)
        high = torch.minimum(x.amax(axes, keepdim=True), mean + reach)[0].clamp(min=0)
        self.step.copy_((high - low).clamp(min=1e-6) / self.levels)
        self.zero.copy_((-low / self.step).round())
        self.ready.fill_(True)

    def extra_repr(self) -> str:
        return f"bits={self.bits}"
