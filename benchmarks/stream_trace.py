"""Plot a stretch of a stream: scores, words, alarms, and what each gate passes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from penstock.errors import DataError
from penstock.evaluation.plots import NEGATIVE, NEUTRAL, write_figure
from penstock.wakeword.metrics import SLACK_S, Utterance, match_alarms

HIT, FALSE = "#2a8f5b", "#c22f2f"


@dataclass(frozen=True, eq=False)
class StreamTrace:
    """Scores, words and alarms of a stream, to be plotted.

    Attributes:
        times_s: (n,), the end of each window, ascending.
        smoothed: (n,), the smoothed score that is compared with the threshold.
        threshold: detection threshold.
        truths: where the word is.
        alarms: times of the alarms.
        gates: for each gate by name, (n,): whether it passed the window.
    """

    times_s: npt.NDArray[np.floating]
    smoothed: npt.NDArray[np.floating]
    threshold: float
    truths: Sequence[Utterance] = ()
    alarms: Sequence[float] = ()
    gates: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shapes = {"smoothed": np.shape(self.smoothed)}
        shapes |= {name: np.shape(passed) for name, passed in self.gates.items()}
        for name, shape in shapes.items():
            if shape != np.shape(self.times_s) or len(shape) != 1 or shape[0] < 2:
                raise DataError(
                    f"{name}: expected one value for each of at least 2 windows, got shape {shape} for times of shape "
                    f"{np.shape(self.times_s)}."
                )


def trace_plot(
    trace: StreamTrace, path: Path, *, span_s: tuple[float, float] | None = None, slack_s: float = SLACK_S
) -> Path:
    """Write the plot of `trace_figure`, which has the same arguments, to a file."""
    return write_figure(trace_figure(trace, span_s=span_s, slack_s=slack_s), path)


def trace_figure(trace: StreamTrace, *, span_s: tuple[float, float] | None = None, slack_s: float = SLACK_S) -> Figure:
    """Plot a stretch of a stream: score and threshold, words, alarms, and below them what each gate passes.

    Args:
        span_s: first and last second to show; None for all. A minute reads well.
        slack_s: how long after its end a word may still be hit; decides which alarms are false.
    """
    times_s, smoothed, threshold, gates = trace.times_s, trace.smoothed, trace.threshold, trace.gates
    hop = float(np.median(np.diff(times_s)))
    span = (float(times_s[0]) - hop, float(times_s[-1])) if span_s is None else span_s
    if not ((times_s >= span[0]) & (times_s <= span[1])).any():
        raise DataError(
            f"no window ends between {span[0]:g} and {span[1]:g} s: expected a span within {times_s[0]:g} to "
            f"{times_s[-1]:g} s."
        )
    heights = [3.2, 0.3 * len(gates) + 0.1] if gates else [3.2]
    figure = Figure(figsize=(10, sum(heights) + 0.9), layout="constrained")
    panels = figure.subplots(len(heights), sharex=True, squeeze=False, gridspec_kw={"height_ratios": heights})[:, 0]
    low, high = min(float(np.min(smoothed)), threshold), max(float(np.max(smoothed)), threshold)
    panels[0].set_ylim(low - 0.05 * (high - low), high + 0.15 * (high - low))  # room for the alarm marks at the top
    panels[0].plot(times_s, smoothed, color=NEGATIVE, linewidth=1.2, label="smoothed score")
    panels[0].axhline(threshold, color="black", linewidth=1, linestyle="--", label=f"threshold {threshold:.3g}")
    _plot_words_and_alarms(panels[0], trace.truths, trace.alarms, slack_s)
    panels[0].set_ylabel("log-odds of the word")
    if gates:
        _gate_bars(panels[1], times_s, gates, hop, span)
    for axes in panels:
        axes.set_xlim(*span)
        axes.grid(alpha=0.2)
    panels[-1].set_xlabel("time in the stream (s)")
    figure.legend(loc="outside lower center", ncols=6, frameon=False)
    return figure


def _plot_words_and_alarms(axes: Axes, truths: Sequence[Utterance], alarms: Sequence[float], slack_s: float) -> None:
    """Shade words and mark alarms at the top: green where they match, red where they do not."""
    pairs = match_alarms(alarms, truths, slack_s=slack_s)
    hit, right = {truth for _, truth in pairs}, {alarm for alarm, _ in pairs}
    kinds = ((True, HIT, "v", "word, hit", "alarm"), (False, FALSE, "X", "word, missed", "false alarm"))
    for good, color, mark, word, alarm in kinds:
        high = axes.get_xaxis_transform()  # x in seconds, y from 0 to 1 of the panel
        spans = [(one.begin_s, one.end_s - one.begin_s) for i, one in enumerate(truths) if (i in hit) == good]
        if spans:
            axes.broken_barh(spans, (0, 1), color=color, alpha=0.25, linewidth=0, label=word, transform=high)
        times = [time for i, time in enumerate(alarms) if (i in right) == good]
        if times:
            look: dict[str, Any] = {"color": color, "markeredgecolor": "black", "markersize": 9, "zorder": 4}
            axes.plot(times, [0.94] * len(times), mark, label=alarm, transform=high, **look)


def _gate_bars(
    axes: Axes,
    times_s: npt.NDArray[np.floating],
    gates: Mapping[str, npt.NDArray[np.bool_]],
    hop: float,
    span: tuple[float, float],
) -> None:
    """Draw one row per gate, the first on top: dark where it passes windows."""
    shown = (times_s >= span[0]) & (times_s <= span[1])
    names = []
    for row, (name, passed) in enumerate(gates.items()):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], passed, [False]]).astype(int)))
        runs = edges.reshape(-1, 2)
        bars = [(times_s[first] - hop, times_s[last - 1] - times_s[first] + hop) for first, last in runs]
        axes.broken_barh(bars, (row - 0.35, 0.7), color=NEUTRAL, linewidth=0)
        names.append(f"{name}: {100 * np.mean(passed[shown]):.3g} % pass")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
