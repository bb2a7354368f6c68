"""State what the results show for each figure, in one or two sentences; every number is computed.

A finding is an empty string while the runs it needs are missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from statistics import mean
from typing import Any

import numpy as np

from penstock.gating.tables import percent
from reproduction.page.analysis_figures import gate_auc, gate_stopping
from reproduction.page.dataset_figures import Quantity, accuracy, stopped
from reproduction.results.claims import COMPARED_LOSS, rank_correlation, stopping_at
from reproduction.results.finished_runs import BySeed


def position_finding(lines: Mapping[str, Mapping[int, BySeed]]) -> str:
    """Report early stopping and sparsity at 10, 40 and 80 % depth, and their trend with depth."""
    parts = []
    for block in (1, 4, 8):
        at_block = [places[block] for places in lines.values() if places.get(block)]
        if at_block:
            stops = _range([_mean(results, lambda result: stopping_at(result, COMPARED_LOSS)) for results in at_block])
            drops = _range([_mean(results, sparsity) for results in at_block])
            parts.append(
                f"at {10 * block} % depth a layer stops {stops} of the negatives and drops {drops} of the values"
            )
    return " ".join(text for text in (f"Here, {'; '.join(parts)}." if parts else "", *_with_depth(lines)) if text)


def _with_depth(lines: Mapping[str, Mapping[int, BySeed]]) -> Iterator[str]:
    """Report the trend of early stopping and of the kept values with depth, where all positions were run."""
    complete = {title: places for title, places in lines.items() if len(places) > 1 and all(places.values())}
    if not complete:
        return
    where: tuple[tuple[str, Quantity], ...] = (
        ("at equal positive loss,", lambda result: stopping_at(result, COMPARED_LOSS)),
        ("at the operating point of table 1, which fixes the accuracy and not the loss,", stopped),
    )
    for place, quantity in where:
        ranks = [
            f"{rank_correlation([_mean(results, quantity) for _, results in sorted(places.items())]):+.2f} on {title}"
            for title, places in complete.items()
        ]
        yield f"The rank correlation of early stopping with depth, {place} is {'; '.join(ranks)}."
    ends = [
        f"{_mean(places[min(places)], kept):,.0f} and {_mean(places[max(places)], kept):,.0f} on {title}"
        for title, places in complete.items()
    ]
    yield f"Values kept per sample after the first and after the last block: {'; '.join(ends)}."


def count_finding(lines: Mapping[str, Mapping[int, BySeed]]) -> str:
    """Report the change of accuracy from one layer to eight."""
    changes = []
    for title, numbers in lines.items():
        few, many = numbers[min(numbers)], numbers[max(numbers)]
        if few and many:
            changes.append(f"{_points(_mean(many, accuracy) - _mean(few, accuracy))} on {title}")
    return f"Here, from one layer to eight, accuracy changes by {', '.join(changes)}." if changes else ""


def alpha_finding(baseline: BySeed, alphas: Mapping[float, BySeed]) -> str:
    """Report at how many α the gated network beats the Baseline, and the AUC at the smallest and largest α."""
    available = {alpha: results for alpha, results in alphas.items() if results}
    if not baseline or not available:
        return ""
    better = sum(_mean(results, accuracy) > _mean(baseline, accuracy) for results in available.values())
    first, last = min(available), max(available)
    return (
        f"Here the gated network is more accurate than the Baseline at {better} of {len(available)} values of α, "
        f"and the gate's AUC is {_mean(available[first], gate_auc):.4f} at α = {first:g} and "
        f"{_mean(available[last], gate_auc):.4f} at α = {last:g}."
    )


def beta_finding(baseline: BySeed, betas: Mapping[float, BySeed]) -> str:
    """Report sparsity at the smallest and largest β, and the range of accuracies relative to the Baseline."""
    available = {beta: results for beta, results in betas.items() if results}
    if not baseline or not available:
        return ""
    least, most = (percent(_mean(available[beta], sparsity)) for beta in (min(available), max(available)))
    gains = [_mean(results, accuracy) - _mean(baseline, accuracy) for results in available.values()]
    return (
        f"Here the mask drops {least} of the values at β = {min(available):g} and {most} at β = {max(available):g}. "
        f"Accuracy minus the Baseline's lies between {_points(min(gains))} and {_points(max(gains))}."
    )


def phi_finding(results: BySeed) -> str:
    """Report the share of φ at the ends of its range, and the share that is kept."""
    if not results:
        return ""
    counts = np.sum([result["layers"][0]["phi_histogram"] for result in results.values()], axis=0)
    ends = (counts[0] + counts[-1]) / counts.sum()
    width = 1 / len(counts)
    kept = 1 - _mean(results, sparsity)
    return f"Here {percent(ends)} of the dimensions lie within {width:g} of 0 or 1, and {percent(kept)} are kept."


def gate_input_finding(blocks: Mapping[int, BySeed]) -> str:
    """Report which input is best for the gate, and which for the network."""
    available = {block: results for block, results in blocks.items() if results}
    if not available:
        return ""
    best = [max(available, key=lambda block: _mean(available[block], quantity)) for quantity in (gate_auc, accuracy)]
    gate, network = ("the raw input" if block == 0 else f"block {block}" for block in best)
    return f"Here the gate is best when it reads {gate}, and the network is best when the gate reads {network}."


def two_stages_finding(joint: BySeed, alternating: Sequence[BySeed]) -> str:
    """Report the gain of joint training over the best alternating one."""
    available = [results for results in alternating if results]
    if not joint or not available:
        return ""
    gains = [
        _mean(joint, quantity) - max(_mean(results, quantity) for results in available)
        for quantity in (accuracy, gate_stopping)
    ]
    return (
        f"Here joint training changes accuracy by {_points(gains[0])} and early stopping by {_points(gains[1])} "
        f"relative to the best of {len(available)} alternating trainings."
    )


def dropout_finding(baseline: BySeed, rates: Mapping[float, BySeed], ours: Mapping[str, BySeed]) -> str:
    """Report the gain of dropout over the Baseline, and of the GC networks over dropout, on the same seeds."""
    available = {rate: results for rate, results in rates.items() if results}
    seeds = set(baseline).intersection(*available.values(), *(results for results in ours.values() if results))
    if not available or not seeds:
        return ""
    available = {rate: _select_seeds(results, seeds) for rate, results in available.items()}
    ours = {name: _select_seeds(results, seeds) for name, results in ours.items()}
    plain = _mean(_select_seeds(baseline, seeds), accuracy)
    best = max(available, key=lambda rate: _mean(available[rate], accuracy))
    noise = _mean(available[best], accuracy)
    above = [f"{name} {_points(_mean(results, accuracy) - noise)}" for name, results in ours.items() if results]
    text = (
        f"Here, on {len(seeds)} seed{'s' * (len(seeds) > 1)}, dropout alone changes the accuracy by "
        f"{_points(noise - plain)} at its best rate, {best:g}"
    )
    return f"{text}; compared with dropout: {' and '.join(above)}." if above else f"{text}."


def sparsity(result: dict[str, Any]) -> float:
    """Return the share of values that are dropped."""
    return float(result["activation_sparsity"])


def kept(result: dict[str, Any]) -> float:
    """Return the number of values kept per sample, over all layers."""
    return float(sum(layer["density"] * prod(layer["feature"]) for layer in result["layers"]))


def _select_seeds(results: BySeed, seeds: Collection[int]) -> BySeed:
    return {seed: result for seed, result in results.items() if seed in seeds}


def _mean(results: BySeed, quantity: Quantity) -> float:
    return mean(quantity(result) for result in results.values())


def _range(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def _points(difference: float) -> str:
    """Format a difference of shares in percentage points.

    >>> _points(-0.0123), _points(0.005)
    ('−1.23 points', '+0.50 points')
    """
    return f"{100 * difference:+.2f} points".replace("-", "−")
