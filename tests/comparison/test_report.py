"""The table fits 80 columns; the picture has a line for each contestant and nothing over the data."""

import io
import re
from dataclasses import replace

from rich.console import Console

from penstock.comparison.config import NAMES
from penstock.comparison.plots import comparison_figure
from penstock.comparison.points import StreamCost
from penstock.comparison.tables import comparison_tables


def printed(comparison):
    text = io.StringIO()
    console = Console(file=text, width=80)
    for part in comparison_tables(comparison):
        console.print(part)
    return text.getvalue()


def test_no_line_of_the_table_is_wider_than_80_columns_or_broken(finished):
    comparison, _ = finished
    wide = StreamCost(9, 123_456_789.0, 987_654.0, 0.000123456), StreamCost(99, 123_456_789.0, 987_654.0, 1.23)
    whole = dict.fromkeys(("accuracy", "accuracy_open", "lost", "early_stopping"), 1.0)
    points = tuple(replace(point, costs=wide, **whole) for point in comparison.points)
    shown = printed(replace(comparison, points=points, samples=1_234_567, positives=1_234_567))
    assert max(map(len, shown.splitlines())) <= 80
    rows = [line for line in shown.splitlines() if line.strip().startswith("two networks ")]
    assert len(rows) == 2 * len(comparison.lost) + 1, "two tables, and why there is no time"
    assert re.split(r"  +", rows[0].strip()) == ["two networks", *4 * ["100.0 %"], "123 M", "988 k", "123 µs"]


def test_the_table_has_all_contestants_at_all_losses_and_ends_with_the_verdict(finished):
    comparison, _ = finished
    shown = printed(comparison)
    for heading in (
        "lost",
        "accuracy",
        "open",
        "stopped",
        "MACs",
        "bytes",
        "time",
        "≤ 0.5 % lost",
        "≤ 5 % lost",
        "1:99",
    ):
        assert heading in shown
    for name in NAMES:
        assert len(re.findall(rf"^ ?{name} .*\d", shown, re.MULTILINE)) == 2 * len(comparison.lost)
        assert f"{name} has no time: exported by no one" in shown
    assert " ".join(shown.split()).endswith(comparison.verdict)
    assert str(comparison).splitlines()[0].startswith("On 300 test samples")


def test_the_picture_has_a_line_for_each_contestant_and_its_legend_outside(finished, tmp_path):
    comparison, _ = finished
    figure = comparison_figure(comparison)
    for axes in figure.axes:
        labels = [line.get_label() for line in axes.get_lines() if not line.get_label().startswith("_")]
        assert labels == list(NAMES)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == list(NAMES)
    area = legend.get_window_extent()
    assert not any(area.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert figure.bbox.x0 <= area.x0 and area.x1 <= figure.bbox.x1
    path = comparison.plot(tmp_path)
    assert path.name == "comparison.png" and path.read_bytes().startswith(b"\x89PNG")
