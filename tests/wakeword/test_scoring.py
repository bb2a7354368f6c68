"""Windows scored in batches have the scores of a listener."""

import numpy as np
import torch

import penstock as ps
from helpers.zoo import sequential
from penstock.runtime.bundle.bundle import Bundle
from penstock.wakeword.benchmark import run_stream
from penstock.wakeword.scoring import score_stream, window_outputs
from penstock.wakeword.thresholds import score_at


def test_the_bundle_scores_as_the_network_does(trained, folder, stream):
    run = run_stream(Bundle.read(folder), stream)
    batched = score_stream(trained.net, trained.stream_config, stream)
    np.testing.assert_allclose(run.times_s, batched.times_s)
    agree = np.isclose(run.scores, batched.scores, atol=0.01)
    assert agree.mean() > 0.999  # a window at a gate's very threshold may fall to either side
    threshold = trained.chosen.threshold
    ours, theirs = (
        score_at([run.scored_stream()], threshold),
        score_at([batched.scored_stream(trained.stream_config.detector)], threshold),
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
    for layer, ours, theirs in zip(net.layers, gates, out.gates, strict=True):
        np.testing.assert_allclose(ours, layer.gate.gate_logit(theirs).detach().numpy(), atol=1e-6)
