"""The paper's metrics of a gate, as pure functions (its appendix B; docs/notation.md).

``stopped`` and ``positive`` (of interest) are bool tensors (n,), one value per sample of a data set.
The paper's formulas mix two meanings of TP and FP; these follow its definitions in words.
"""

from __future__ import annotations

import torch
from torch import Tensor


def stop_rate(stopped: Tensor) -> float:
    """Return P_sr: the share of samples that are stopped."""
    return _share(stopped)


def early_stopping(stopped: Tensor, positive: Tensor) -> float:
    """Return the share of negatives that are stopped: the purpose of a gate."""
    return _share(stopped[~positive])


def negative_pass_through_rate(stopped: Tensor, positive: Tensor) -> float:
    """Return P_nptr: the share of negatives that pass by mistake."""
    return _share(~stopped[~positive])


def positive_lost_rate(stopped: Tensor, positive: Tensor) -> float:
    """Return P_plr: the share of positives that are stopped by mistake."""
    return _share(stopped[positive])


def negative_correction_rate(stopped: Tensor, positive: Tensor, mistaken: Tensor) -> float:
    """Return P_ncr: the share of negatives that are stopped and that the network would misclassify.

    Args:
        mistaken: (n,), samples that the network without gates misclassifies.
    """
    return _share((stopped & mistaken)[~positive])


def accuracy(predicted: Tensor, labels: Tensor) -> float:
    """Return the share of samples that get their own label."""
    return _share(predicted == labels)


def roc(scores: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Return the curve of a gate: the shares of negatives and of positives that pass, from no to all samples.

    >>> roc(torch.tensor([0.9, 0.8, 0.3]), torch.tensor([True, False, False]))
    (tensor([0.0000, 0.0000, 0.5000, 1.0000], dtype=torch.float64), tensor([0., 1., 1., 1.], dtype=torch.float64))
    """
    order = scores.argsort(descending=True)
    ranked, hit = scores[order], positive[order].double()
    distinct = torch.cat([ranked[1:] != ranked[:-1], torch.ones(1, dtype=torch.bool)])  # equal scores pass together
    zero = torch.zeros(1, dtype=torch.float64)
    true = torch.cat([zero, hit.cumsum(0)[distinct]])
    false = torch.cat([zero, (1 - hit).cumsum(0)[distinct]])
    return false / false[-1], true / true[-1]


def auc(scores: Tensor, positive: Tensor) -> float:
    """Return the area under `roc`: the probability that a positive scores above a negative; ½ is chance."""
    false, true = roc(scores, positive)
    return torch.trapezoid(true, false).item()


def pass_through_at(scores: Tensor, positive: Tensor, max_positive_loss: float) -> float:
    """Return the share of negatives that pass when at most this share of positives may be lost.

    Gates are compared at this point of the curve, because any early stopping can be reached by moving a threshold.
    """
    false, true = roc(scores, positive)
    return false[true >= 1 - max_positive_loss - 1e-12].min().item()


def _share(which: Tensor) -> float:
    return which.double().mean().item()
