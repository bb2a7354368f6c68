"""What our own results say to the paper's figures, in a sentence each; every number in it is computed.

A finding is an empty text while the runs that it speaks of are not there.
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
    """Say what a layer at 10, 40 and 80 % of the depth stops and drops, and what rises with depth."""
    said = []
    for block in (1, 4, 8):
        there = [places[block] for places in lines.values() if places.get(block)]
        if there:
            stops = _range([_mean(results, lambda result: stopping_at(result, COMPARED_LOSS)) for results in there])
            drops = _range([_mean(results, sparsity) for results in there])
            said.append(
                f"at {10 * block} % of the depth it stops {stops} of the negatives and drops {drops} of the values"
            )
    return " ".join(text for text in (f"Here, {'; '.join(said)}." if said else "", *_with_depth(lines)) if text)


def _with_depth(lines: Mapping[str, Mapping[int, BySeed]]) -> Iterator[str]:
    """Say how early stopping and the values kept go with depth, on data sets that have all positions."""
    whole = {title: places for title, places in lines.items() if len(places) > 1 and all(places.values())}
    if not whole:
        return
    where: tuple[tuple[str, Quantity], ...] = (
        ("at equal positives lost,", lambda result: stopping_at(result, COMPARED_LOSS)),
        ("at the operating point of table 1, which keeps the accuracy and lets the loss be what it is,", stopped),
    )
    for place, quantity in where:
        ranks = [
            f"{rank_correlation([_mean(results, quantity) for _, results in sorted(places.items())]):+.2f} on {title}"
            for title, places in whole.items()
        ]
        yield f"The rank correlation of early stopping with depth, {place} is {'; '.join(ranks)}."
    ends = [
        f"{_mean(places[min(places)], kept):,.0f} and {_mean(places[max(places)], kept):,.0f} on {title}"
        for title, places in whole.items()
    ]
    yield f"Behind the first block and behind the last, so many values of a sample are kept: {'; '.join(ends)}."


def count_finding(lines: Mapping[str, Mapping[int, BySeed]]) -> str:
    """Say how far accuracy falls from one layer to eight."""
    said = []
    for title, numbers in lines.items():
        few, many = numbers[min(numbers)], numbers[max(numbers)]
        if few and many:
            said.append(f"{_points(_mean(many, accuracy) - _mean(few, accuracy))} on {title}")
    return f"Here, from one layer to eight, accuracy changes by {', '.join(said)}." if said else ""


def alpha_finding(baseline: BySeed, alphas: Mapping[float, BySeed]) -> str:
    """Say where the gated network is the more accurate one, and what the gate gains."""
    there = {alpha: results for alpha, results in alphas.items() if results}
    if not baseline or not there:
        return ""
    better = sum(_mean(results, accuracy) > _mean(baseline, accuracy) for results in there.values())
    first, last = min(there), max(there)
    return (
        f"Here the gated network is more accurate than the Baseline at {better} of {len(there)} values of α, and the "
        f"gate's AUC is {_mean(there[first], gate_auc):.4f} at α = {first:g} and {_mean(there[last], gate_auc):.4f} at "
        f"α = {last:g}."
    )


def beta_finding(baseline: BySeed, betas: Mapping[float, BySeed]) -> str:
    """Say what the mask drops without and with the heaviest regularisation, and what accuracy does."""
    there = {beta: results for beta, results in betas.items() if results}
    if not baseline or not there:
        return ""
    dropped = ", ".join(f"{percent(_mean(there[beta], sparsity))} at β = {beta:g}" for beta in (min(there), max(there)))
    gains = [_mean(results, accuracy) - _mean(baseline, accuracy) for results in there.values()]
    return (
        f"Here the mask drops {dropped}. Accuracy minus the Baseline's lies between {_points(min(gains))} and "
        f"{_points(max(gains))}."
    )


def phi_finding(results: BySeed) -> str:
    """Say how much of φ lies at the ends of its range, and how much is kept."""
    if not results:
        return ""
    counts = np.sum([result["layers"][0]["phi_histogram"] for result in results.values()], axis=0)
    ends = (counts[0] + counts[-1]) / counts.sum()
    width = 1 / len(counts)
    kept = 1 - _mean(results, sparsity)
    return f"Here {percent(ends)} of the dimensions lie within {width:g} of 0 or 1, and {percent(kept)} are kept."


def gate_input_finding(blocks: Mapping[int, BySeed]) -> str:
    """Say which input serves the gate best, and which the network."""
    there = {block: results for block, results in blocks.items() if results}
    if not there:
        return ""
    best = [max(there, key=lambda block: _mean(there[block], quantity)) for quantity in (gate_auc, accuracy)]
    gate, network = ("the raw input" if block == 0 else f"block {block}" for block in best)
    return f"Here the gate is best when it reads {gate}, the network when the gate reads {network}."


def two_stages_finding(joint: BySeed, turns: Sequence[BySeed]) -> str:
    """Say what training all at once gains over the best of the others."""
    there = [results for results in turns if results]
    if not joint or not there:
        return ""
    gains = [
        _mean(joint, quantity) - max(_mean(results, quantity) for results in there)
        for quantity in (accuracy, gate_stopping)
    ]
    return (
        f"Here training all at once gains {_points(gains[0])} of accuracy and {_points(gains[1])} of early stopping "
        f"over the best of the {len(there)} ways to train by turns."
    )


def dropout_finding(baseline: BySeed, rates: Mapping[float, BySeed], ours: Mapping[str, BySeed]) -> str:
    """Say what dropout alone gains over the Baseline, and what ours have above its best, on the same seeds."""
    there = {rate: results for rate, results in rates.items() if results}
    seeds = set(baseline).intersection(*there.values(), *(results for results in ours.values() if results))
    if not there or not seeds:
        return ""
    there = {rate: _of(results, seeds) for rate, results in there.items()}
    ours = {name: _of(results, seeds) for name, results in ours.items()}
    plain = _mean(_of(baseline, seeds), accuracy)
    best = max(there, key=lambda rate: _mean(there[rate], accuracy))
    noise = _mean(there[best], accuracy)
    above = [f"{name} {_points(_mean(results, accuracy) - noise)}" for name, results in ours.items() if results]
    said = (
        f"Here, on {len(seeds)} seed{'s' * (len(seeds) > 1)}, dropout alone changes the accuracy by "
        f"{_points(noise - plain)} at its best rate, {best:g}"
    )
    return f"{said}; against that stand {' and '.join(above)}." if above else f"{said}."


def sparsity(result: dict[str, Any]) -> float:
    """Return the share of values that are not sent."""
    return float(result["activation_sparsity"])


def kept(result: dict[str, Any]) -> float:
    """Return how many values a sample's mask lets through, in all layers."""
    return float(sum(layer["density"] * prod(layer["feature"]) for layer in result["layers"]))


def _of(results: BySeed, seeds: Collection[int]) -> BySeed:
    return {seed: result for seed, result in results.items() if seed in seeds}


def _mean(results: BySeed, quantity: Quantity) -> float:
    return mean(quantity(result) for result in results.values())


def _range(values: Sequence[float]) -> str:
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low} to {high}"


def _points(difference: float) -> str:
    """Return a difference of shares as a person reads it.

    >>> _points(-0.0123), _points(0.005)
    ('−1.23 points', '+0.50 points')
    """
    return f"{100 * difference:+.2f} points".replace("-", "−")
