"""A bundle run over streams: detections, costs, and what cannot be compared."""

from dataclasses import replace

import pytest

from helpers.wakeword import CLIPS
from penstock.errors import DataError
from penstock.runtime.bundle.bundle import Bundle
from penstock.wakeword.benchmark import run_benchmark, run_stream, situation_streams


def test_an_easy_word_is_detected_in_new_voices(folder, stream):
    run = run_stream(Bundle.read(folder), stream)
    metrics = run.metrics
    assert metrics.misses <= 2
    assert metrics.false_alarms <= 2
    assert run.stopped_early > 0.5
    assert run.counts.reached[0] > run.counts.reached[1] > run.counts.reached[2] > 0


def test_of_several_words_the_first_is_recorded(folder, stream):
    bundle = Bundle.read(folder)
    stream_config = replace(
        bundle.manifest.stream_config, words=(1, 2), detector=bundle.manifest.stream_config.detector.at(-9.0)
    )
    both = run_stream(replace(bundle, manifest=replace(bundle.manifest, stream_config=stream_config)), stream)
    alone = replace(stream_config, words=(1,))
    one = run_stream(replace(bundle, manifest=replace(bundle.manifest, stream_config=alone)), stream)
    assert both.events == one.events and {event.label for event in both.events} == {"tick"}


def test_only_bundles_of_one_word_are_compared(trained, folder):
    bundle = Bundle.read(folder)
    stream_config = bundle.manifest.stream_config
    other = replace(bundle, manifest=replace(bundle.manifest, stream_config=replace(stream_config, words=(2,))))
    with pytest.raises(DataError, match=r"other: .*'tick'.*'hiss'"):
        run_benchmark({"one": bundle, "other": other}, CLIPS["test"], "tick", hours=0.1)


def test_the_cost_of_a_second_depends_on_the_sound(folder):
    bundle = Bundle.read(folder)
    costs = {
        name: run_stream(bundle, made).cost
        for name, made in situation_streams(CLIPS["test"], "tick", seconds=30.0, seed=4)
    }
    assert set(costs) == {"silence", "noise", "speech", "keyword"}
    stages = bundle.manifest.stages
    for cost in costs.values():
        assert cost.macs == pytest.approx(
            sum(stage.macs * share for stage, share in zip(stages, cost.reached, strict=True)) * 10, rel=0.05
        )
        assert cost.ms > 0
    assert costs["silence"].macs < costs["keyword"].macs
    assert costs["silence"].crossed_bytes <= costs["keyword"].crossed_bytes
