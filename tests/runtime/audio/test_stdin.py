"""Raw sound from a pipe is what the file gives, however its sender splits it."""

import io
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.sound_files import RATE, collect, flac, noise, samples_of, soundfile, wav
from penstock.errors import DataError
from penstock.runtime.audio.file import recording
from penstock.runtime.audio.stdin import pipe

pytest.importorskip("soxr", reason="needs soxr to resample")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


class Ragged(io.RawIOBase):
    """A sender that writes chunks of its own choice."""

    def __init__(self, content: bytes, sizes: list[int]) -> None:
        self._chunks = []
        while content:
            size = sizes[len(self._chunks) % len(sizes)]
            self._chunks.append(content[:size])
            content = content[size:]

    def read(self, size: int = -1, /) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


@given(
    st.lists(st.integers(1, 9000), min_size=1, max_size=9),
    st.sampled_from([RATE, 44_100, 8000]),
    st.integers(1, 3),
    st.integers(1, 5000),
)
@settings(max_examples=40, deadline=None)
def test_a_pipe_gives_what_the_file_gives(folder: Path, sizes: list[int], rate: int, channels: int, block: int) -> None:
    samples = noise(9001, channels=channels)
    file = folder / f"pipe-{rate}-{channels}.wav"
    if not file.exists():
        soundfile.write(file, samples, rate)
    _, blocks, text = collect(pipe(Ragged(samples.tobytes(), sizes), RATE, rate, channels, block))  # type: ignore[arg-type]
    assert text == "" and all(0 < len(one.samples) <= block for one in blocks)
    assert np.array_equal(np.concatenate([one.samples for one in blocks]), samples_of(recording(file, RATE)))


def test_what_a_slow_sender_wrote_is_passed_on_before_it_writes_more() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb") as file:
        blocks = pipe(file, RATE, RATE)
        for count, odd in ((100, 0), (3, 1), (1, -1), (1599, 0)):  # odd: a byte of the next sample comes early
            os.write(writing, bytes(2 * count + odd))
            assert len(next(blocks).samples) == count
        threading.Timer(0.3, lambda: (os.write(writing, bytes(8)), os.close(writing))).start()  # it stalls, we wait
        assert len(next(blocks).samples) == 4
        assert list(blocks) == []


def test_an_endless_pipe_takes_no_more_memory_with_time() -> None:
    class Endless(io.RawIOBase):
        left = 3000

        def read(self, size: int = -1, /) -> bytes:
            self.left -= 1
            return bytes(size) if self.left > 0 else b""

    tracemalloc.start()
    count = sum(len(block.samples) for block in pipe(Endless(), RATE, RATE))  # type: ignore[arg-type]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 2999 * 32768 and peak < 2_000_000


@pytest.mark.parametrize("rate", [RATE, 8000])
def test_a_pipe_that_ends_within_a_sample_gives_all_before_it(rate: int) -> None:
    samples, _, text = collect(pipe(io.BytesIO(noise(1000).tobytes() + b"\1"), RATE, rate))
    assert len(samples) == 1000 * RATE // rate
    assert "1 of 2 bytes: expected 16 bits and 1 channel" in text
    samples, _, text = collect(pipe(io.BytesIO(noise(1000).tobytes() + b"\1\2"), RATE, rate, channels=2))
    assert len(samples) == 500 * RATE // rate and "2 of 4 bytes" in text


@pytest.mark.parametrize(
    ("content", "count", "text"),
    [
        (b"", 0, "without any sound"),
        (b"\1", 0, "1 of 2 bytes"),
        (b"\1\2", 1, ""),
        (b"\1\2\3", 1, "1 of 2 bytes"),
        (wav(noise(100)), 0, "got RIFF, the header of a WAV file"),
        (flac(noise(100)), 0, "got fLaC, the header of a FLAC file"),
        (b"OggS" + bytes(100), 0, "got OggS, the header of a Ogg file"),
    ],
    ids=["empty", "byte", "sample", "sample and byte", "wav", "flac", "ogg"],
)
def test_short_and_foreign_pipes(content: bytes, count: int, text: str) -> None:
    for file in (io.BytesIO(content), Ragged(content, [1])):
        samples, _, error = collect(pipe(file, RATE, RATE))  # type: ignore[arg-type]
        assert len(samples) == count and text in error and bool(text) == bool(error)


class Broken(Ragged):
    """A sender whose line breaks, or who does not wait."""

    end: Callable[[], bytes | None]

    def read(self, size: int = -1, /) -> bytes:
        return super().read() or self.end()  # type: ignore[return-value]


def reset() -> bytes:
    raise ConnectionResetError(104, "Connection reset by peer")


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (reset, "broke: Connection reset by peer"),
        (lambda: None, "non-blocking"),
    ],
)
def test_a_pipe_that_breaks_gives_what_came_and_then_an_error(end: Callable[[], bytes | None], text: str) -> None:
    file = Broken(noise(1000).tobytes(), [700])
    file.end = end
    samples, _, error = collect(pipe(file, RATE, 8000))  # type: ignore[arg-type]
    assert len(samples) == 2000 and text in error


@pytest.mark.parametrize(
    ("rate", "channels", "text"),
    [
        (0, 1, r"raw sound.*1000 to 768000 Hz, got 0"),
        (RATE, 0, r"raw sound.*1 to 64 channels, got 0"),
    ],
)
def test_pipes_of_no_rate_or_no_channels_are_refused(rate: int, channels: int, text: str) -> None:
    with pytest.raises(DataError, match=text):
        next(pipe(io.BytesIO(bytes(100)), RATE, rate, channels))
