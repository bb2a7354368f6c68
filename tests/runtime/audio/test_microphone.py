"""Microphones, with a stand-in for sounddevice: what is recorded, lost and refused."""

import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import penstock.runtime.audio.microphone as microphones
from helpers.sound_files import RATE, collect
from penstock.errors import DataError
from penstock.runtime.audio.microphone import microphone
from penstock.runtime.audio.resampling import Block

pytest.importorskip("soxr", reason="needs soxr to resample")


class FakePortAudioError(Exception):
    """Stands for sounddevice.PortAudioError."""


class FakeStream:
    """Stands for sounddevice.InputStream: calls back from the thread that asks for it, when a test says so."""

    def __init__(self, fake: "FakeSounddevice", **wish: Any) -> None:
        self.fake, self.wish, self.active, self.closed, self.clock_s = fake, wish, False, False, 5.0

    def start(self) -> None:
        if self.fake.refuses == "start":
            raise FakePortAudioError("Device unavailable [PaErrorCode -9985]")
        self.active = True

    def close(self) -> None:
        self.active, self.closed = False, True

    def record(self, samples: np.ndarray, *, overflow: bool = False, late: int = 0) -> None:
        """Record some samples; with ``late`` so many were dropped before them."""
        self.clock_s += late / self.wish["samplerate"]
        clock, status = SimpleNamespace(inputBufferAdcTime=self.clock_s), SimpleNamespace(input_overflow=overflow)
        room = samples.astype(np.float32)[:, None].copy()
        self.wish["callback"](room, len(room), clock, status)
        room[:] = np.nan  # PortAudio uses it again
        self.clock_s += len(room) / self.wish["samplerate"]


class FakeSounddevice(SimpleNamespace):
    """Stands for the module sounddevice, which no test machine has a microphone for."""

    PortAudioError = FakePortAudioError
    refuses = ""
    own_rate = 48_000.0

    def check_input_settings(self, **wish: Any) -> None:
        if self.refuses == "rate":
            raise FakePortAudioError("Invalid sample rate [PaErrorCode -9997]")

    def query_devices(self, device: int | str | None, kind: str) -> dict[str, float]:
        return {"default_samplerate": self.own_rate}

    def InputStream(self, **wish: Any) -> FakeStream:
        if self.refuses == "open":
            raise FakePortAudioError("Error querying device -1")
        if self.refuses == "name":
            raise ValueError("No input device matching 'kitchen'")
        self.stream = FakeStream(self, **wish)
        return self.stream


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeSounddevice:
    module = FakeSounddevice()
    monkeypatch.setitem(sys.modules, "sounddevice", module)
    monkeypatch.setattr(microphones, "_CHECK_S", 0.05)
    return module


def listening(fake: FakeSounddevice, **wish: Any) -> Any:
    """Start a microphone, with its first block already there and taken."""
    blocks = microphone(RATE, **wish)
    first: list[Block] = []
    waiting = threading.Thread(target=lambda: first.append(next(blocks)))
    waiting.start()
    while not (hasattr(fake, "stream") and fake.stream.active):
        time.sleep(0.001)
    fake.stream.record(np.zeros(fake.stream.wish["blocksize"]))
    if fake.stream.wish["samplerate"] == RATE:
        waiting.join()
        assert len(first[0].samples) == fake.stream.wish["blocksize"] and first[0].lost == 0
    return blocks, waiting


def test_a_microphone_gives_what_it_records_until_it_is_closed(fake: FakeSounddevice) -> None:
    blocks, _ = listening(fake, device="kitchen", block=800)
    wish = {name: value for name, value in fake.stream.wish.items() if name != "callback"}
    assert wish == {"samplerate": RATE, "blocksize": 800, "device": "kitchen", "channels": 1, "dtype": "float32"}
    sound = np.linspace(-1, 1, 800, dtype=np.float32)
    fake.stream.record(sound)
    block = next(blocks)
    assert np.array_equal(block.samples, sound) and block.lost == 0
    blocks.close()
    assert fake.stream.closed


@pytest.mark.parametrize(("late", "lost"), [(4000, 4000), (0, 1), (-4000, 1)])
def test_an_overflow_is_counted_by_the_clock_or_at_least_known(fake: FakeSounddevice, late: int, lost: int) -> None:
    blocks, _ = listening(fake)
    fake.stream.record(np.ones(1600), overflow=True, late=late)
    fake.stream.record(np.ones(1600))
    assert [next(blocks).lost, next(blocks).lost] == [lost, 0]
    blocks.close()


def test_an_overflow_before_the_first_block_is_known(fake: FakeSounddevice) -> None:
    recorded = microphones._Queue(RATE, 1600)
    FakeStream(fake, samplerate=RATE, callback=recorded.put).record(np.ones(1600), overflow=True)
    assert next(recorded.blocks(SimpleNamespace(active=True))).lost == 1


def test_sound_that_nobody_takes_in_time_is_counted(fake: FakeSounddevice) -> None:
    blocks, _ = listening(fake)
    room = round(microphones.QUEUE_S * RATE / 1600)
    for number in range(room + 3):
        fake.stream.record(np.full(1600, number / 1000))
    came = [next(blocks) for _ in range(room)]
    assert [block.samples[0] for block in came] == [np.float32(number / 1000) for number in range(room)]
    assert not any(block.lost for block in came)
    fake.stream.record(np.ones(1600))
    assert next(blocks).lost == 3 * 1600
    blocks.close()


def test_a_microphone_with_a_rate_of_its_own_is_resampled(fake: FakeSounddevice) -> None:
    fake.refuses = "rate"
    blocks, waiting = listening(fake)
    assert fake.stream.wish["samplerate"] == 48_000 and fake.stream.wish["blocksize"] == 4800
    for _ in range(9):
        fake.stream.record(np.full(4800, 0.5))
    fake.stream.record(np.full(4800, 0.5), overflow=True, late=48_000)
    fake.stream.record(np.full(4800, 0.5))
    waiting.join()
    fake.stream.active = False
    samples, came, text = collect(blocks)
    assert [block.lost for block in came if block.lost] == [RATE]
    assert samples[8000] == pytest.approx(0.5, abs=1e-3) and "stopped" in text


def test_a_microphone_that_stops_by_itself_says_so_after_all_it_recorded(fake: FakeSounddevice) -> None:
    blocks, _ = listening(fake)
    fake.stream.record(np.ones(1600))
    fake.stream.active = False
    samples, _, text = collect(blocks)
    assert len(samples) == 1600 and "stopped" in text and "unplugged" in text
    assert fake.stream.closed


def test_a_microphone_that_is_silent_for_long_is_waited_for(fake: FakeSounddevice) -> None:
    blocks, _ = listening(fake)
    threading.Timer(0.3, lambda: fake.stream.record(np.ones(1600))).start()  # six times the patience
    assert len(next(blocks).samples) == 1600
    blocks.close()


@pytest.mark.parametrize(
    ("refuses", "reason"),
    [
        ("open", r"Error querying device -1"),
        ("start", r"Device unavailable \[PaErrorCode -9985\]"),
        ("name", r"No input device matching 'kitchen'"),
    ],
)
def test_a_microphone_that_cannot_be_opened_says_what_to_do(fake: FakeSounddevice, refuses: str, reason: str) -> None:
    fake.refuses = refuses
    text = rf"default microphone.*{reason}.*python -m sounddevice"
    with pytest.raises(DataError, match=text):
        next(microphone(RATE))
    with pytest.raises(DataError, match=r"microphone 'kitchen'"):
        next(microphone(RATE, "kitchen"))
    if refuses == "start":
        assert fake.stream.closed
