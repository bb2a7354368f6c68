"""Thin masks to what may cross: first the network learns, then dimensions are dropped, then the rest settles."""

from __future__ import annotations

from penstock.gating.network import GatedNetwork

CHANGE, BEGIN, END = 0.05, 0.1, 0.4
"""The shares of a run at which coordinates change, and between which dimensions are dropped."""


def kept_share(progress: float) -> float:
    """Return the share of the dimensions to be dropped that are still kept: falls from 1 to 0, ever more slowly.

    >>> kept_share(0.0), round(kept_share(0.25), 3), kept_share(0.8)
    (1.0, 0.125, 0.0)
    """
    done = min(max((progress - BEGIN) / (END - BEGIN), 0.0), 1.0)
    return (1 - done) ** 3


def thin(net: GatedNetwork, progress: float) -> bool:
    """Drop what matters least from each mask with ``keep``, as far as is due at this share of the training run.

    Before that, masks with a transform change to its coordinates.

    `fit` calls this before each step; in a loop of your own, call ``thin(net, step / steps)``. From END on, the masks
    stay as they are.

    Returns:
        Whether a mask has changed.
    """
    for layer in net.layers if progress >= CHANGE else ():
        layer.change_coordinates()
    masks = [layer.compression for layer in net.layers]
    due = [mask for mask in masks if mask is not None and mask.keep is not None and len(mask.kept) != mask.keep]
    for mask in due:
        assert mask.keep is not None
        mask.keep_only(mask.keep + round(kept_share(progress) * (mask.phi.numel() - mask.keep)))
    return bool(due)
