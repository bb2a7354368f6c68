"""Windows scored in batches have the scores of a listener; which of them are mined, and that training uses them."""

from copy import deepcopy

import numpy as np
import torch

import penstock as ps
from helpers.wakeword import CLIPS, WORDS
from helpers.zoo import sequential
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.streaming.detector import log_odds
from penstock.training.fit import fit
from penstock.wakeword import training
from penstock.wakeword.benchmark import run_stream
from penstock.wakeword.scoring import MINED, mine_hard_negatives, score_stream, stream_windows, window_outputs
from penstock.wakeword.streams import StreamSpec, synthesize_stream
from penstock.wakeword.thresholds import score_at
from penstock.wakeword.training import WakeWordConfig, train_wakeword


def test_the_bundle_scores_as_the_network_does(trained, folder, stream):
    run = run_stream(Bundle.read(folder), stream)
    batched, exit_stage = score_stream(trained.net, trained.stream_config, stream)
    np.testing.assert_allclose(run.times_s, batched.times_s)
    assert (run.exit_stage == exit_stage).mean() > 0.999
    agree = np.isclose(run.scores, batched.scores, atol=0.01)
    assert agree.mean() > 0.999  # a window at a gate's very threshold may fall to either side
    threshold = trained.chosen.threshold
    ours, theirs = (
        score_at([run.scored_stream()], threshold),
        score_at([batched], threshold),
    )
    assert (ours.misses, ours.false_alarms) == (theirs.misses, theirs.false_alarms)
    assert (ours.misses, ours.false_alarms) == (run.metrics.misses, run.metrics.false_alarms)


def test_a_gate_with_a_class_loss_has_one_logit_per_window():
    net = ps.gate(
        sequential(), torch.zeros(2, 6), at=[0.3, 0.7], layer=ps.LayerConfig(class_loss_weight=0.3), positives={1, 2}
    )
    net.eval()
    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    _, gates = window_outputs(net, x, batch_size=7)
    out = net(torch.from_numpy(x))
    for ours, theirs in zip(gates, out.gates, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), atol=1e-6)


# --- hard negatives


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
