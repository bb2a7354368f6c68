"""Metrics as a table and as a plot: read back from the table's text and from what was drawn."""

import numpy as np
import pytest

from penstock.errors import DataError, StorageError
from penstock.evaluation.plots import write_figure
from penstock.gating.tables import WIDTH, render
from penstock.wakeword.metrics import DetectionMetrics
from penstock.wakeword.report import det_figure, metrics_table
from penstock.wakeword.thresholds import OperatingPoint


def metrics(misses: int, false_alarms: int, *, spoken: int = 50, hours: float = 2.0) -> DetectionMetrics:
    return DetectionMetrics(
        spoken - misses, misses, false_alarms, hours, tuple(np.linspace(-0.1, 0.6, spoken - misses))
    )


def squeezed(line: str) -> str:
    return " ".join(line.split())


def test_a_table_of_metrics():
    text = render(
        metrics_table(
            {
                "MLPerf Tiny style, 50 × marvin": metrics(3, 1, hours=1 / 3),
                "other words, noise and silence, test speakers": metrics(0, 0, spoken=0, hours=1.6),
                "deaf": metrics(50, 1234),
            }
        )
    )
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH and "…" not in text
    marvin = next(line for line in lines if "3 of 50" in line)
    assert squeezed(marvin).endswith(" 3 of 50 6.0 % (1.3–16.5) 1 3.00 (0.08–16.7) 0.33 0.25, 0.56")
    others = next(line for line in lines if "1.60" in line)
    assert squeezed(others).endswith(" – – 0 0 (0–2.31) 1.60 –")
    deaf = next(line for line in lines if "deaf" in line)
    assert squeezed(deaf) == "deaf 50 of 50 100.0 % (92.9–100.0) 1,234 617 (583–652) 2.00 –"
    assert "exact 95 % intervals" in text and "median and 95th percentile" in text


def curve(*rows: tuple[float, int, int], hours: float = 2.0) -> list[OperatingPoint]:
    return [OperatingPoint(threshold, metrics(misses, count, hours=hours)) for threshold, misses, count in rows]


CURVE = curve((0, 8, 40), (1, 0, 60), (2, 1, 9), (3, 4, 9), (4, 2, 1), (5, 5, 0), (6, 25, 0))


def test_the_line_is_the_best_that_can_be_had():
    axes = det_figure({"gated": CURVE}).axes[0]
    line = next(line for line in axes.lines if line.get_label() == "gated")
    left, right = axes.get_xlim()
    places, missed = line.get_data()
    assert list(places[:-1]) == [0.25, 0.5, 4.5, 30] and list(missed) == [0.1, 0.04, 0.02, 0, 0]
    assert left < 0.25 and 30 < right < places[-1], "it goes on to the end of the axis"
    assert axes.get_xscale() == "log" and "drawn at half of one" in axes.get_xlabel()
    hollow = next(line for line in axes.lines if line.get_markerfacecolor() == "white")
    assert sorted(zip(*hollow.get_data(), strict=True)) == [(0.25, 0.1), (0.25, 0.5)], "no false alarm in 2 h"


def test_the_operating_point_is_marked_and_in_view():
    other = curve((0, 30, 3), (1, 40, 0), hours=4.0)
    figure = det_figure({"gated": CURVE, "plain": other}, chosen={"gated": CURVE[4], "plain": other[0]}, per_hour=0.5)
    axes = figure.axes[0]
    marks = [line for line in axes.lines if line.get_marker() == "D" and len(line.get_xdata())]
    assert [(*line.get_xdata(), *line.get_ydata()) for line in marks] == [(0.5, 0.04), (0.75, 0.6)]
    for mark in marks:
        assert axes.get_xlim()[0] < mark.get_xdata()[0] < axes.get_xlim()[1]
        assert axes.get_ylim()[0] < mark.get_ydata()[0] < axes.get_ylim()[1]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == [
        "gated: 4.0 % missed, 0.50 per hour",
        "plain: 60.0 % missed, 0.75 per hour",
        "operating point",
        "0.5 per hour allowed",
    ]


def test_pictures_are_written_whole_and_the_same_again(tmp_path):
    one, two = (
        write_figure(
            det_figure({"gated": CURVE}, chosen={"gated": CURVE[5]}, per_hour=0.5), tmp_path / folder / "det.png"
        )
        for folder in ("one", "two")
    )
    assert one.read_bytes().startswith(b"\x89PNG") and one.read_bytes() == two.read_bytes()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()], "a temporary file was left"
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"det\.png"):
        write_figure(det_figure({"gated": CURVE}), tmp_path / "file" / "det.png")


def test_nothing_to_plot_is_refused():
    for nothing in ({}, {"gated": CURVE, "plain": []}):
        with pytest.raises(DataError, match="curve"):
            det_figure(nothing)
