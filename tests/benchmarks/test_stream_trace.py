"""The plot of a stretch of a stream: read back from what was drawn."""

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from benchmarks.stream_trace import StreamTrace, trace_figure, trace_plot
from penstock.errors import DataError
from penstock.wakeword.metrics import Utterance

TIMES = np.arange(1, 601) / 10
TRUTHS = [Utterance(10, 10.8), Utterance(30, 30.7), Utterance(50, 50.6)]
ALARMS = [10.9, 11.2, 40.0, 50.5]


def shaded(axes) -> dict[str, list[tuple[float, float]]]:
    """Return from where to where each collection of bars goes, by its label."""
    bars = [one for one in axes.collections if isinstance(one, PolyCollection)]
    spans = {one.get_label(): [path.get_extents() for path in one.get_paths()] for one in bars}
    return {label: [(box.x0, box.x1) for box in boxes] for label, boxes in spans.items()}


def test_words_and_alarms_that_found_each_other_and_that_did_not():
    score = np.sin(TIMES)
    axes = trace_figure(StreamTrace(TIMES, score, 0.5, TRUTHS, ALARMS)).axes[0]
    words = shaded(axes)
    np.testing.assert_allclose(words["word, hit"], [(10, 10.8), (50, 50.6)])
    np.testing.assert_allclose(words["word, missed"], [(30, 30.7)])
    lines = {line.get_label(): line for line in axes.lines}
    assert list(lines["alarm"].get_xdata()) == [10.9, 50.5]
    assert list(lines["false alarm"].get_xdata()) == [11.2, 40.0], "a word that wakes twice has one"
    np.testing.assert_array_equal(lines["smoothed score"].get_ydata(), score)
    assert lines["threshold 0.5"].get_ydata()[0] == 0.5
    np.testing.assert_allclose(axes.get_xlim(), (0, 60), atol=1e-9)


def test_gates_are_bars_of_the_windows_that_pass():
    first, second = np.zeros(600, bool), np.zeros(600, bool)
    first[[0, 1, 2, 599]] = True
    second[300] = True
    gates = {"gate 1": first, "gate 2": second}
    figure = trace_figure(StreamTrace(TIMES, np.zeros(600), 1.0, gates=gates))
    bars = [
        sorted((box.x0, box.x1) for box in (path.get_extents() for path in one.get_paths()))
        for one in figure.axes[1].collections
    ]
    np.testing.assert_allclose(bars[0], [(0, 0.3), (59.9, 60)], atol=1e-9)
    np.testing.assert_allclose(bars[1], [(30.0, 30.1)])
    names = [text.get_text() for text in figure.axes[1].get_yticklabels()]
    assert names == ["gate 1: 0.667 % pass", "gate 2: 0.167 % pass"]
    part = trace_figure(StreamTrace(TIMES, np.zeros(600), 1.0, gates=gates), span_s=(20, 40.0))
    assert part.axes[1].get_xlim() == (20, 40)
    names = [text.get_text() for text in part.axes[1].get_yticklabels()]
    assert names[0] == "gate 1: 0 % pass", "of what is shown"


def test_the_picture_is_written_whole_and_the_same_again(tmp_path):
    trace = StreamTrace(TIMES, np.sin(TIMES), 0.5, TRUTHS, ALARMS, {"gate": TIMES > 30})
    one, two = (trace_plot(trace, tmp_path / folder / "trace.png") for folder in ("one", "two"))
    assert one.read_bytes().startswith(b"\x89PNG") and one.read_bytes() == two.read_bytes()
    assert not [path for path in tmp_path.rglob(".*") if path.is_file()], "a temporary file was left"


def test_nothing_to_plot_is_refused():
    with pytest.raises(DataError, match=r"smoothed.*\(599,\).*\(600,\)"):
        StreamTrace(TIMES, np.zeros(599), 0.5)
    with pytest.raises(DataError, match=r"gate 1.*\(1,\).*\(600,\)"):
        StreamTrace(TIMES, np.zeros(600), 0.5, gates={"gate 1": np.array([True])})
    with pytest.raises(DataError, match="at least 2 windows"):
        StreamTrace(TIMES[:1], np.zeros(1), 0.5)
    with pytest.raises(DataError, match="70 and 80 s"):
        trace_figure(StreamTrace(TIMES, np.zeros(600), 0.5), span_s=(70, 80))
