"""Hard negatives: which windows are mined, and that the next round trains on them."""

from copy import deepcopy

import numpy as np
import torch

from helpers.wakeword import CLIPS, WORDS
from penstock.runtime.streaming.detector import log_odds
from penstock.training.fit import fit
from penstock.wakeword import training
from penstock.wakeword.mining import MINED, mine_hard_negatives
from penstock.wakeword.scoring import stream_windows, window_outputs
from penstock.wakeword.streams import StreamSpec, synthesize_stream
from penstock.wakeword.training import WakeWordConfig, train_wakeword


def with_bias(net, log_odds):
    """Return a copy of the network that adds this to the logit of the word."""
    net = deepcopy(net)
    classifier = next(m for m in net.stages[-1].modules() if getattr(m, "out_features", None) == len(WORDS) + 1)
    with torch.no_grad():
        classifier.bias[1] += log_odds
    return net


def test_hard_negatives_are_the_windows_most_like_the_word_in_streams_without_it(trained):
    """Against the simplest way: score the whole stream, sort, take the first."""
    net = with_bias(trained.net, 8)
    x, y = mine_hard_negatives(net, trained.stream_config, CLIPS["train"], "tick", hours=0.1, seed=3, per_hour=200)
    stream = synthesize_stream(StreamSpec(360.0, "tick", 0), CLIPS["train"], 3)
    windows, _ = stream_windows(trained.stream_config, stream.samples)
    logits, _ = window_outputs(net, windows)
    scores = log_odds(logits, 1)
    order = sorted(range(len(windows)), key=lambda i: -scores[i])[:20]
    assert len(x) == 20 and scores[order[-1]] > MINED, "there are enough of them"
    np.testing.assert_array_equal(x, windows[order])
    assert y.tolist() == [max((c for c in range(5) if c != 1), key=lambda c: logits[i, c]) for i in order]
    assert stream.truths == (), "none of them is the word"


def test_windows_that_are_unlike_the_word_are_not_mined(trained):
    net = with_bias(trained.net, -100)
    x, y = mine_hard_negatives(net, trained.stream_config, CLIPS["train"], "tick", hours=0.1, seed=3)
    assert len(x) == len(y) == 0


def test_each_round_trains_on_the_hard_negatives_it_mined(monkeypatch):
    config = WakeWordConfig(
        width=4,
        gate_blocks=(),
        windows=300,
        epochs=1,
        rounds=2,
        validation_hours=0.05,
        mining_hours=0.05,
        max_false_alarms_per_hour=1000.0,
        alarm_confidence=None,
    )
    mined, fitted = [], []

    def mine(*args, **options):
        mined.append(mine_hard_negatives(*args, **options))
        return mined[-1]

    def fit_and_keep(net, data, **options):
        fitted.append([part.numpy() for part in data])
        return fit(net, data, **options)

    monkeypatch.setattr(training, "mine_hard_negatives", mine)
    monkeypatch.setattr(training, "fit", fit_and_keep)
    train_wakeword(CLIPS, "tick", config, progress=False)
    assert len(mined) == 2 and len(fitted) == 3
    for (hard_x, hard_y), (x, y) in zip(mined, fitted[1:], strict=True):
        count = 3 * len(hard_x)
        assert count > 0
        np.testing.assert_array_equal(x[-count:], np.concatenate([hard_x] * 3))
        np.testing.assert_array_equal(y[-count:], np.concatenate([hard_y] * 3))
        assert 1 not in y[-count:]
