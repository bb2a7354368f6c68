"""Recalibrate batch norm after training with drawn masks.

A drawn mask drops some of the kept dimensions of each sample, so batch norms after it learn the statistics of features
that are weaker and more uneven than in deployment. One pass over the training data with the final masks corrects them.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from penstock.datasets.loading import Data, batches
from penstock.gating.network import GatedNetwork
from penstock.gating.temporary_mode import temporary_mode


def has_drawn_masks(net: GatedNetwork) -> bool:
    """Return whether a mask of the network is drawn during training."""
    return any(layer.config.mask == "drawn" for layer in net.layers)


@torch.no_grad()
def recalibrate_batch_norm(
    net: GatedNetwork, data: Data, *, batch_size: int, device: torch.device, progress: str | None = None
) -> None:
    """Recompute the running statistics of all batch norms in training mode, with the masks of deployment.

    Args:
        net: changed in place.
        data: the training data, read without shuffling.
        batch_size: that of the training, because the variance of a batch depends on it slightly.
        device: where to compute; the network then returns to its own device.
        progress: the title of a progress bar; None for no bar.
    """
    norms = [part for part in net.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
    norms = [norm for norm in norms if norm.training]  # not those that the user froze with .eval()
    if not norms:
        return
    home, momenta = next(net.parameters()).device, [norm.momentum for norm in norms]
    with temporary_mode(net, training=False), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # for augmentations: the same statistics each time
        for norm in norms:
            norm.reset_running_stats()
            norm.training, norm.momentum = True, None  # None: the mean over all batches
        net.to(device)
        for x, _ in batches(data, batch_size=batch_size, progress=progress):
            if len(x) > 1:  # a single sample may have no variance
                net(x.to(device))
        net.to(home)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
