"""After a training with drawn masks: take the statistics of batch norms anew, with the masks of deployment.

While masks are drawn, part of what they keep is missing from each sample, and the batch norms behind come to expect
features that are weaker and more uneven than those of deployment. One pass over the training data, without noise and
without a step, tells them.
"""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from penstock.datasets.loading import Data, batches
from penstock.gating.network import GatedNetwork
from penstock.gating.temporary_mode import temporary_mode


def has_drawn_masks(net: GatedNetwork) -> bool:
    """Say whether a mask of the network was drawn while training."""
    return any(layer.config.mask == "drawn" for layer in net.layers)


@torch.no_grad()
def recalibrate_batch_norm(
    net: GatedNetwork, data: Data, *, batch_size: int, device: torch.device, progress: str | None = None
) -> None:
    """Take the statistics of all batch norms that learn them from the data, as it looks in deployment.

    Args:
        data: that of the training. It is gone through in its own order, whatever order it was trained in.
        batch_size: that of the training: a batch's variance depends on it a little.
        device: where to compute; the network is then put back to where it was.
        progress: the title of a bar, where one is wanted.
    """
    norms = [part for part in net.modules() if isinstance(part, _BatchNorm) and part.track_running_stats]
    norms = [norm for norm in norms if norm.training]  # one that somebody froze stays as it is
    if not norms:
        return
    home, momenta = next(net.parameters()).device, [norm.momentum for norm in norms]
    with temporary_mode(net, training=False), torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # an augmentation is to draw the same each time
        for norm in norms:
            norm.reset_running_stats()
            norm.training, norm.momentum = True, None  # None: the mean over all batches
        net.to(device)
        for x, _ in batches(data, batch_size=batch_size, progress=progress):
            if len(x) > 1:  # one sample alone may have no variance
                net(x.to(device))
        net.to(home)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
