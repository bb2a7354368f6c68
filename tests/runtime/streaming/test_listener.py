"""A listener is a loop over windows; gaps, silence and islands change nothing that was heard."""

import asyncio
import tracemalloc
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.bundles import MANIFEST
from helpers.memory_link import MemoryLink
from penstock.errors import BundleError, DataError, DeliveryError, LinkError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import GateRule, TensorSpec
from penstock.runtime.bundle.manifest_parser import parse_manifest
from penstock.runtime.engines import Output
from penstock.runtime.islands.client import Client
from penstock.runtime.islands.delivery import Outbox
from penstock.runtime.islands.island import Downstream, Island
from penstock.runtime.pipeline import Pipeline
from penstock.runtime.streaming.config import StreamConfig
from penstock.runtime.streaming.detector import LIMIT, DetectorConfig, log_odds, smooth
from penstock.runtime.streaming.features import LogMel, Mfcc, features
from penstock.runtime.streaming.frontend import Sensor
from penstock.runtime.streaming.listener import Listener
from penstock.runtime.streaming.remote import RemoteListener

SENSE = LogMel(mels=8)
HEARING = StreamConfig(
    SENSE, frames=9, hop=3, mean=(-9.0,) * 8, std=(4.0,) * 8, words=(1,), detector=DetectorConfig(1.0, 0.5, 2, 0.3)
)
WINDOW, FEW = TensorSpec((8, 9), "float32"), TensorSpec((8,), "float32")
TWO_GATES = replace(
    MANIFEST,
    labels=("background", "word", "speech"),
    stages=(
        replace(MANIFEST.stages[0], input=WINDOW, output=FEW, gate=GateRule(-0.2)),
        replace(MANIFEST.stages[0], input=FEW, output=FEW, gate=GateRule(0.0), file="other.onnx"),
        replace(MANIFEST.stages[1], input=FEW, output=TensorSpec((3,), "float32")),
    ),
    stream_config=HEARING,
)


class Mean:
    def run(self, x):
        return Output(x.mean(2), x.mean((1, 2)))


class Middle:
    def run(self, x):
        return Output(x, x[:, 3] - x[:, 0])


class Logits:
    def run(self, x):
        return Output(np.stack([x[:, 0], 3 * x[:, 4], x[:, 7]], 1), None)


ENGINES = (Mean(), Middle(), Logits())
BUNDLE = Bundle(TWO_GATES, (b"",) * 3)


def sound(seconds=3.0, seed=0):
    """Noise whose colour and loudness change."""
    rng = np.random.default_rng(seed)
    out = rng.standard_normal(round(seconds * 16_000))
    for start in range(0, len(out), 2000):
        out[start : start + 2000] = np.convolve(out[start : start + 2000], rng.uniform(-1, 1, 4), "same")
        out[start : start + 2000] *= 10 ** rng.uniform(-4, -0.8)
    return np.clip(out, -1, 1).astype(np.float32)


def listener():
    return Listener(BUNDLE, pipeline=Pipeline(BUNDLE, engines=ENGINES))


def by_hand(samples):
    """All windows of a stream that is whole, at once."""
    frames = (features(samples, SENSE) + 9) / 4
    windows = np.stack([frames[:, i : i + 9] for i in range(0, frames.shape[1] - 8, 3)]).astype(np.float32)
    answers = Pipeline(BUNDLE, engines=ENGINES).predict(windows)
    scores = np.where(~answers.stopped, log_odds(np.nan_to_num(answers.logits), 1), -LIMIT)
    times = (480 + 320 * (8 + 3 * np.arange(len(windows)))) / 16_000
    return times, scores, answers.exit_stage


@settings(max_examples=15)
@given(st.lists(st.integers(1, 9000), max_size=12), st.integers(0, 3))
def test_any_chunking_is_the_whole_stream_judged_at_once(cuts, seed):
    samples = sound(seed=seed)
    ears = listener()
    heard = [h for part in np.split(samples, [c for c in np.cumsum(cuts) if c < len(samples)]) for h in ears.push(part)]
    times, scores, exit_stage = by_hand(samples)
    np.testing.assert_allclose([h.time_s for h in heard], times)
    assert [h.exit_stage for h in heard] == exit_stage.tolist()
    assert [h.stopped for h in heard] == (exit_stage < 3).tolist()
    np.testing.assert_allclose([h.scores[0] for h in heard], scores, atol=1e-3)
    np.testing.assert_allclose([h.smoothed[0] for h in heard], smooth(scores, 2), atol=1e-3)
    assert ears.stats.reached == [int((exit_stage >= stage).sum()) for stage in (1, 2, 3)]


def test_behind_a_gap_all_is_as_at_a_beginning():
    samples = sound()
    for broken in (lambda a, b: [(a, 0), (b, 4000)], lambda a, b: [(np.concatenate([a, np.full(4000, np.nan), b]), 0)]):
        ears = listener()
        blocks = broken(samples[:20_000], samples[20_000:])
        heard = [h for part, lost in blocks for h in ears.push(np.asarray(part, np.float32), lost=lost) if h.exit_stage]
        before, behind = by_hand(samples[:20_000]), by_hand(samples[20_000:])
        np.testing.assert_allclose([h.time_s for h in heard], [*before[0], *(behind[0] + 24_000 / 16_000)])
        np.testing.assert_allclose([h.scores[0] for h in heard], [*before[1], *behind[1]], atol=1e-3)
        assert ears.stats.input_quality.gaps == 1


def test_an_event_ends_at_a_gap_and_none_is_carried_over_it():
    loud = sound(6.0, seed=1)
    whole = [e for h in listener().push(loud) for e in h.events]
    assert any(not e.ended for e in whole)
    first = next(e for e in whole if not e.ended)
    ears = listener()
    upto = loud[: round(first.detected_s * 16_000)]
    list(ears.push(upto))
    behind = [e for h in ears.push(np.zeros(16_000, np.float32), lost=1000) for e in h.events]
    assert [(e.detected_s, e.ended) for e in behind] == [(first.detected_s, True)]


@pytest.mark.parametrize("frontend", [SENSE, Mfcc(mels=8, coefficients=8)])
@pytest.mark.parametrize("block", [130, 1600, 32_000])
def test_digital_silence_wakes_no_stage(frontend, block):
    class Never:
        def run(self, x):
            raise AssertionError("a stage saw silence")

    bundle = replace(BUNDLE, manifest=replace(TWO_GATES, stream_config=replace(HEARING, frontend=frontend)))
    ears = Listener(bundle, pipeline=Pipeline(bundle, engines=(Never(),) * 3))
    silence = np.zeros(32_000, np.int16)
    heard = [h for start in range(0, 32_000, block) for h in ears.push(silence[start : start + block])]
    assert len(heard) == ears.stats.silent > 0
    assert {(h.exit_stage, h.stopped) for h in heard} == {(0, True)}
    assert ears.stats.reached == [0, 0, 0]


async def over_islands(blocks, heard, ended=lambda events: None):
    """Listen over three islands in memory."""
    links = [MemoryLink() for _ in range(3)]
    tasks = []
    for i in reversed(range(3)):
        downstream = None if i == 2 else Downstream(links[i + 1].connector, Outbox(64))
        island = Island(BUNDLE, i + 1, downstream=downstream, engine=ENGINES[i])
        tasks.append(asyncio.ensure_future(island.run()))
        links[i].handler = island.serve
    try:
        async with Client(TWO_GATES, links[0].connector) as source:
            remote = RemoteListener(TWO_GATES, source)
            async for one in remote.listen(blocks):
                heard.append(one)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        ended(remote.end())
        assert remote.stats.windows >= len([h for h in heard if h.exit_stage])


async def in_blocks(samples, then=None):
    for start in range(0, len(samples), 1600):
        yield SimpleNamespace(samples=samples[start : start + 1600], lost=0)
    if then is not None:
        await then()


def test_over_islands_all_is_heard_before_the_error_that_ends_the_blocks():
    samples = sound(4.0, seed=2)
    wanted = list(listener().push(samples))

    async def cut():
        raise DataError("the file is cut short")

    heard = []
    with pytest.raises(DataError, match="the file is cut short"):
        asyncio.run(over_islands(in_blocks(samples, cut), heard))
    assert [h.time_s for h in heard][: len(wanted)] == [h.time_s for h in wanted]
    events = [e for h in heard for e in h.events]
    assert sum(e.ended for e in events) == sum(not e.ended for e in events) > 0


def test_over_islands_an_event_waits_for_no_more_sound():
    samples = sound(4.0, seed=2)
    wanted = list(listener().push(samples))
    heard = []

    async def stalled():
        while len(heard) < len(wanted):  # all answers come while the stream stands still
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(over_islands(in_blocks(samples, stalled), heard), 30))
    assert len(heard) >= len(wanted)


def test_islands_hear_what_the_chain_hears():
    samples = sound(4.0, seed=2)
    wanted = list(listener().push(samples))
    assert any(h.events for h in wanted)
    assert {h.exit_stage for h in wanted} == {1, 2, 3}
    heard = []
    asyncio.run(over_islands(in_blocks(samples), heard))
    ended = [e for h in heard[len(wanted) :] for e in h.events]  # what was under way at the end
    assert all(e.ended for e in ended)
    for got, want in zip(heard, wanted, strict=False):
        assert (got.time_s, got.exit_stage, got.stopped) == (want.time_s, want.exit_stage, want.stopped)
        assert [(e.detected_s, e.start_s, e.ended) for e in got.events] == [
            (e.detected_s, e.start_s, e.ended) for e in want.events
        ]
        np.testing.assert_allclose(got.gate_scores, want.gate_scores, atol=1e-6)
        np.testing.assert_allclose(got.scores, want.scores, atol=1e-6)


def test_a_sensor_is_listened_to_as_well():
    stream_config = StreamConfig(Sensor(50, 6), frames=10, hop=5, mean=(0.0,) * 6, std=(1.0,) * 6, words=(1,))
    manifest = replace(
        TWO_GATES,
        stages=(replace(TWO_GATES.stages[2], input=TensorSpec((6, 10), "float32")),),
        stream_config=stream_config,
    )

    class Peak:
        def run(self, x):
            peak = np.abs(x).max((1, 2))
            return Output(np.stack([0 * peak, peak - 5, -9 + 0 * peak], 1), None)

    bundle = Bundle(manifest, (b"",))
    ears = Listener(bundle, pipeline=Pipeline(bundle, engines=(Peak(),)))
    moves = np.zeros((200, 6))
    moves[100] = 30
    events = [e for h in ears.push(moves) for e in h.events]
    assert [(e.label, e.ended) for e in events] == [("word", False), ("word", True)]
    assert 2.0 <= events[0].detected_s <= 2.4


def test_a_bundle_keeps_its_hearing_and_one_without_is_refused():
    assert parse_manifest(TWO_GATES.to_bytes(), "x") == TWO_GATES
    with pytest.raises(BundleError, match="stream_config"):
        Listener(Bundle(MANIFEST, (b"",) * 2), pipeline=object())


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (
            b'"kind": "log-mel"',
            b'"kind": "ultrasound"',
            "kind of frontend.*'ultrasound'",
        ),
        (b'"hop": 3', b'"hop": 0', "stream_config: .*hop.* 0"),
        (b'"frames": 9', b'"frames": 8', r"stage 1.*\(8, 8\).*\(8, 9\)"),
        (b'"smoothing": 2', b'"smoothing": "2"', "smoothing of detector.*'2'"),
    ],
)
def test_a_damaged_hearing_is_refused(old, new, text):
    content = TWO_GATES.to_bytes()
    assert old in content
    with pytest.raises(BundleError, match=text):
        parse_manifest(content.replace(old, new), "x")


def test_hours_take_no_more_memory_than_minutes():
    ears, block = listener(), sound(1.0)
    for _ in range(20):
        list(ears.push(block))
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(300):
        list(ears.push(block))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 100_000  # 300 s of sound are 19 MB


def test_who_leaves_a_block_early_finds_the_clock_right():
    ears, samples = listener(), sound(6.0, seed=3)
    wanted = [h.time_s for h in listener().push(samples)]
    times = []
    for start in range(0, len(samples), 960):  # a window each
        for heard in ears.push(samples[start : start + 960]):
            times.append(heard.time_s)
            break
    assert times == wanted


def test_over_islands_what_is_under_way_at_a_cancel_is_told():
    samples = sound(6.0, seed=1)
    first = next(e for h in listener().push(samples) for e in h.events)
    samples, last = samples[: round(first.detected_s * 16_000)], []

    async def cancelled():
        async def stall():
            await asyncio.sleep(60)

        heard = []
        listening = asyncio.ensure_future(over_islands(in_blocks(samples, stall), heard, last.append))
        while not any(h.events for h in heard):
            await asyncio.sleep(0.01)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(asyncio.wait_for(cancelled(), 30))
    assert [[(event.detected_s, event.ended) for event in events] for events in last] == [[(first.detected_s, True)]]


def test_islands_that_do_not_answer_are_waited_for_only_so_long():
    async def nobody():
        raise LinkError("nobody is there")

    async def ask():
        async with Client(TWO_GATES, nobody) as source:
            async for _ in RemoteListener(TWO_GATES, source, timeout_s=0.2).listen(in_blocks(sound(2.0, seed=1))):
                raise AssertionError("nobody answered")

    with pytest.raises(DeliveryError, match=r"0\.2 s"):
        asyncio.run(asyncio.wait_for(ask(), 30))
