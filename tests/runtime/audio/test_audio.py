"""Sound from files, pipes and microphones: laws of blocks and resampling, and what lies, breaks or is not there."""

import io
import os
import re
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.runtime.audio.microphone as microphones
from penstock.errors import DataError, MissingExtraError
from penstock.runtime.audio.file import recording
from penstock.runtime.audio.microphone import microphone
from penstock.runtime.audio.resampling import Block, mono, resampled
from penstock.runtime.audio.stdin import pipe

soundfile = pytest.importorskip("soundfile", reason="needs soundfile to write what is read")
soxr = pytest.importorskip("soxr", reason="needs soxr for rates other than the one that is wanted")

RATE = 16_000


def noise(samples: int, seed: int = 0, channels: int = 1) -> np.ndarray:
    """Return int16, (samples, channels)."""
    return (np.random.default_rng(seed).normal(size=(samples, channels)) * 3000).astype("<i2")


def wav(
    samples: np.ndarray, *, rate: int = RATE, channels: int = 1, data: int | None = None, after: bytes = b""
) -> bytes:
    """Write a WAV file of 16 bits by hand, so that its header may say anything."""
    body = samples.tobytes()
    size = len(body) if data is None else data
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, channels, rate, 2 * rate * channels % 2**32, 2 * channels, 16)
    content = b"WAVE" + form + struct.pack("<4sI", b"data", size) + body + after
    return b"RIFF" + struct.pack("<I", len(content)) + content


def flac(samples: np.ndarray, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC")
    return file.getvalue()


def heard(blocks: Iterator[Block]) -> tuple[np.ndarray, list[Block], str]:
    """Return all samples that came, all blocks, and what the error at the end said."""
    came, text = [], ""
    try:
        for block in blocks:
            came.append(block)
    except DataError as error:
        text = str(error)
    return np.concatenate([block.samples for block in came] or [np.empty(0, np.float32)]), came, text


def whole(blocks: Iterator[Block]) -> np.ndarray:
    samples, came, text = heard(blocks)
    assert text == "" and not any(block.lost for block in came) and samples.dtype == np.float32
    return samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


# ------------------------------------------------------------------------------------------------------ laws of files


@given(
    st.integers(1, 20_000), st.sampled_from([RATE, 8000, 44_100]), st.integers(1, 3), st.sampled_from(["wav", "flac"])
)
@settings(max_examples=40, deadline=None)
def test_any_size_of_blocks_gives_the_same_samples(
    folder: Path, block: int, rate: int, channels: int, kind: str
) -> None:
    file = folder / f"{rate}-{channels}.{kind}"
    if not file.exists():
        soundfile.write(file, noise(9001, channels=channels), rate)
    _, blocks, text = heard(recording(file, RATE, block))
    assert text == "" and all(0 < len(one.samples) <= block for one in blocks)
    assert np.array_equal(np.concatenate([one.samples for one in blocks]), whole(recording(file, RATE)))


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_U8", "FLOAT", "DOUBLE", "ULAW"])
def test_every_kind_of_sample_is_what_soundfile_says(tmp_path: Path, subtype: str) -> None:
    soundfile.write(tmp_path / "a.wav", noise(5000, channels=2), RATE, subtype=subtype)
    theirs, _ = soundfile.read(tmp_path / "a.wav", dtype="float64")
    np.testing.assert_allclose(whole(recording(tmp_path / "a.wav", RATE)), theirs.mean(axis=1), atol=1e-7)


@pytest.mark.parametrize("kind", ["wav", "flac", "aiff"])
@pytest.mark.parametrize("channels", [2, 3, 6])
def test_equal_channels_are_one_channel(tmp_path: Path, kind: str, channels: int) -> None:
    one = noise(5000)
    soundfile.write(tmp_path / f"one.{kind}", one, 48_000)
    soundfile.write(tmp_path / f"many.{kind}", np.repeat(one, channels, axis=1), 48_000)
    first, second = (whole(recording(tmp_path / f"{name}.{kind}", RATE)) for name in ("one", "many"))
    assert np.array_equal(first, second)


@given(st.floats(width=32, allow_nan=False), st.integers(1, 64))
def test_the_mean_of_equal_channels_is_each_of_them(value: float, channels: int) -> None:
    assert mono(np.full((1, channels), value, np.float32)).tolist() == [value]


def test_lossy_files_are_read_forward_whatever_the_blocks(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.ogg", noise(30_000), RATE)
    theirs, _ = soundfile.read(tmp_path / "a.ogg", dtype="float32")
    for block in (7, 1600):
        assert np.array_equal(whole(recording(tmp_path / "a.ogg", RATE, block)), theirs)


@pytest.mark.parametrize("rate", [8000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_a_tone_keeps_its_pitch_its_loudness_and_its_length(tmp_path: Path, rate: int) -> None:
    count = 2 * rate + 7
    soundfile.write(tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 440 * np.arange(count) / rate), rate, subtype="FLOAT")
    samples = whole(recording(tmp_path / "a.wav", RATE))
    assert abs(len(samples) - count * RATE / rate) <= 1
    middle = slice(2000, -2000)  # the filter rings at both ends
    wanted = 0.5 * np.sin(2 * np.pi * 440 * np.arange(len(samples)) / RATE)
    assert np.abs(samples - wanted)[middle].max() < 5e-4  # 60 dB below: pitch, loudness and place in time


def test_what_is_too_high_for_the_rate_is_gone(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 0.5 * np.sin(2 * np.pi * 10_000 * np.arange(96_000) / 48_000), 48_000)
    assert np.abs(whole(recording(tmp_path / "a.wav", RATE)))[2000:-2000].max() < 5e-4


@pytest.mark.parametrize("rate", [8000, 44_100, 48_000])
def test_resampling_block_by_block_is_resampling_at_once(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", noise(30_000), rate)
    at_once = soxr.resample(noise(30_000)[:, 0] / np.float32(32768), rate, RATE)
    for block in (7, 1600):
        np.testing.assert_allclose(whole(recording(tmp_path / "a.wav", RATE, block)), at_once, atol=1e-7)


def test_a_file_shorter_than_the_filter_is_all_there(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(3), 8000)
    assert len(whole(recording(tmp_path / "a.wav", RATE))) == 6


@pytest.mark.parametrize("rate", [RATE, 48_000])
def test_a_long_recording_takes_no_more_memory_than_a_short_one(folder: Path, rate: int) -> None:
    file = folder / f"long-{rate}.flac"
    with soundfile.SoundFile(file, "w", rate, 1) as sound:
        for _ in range(1200):
            sound.write(np.zeros(rate, np.int16))
    tracemalloc.start()
    seconds = sum(len(block.samples) for block in recording(file, RATE)) / RATE
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seconds == 1200 and peak < 1_000_000  # 77 MB as one array


def test_memory_of_the_process_stays_where_it_is(folder: Path) -> None:
    """Libraries in C take memory that Python does not see: ask the system, after a minute of sound and after twenty."""
    file = folder / "long.wav"
    soundfile.write(file, np.tile(noise(48_000), (1200, 1)), 48_000)
    code = f"""
import itertools, resource
from penstock.runtime.audio.file import recording
blocks = recording({str(file)!r}, 16_000)
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in itertools.islice(blocks, 600): pass
before = peak()
for _ in blocks: pass
print(peak() - before)
"""
    grown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    file.unlink()
    assert int(grown) < 8_000  # KiB; the sound has 115 MB


def test_closing_the_blocks_closes_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(50_000), data=0))
    blocks = recording(tmp_path / "a.wav", RATE)
    next(blocks)
    assert opened(tmp_path / "a.wav")
    blocks.close()
    assert not opened(tmp_path / "a.wav")


def opened(path: Path) -> bool:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    return any(link.is_symlink() and os.readlink(link) == str(path) for link in Path("/proc/self/fd").iterdir())


# ------------------------------------------------------------------------------------------- samples that are no sound


def test_at_the_rate_that_is_wanted_samples_are_not_touched(tmp_path: Path) -> None:
    samples = np.array([0.5, np.nan, 3.0, -np.inf, 1e30, -0.25], np.float32)
    soundfile.write(tmp_path / "a.wav", samples, RATE, subtype="FLOAT")
    assert np.array_equal(whole(recording(tmp_path / "a.wav", RATE)), samples, equal_nan=True)


def test_two_infinities_are_mixed_without_a_word(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.array([[np.inf, -np.inf], [1, 0]], np.float32), RATE, subtype="FLOAT")
    assert np.array_equal(whole(recording(tmp_path / "a.wav", RATE)), np.array([np.nan, 0.5]), equal_nan=True)


@given(
    st.sampled_from([8000, 44_100, 48_000]),
    st.sets(st.integers(0, 5999), max_size=30),
    st.sampled_from([np.nan, np.inf, -np.inf, 1e30]),
    st.integers(1, 3000),
)
@settings(max_examples=40, deadline=None)
def test_what_is_no_sound_spoils_nothing_around_it(
    folder: Path, rate: int, places: set[int], bad: float, block: int
) -> None:
    samples = noise(6000)[:, 0] / np.float32(32768)
    at = sorted(places)
    samples[at] = 0
    clean = soxr.resample(samples, rate, RATE)
    samples[at] = bad
    soundfile.write(folder / "broken.wav", samples, rate, subtype="FLOAT")
    came = whole(recording(folder / "broken.wav", RATE, block))
    ratio, half = Fraction(RATE, rate), Fraction(1, 2)
    marked = np.zeros(len(clean), bool)
    for place in at:
        marked[max(0, floor((place - half) * ratio)) : ceil((place + half) * ratio) + 1] = True
    assert np.array_equal(np.isnan(came), marked)
    np.testing.assert_allclose(came[~marked], clean[~marked], atol=1e-7)


def test_loud_sound_is_resampled_as_it_is(tmp_path: Path) -> None:
    """A writer that forgot to divide its int16: whoever listens is to see that it is on another scale."""
    soundfile.write(tmp_path / "a.wav", noise(9000).astype(np.float32), 48_000, subtype="FLOAT")
    assert 5000 < np.abs(whole(recording(tmp_path / "a.wav", RATE))).max() < 32768


# ------------------------------------------------------------------------------------------------- headers that lie


def test_a_header_that_promises_more_gives_what_is_there_and_then_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(10_000), data=40_000))
    samples, _, text = heard(recording(tmp_path / "a.wav", RATE))
    assert np.array_equal(samples * 32768, noise(10_000)[:, 0])
    assert "is cut short or damaged: it promises 20000 samples (1.25 s), and 10000 (0.62 s) are there" in text
    samples, _, text = heard(recording(tmp_path / "a.wav", 8000))
    assert len(samples) == 5000 and "it promises 20000 samples" in text  # what the filter held back came as well


def test_a_file_that_lost_its_last_byte_is_short_of_a_sample(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(10_000))[:-1])
    samples, _, text = heard(recording(tmp_path / "a.wav", RATE))
    assert len(samples) == 9999 and "promises 10000 samples (0.62 s), and 9999" in text


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFF - 36])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_size_that_a_streaming_writer_left_is_no_promise(tmp_path: Path, size: int, channels: int) -> None:
    samples = noise(10_000, channels=channels)
    (tmp_path / "a.wav").write_bytes(wav(samples, data=size, channels=channels))
    came = whole(recording(tmp_path / "a.wav", RATE))
    np.testing.assert_allclose(came, samples.mean(axis=1) / 32768, atol=1e-7)


def test_samples_that_cannot_be_read_raw_are_read_to_the_end_too(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(9000), RATE, subtype="IMA_ADPCM")
    theirs, content = soundfile.read(tmp_path / "a.wav", dtype="float32")[0], (tmp_path / "a.wav").read_bytes()
    place = content.index(b"data") + 4
    (tmp_path / "a.wav").write_bytes(content[:place] + b"\xff" * 4 + content[place + 4 :])
    assert np.array_equal(whole(recording(tmp_path / "a.wav", RATE)), theirs)


def test_big_endian_files_are_read_to_the_end_too(tmp_path: Path) -> None:
    form = struct.pack(">4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = noise(3000).astype(">i2").tobytes()
    (tmp_path / "a.wav").write_bytes(b"RIFX" + struct.pack(">I", 0) + b"WAVE" + form + b"data" + bytes(4) + body)
    assert np.array_equal(whole(recording(tmp_path / "a.wav", RATE)) * 32768, noise(3000)[:, 0])


@pytest.mark.parametrize(
    ("place", "kind", "value", "text"),
    [
        (34, "<H", 8, "its header says 8 bits and 1 channel.s., and 2 bytes for a sample of all channels"),
        (34, "<H", 24, "its header says 24 bits"),
        (34, "<H", 32, "its header says 32 bits"),
        (22, "<H", 2, "16 bits and 2 channel.s., and 2 bytes"),
        (24, "<I", 8000, "its header says 8000 Hz with 2 bytes a sample, and 32000 bytes a second"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    tmp_path: Path, place: int, kind: str, value: int, text: str
) -> None:
    content = bytearray(wav(noise(2000)))
    struct.pack_into(kind, content, place, value)
    (tmp_path / "a.wav").write_bytes(content)
    samples, _, said = heard(recording(tmp_path / "a.wav", RATE))
    assert not len(samples) and re.search(f"a.wav contradicts itself: .*{text}", said)


@pytest.mark.parametrize(("place", "kind"), [(28, "<I"), (32, "<H")])
def test_a_header_that_does_not_know_is_no_contradiction(tmp_path: Path, place: int, kind: str) -> None:
    content, given = bytearray(wav(noise(2000))), noise(2000)
    struct.pack_into(kind, content, place, 0)
    (tmp_path / "a.wav").write_bytes(content)
    np.testing.assert_array_equal(whole(recording(tmp_path / "a.wav", RATE)), given[:, 0] / np.float32(32768))


WRITTEN = [
    (form, subtype, channels)
    for form in ("WAV", "WAVEX")
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "IMA_ADPCM")
    for channels in (1, 2, 6)
    if soundfile.check_format(form, subtype) and not (subtype == "IMA_ADPCM" and channels > 2)
]


@pytest.mark.parametrize(("form", "subtype", "channels"), WRITTEN)
def test_no_honest_header_is_refused(tmp_path: Path, form: str, subtype: str, channels: int) -> None:
    soundfile.write(tmp_path / "a.wav", noise(2000, channels=channels), 44_100, subtype=subtype, format=form)
    assert len(heard(recording(tmp_path / "a.wav", 44_100))[0]) >= 2000


def test_a_header_that_promises_less_gives_that_and_then_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(50_000), data=20_000))
    samples, _, text = heard(recording(tmp_path / "a.wav", RATE))
    assert len(samples) == 10_000
    assert (
        "is longer than it says: it promises 10000 samples (0.62 s), which were given, and 80000 bytes follow" in text
    )


@pytest.mark.parametrize(
    "after", [struct.pack("<4sI", b"LIST", 60_000) + bytes(60_000), bytes(500), b"TAG" + bytes(125)]
)
def test_a_chunk_or_a_little_padding_after_the_samples_is_no_lie(tmp_path: Path, after: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(1000), after=after))
    assert np.array_equal(whole(recording(tmp_path / "a.wav", RATE)) * 32768, noise(1000)[:, 0])


def test_a_flac_file_that_does_not_know_its_length_is_read_to_the_end(tmp_path: Path) -> None:
    content = bytearray(flac(noise(10_000)))
    content[21] &= 0xF0  # 36 bits of the first block: how many samples
    content[22:26] = bytes(4)
    (tmp_path / "a.flac").write_bytes(content)
    assert np.array_equal(whole(recording(tmp_path / "a.flac", RATE)) * 32768, noise(10_000)[:, 0])


def test_a_flac_file_that_promises_more_gives_what_is_there_and_then_an_error(tmp_path: Path) -> None:
    content = bytearray(flac(noise(10_000)))
    content[22:26] = struct.pack(">I", 20_000)
    (tmp_path / "a.flac").write_bytes(content)
    samples, _, text = heard(recording(tmp_path / "a.flac", RATE))
    assert len(samples) == 10_000 and "promises 20000 samples (1.25 s), and 10000" in text


# ------------------------------------------------------------------------------------------------------------ damage


def torn(samples: int, bytes_: int) -> bytes:
    content = bytearray(flac(noise(samples)))
    middle = len(content) // 2
    content[middle : middle + bytes_] = np.random.default_rng(1).bytes(bytes_)
    return bytes(content)


@pytest.mark.parametrize("bytes_", [1, 50, 30_000])
@pytest.mark.parametrize("block", [777, 1600, 300_000])
def test_sound_before_and_behind_damage_is_heard_and_in_its_place(tmp_path: Path, bytes_: int, block: int) -> None:
    (tmp_path / "a.flac").write_bytes(torn(200_000, bytes_))
    _, blocks, text = heard(recording(tmp_path / "a.flac", RATE, block))
    place, lost = 0, 0
    for one in blocks:
        place, lost = place + one.lost, lost + one.lost
        assert np.array_equal(one.samples * 32768, noise(200_000)[place : place + len(one.samples), 0])
        place += len(one.samples)
    assert place == 200_000 and 0 < lost < 4 * 4096 + bytes_
    assert sum(bool(one.lost) for one in blocks) == 1
    assert f"is damaged at 6.14 s: {200_000 - lost} (" in text and "of 200000 samples (12.50 s) could be read" in text


@pytest.mark.parametrize("rate", [8000, 48_000])
def test_damage_is_in_its_place_after_resampling(tmp_path: Path, rate: int) -> None:
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(200_000) / rate)).astype(np.int16)
    content = bytearray(flac(tone, rate))
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "a.flac").write_bytes(content)
    _, blocks, text = heard(recording(tmp_path / "a.flac", RATE))
    torn_at = next(i for i, one in enumerate(blocks) if one.lost)
    before = sum(len(one.samples) for one in blocks[:torn_at])
    behind = np.concatenate([one.samples for one in blocks[torn_at:]])
    start = before + blocks[torn_at].lost
    assert abs(start + len(behind) - 200_000 * RATE / rate) <= 2 and "is damaged at" in text
    wanted = 8000 / 32768 * np.sin(2 * np.pi * 440 * np.arange(start, start + len(behind)) / RATE)
    half_a_sample = 8000 / 32768 * 2 * np.pi * 440 / RATE / 2
    assert np.abs(behind - wanted)[2000:-2000].max() < half_a_sample + 5e-4


@pytest.mark.parametrize("lost", [1, 2, 5, 48_000])
def test_a_gap_is_never_lost_in_rounding_and_times_do_not_drift(lost: int) -> None:
    blocks = list(resampled([Block(np.zeros(1001, np.float32), lost) for _ in range(30)], 48_000, RATE, 1600))
    assert sum(block.lost > 0 for block in blocks) == 30
    total = sum(block.lost + len(block.samples) for block in blocks)
    assert abs(total - 30 * (1001 + lost) / 3) <= (1 if lost > 3 else 30)  # a gap of less than a sample becomes one


@pytest.mark.parametrize("rate", [8000, 48_000])
@pytest.mark.parametrize("most", [50, 1600])
def test_sound_behind_a_gap_is_resampled_as_if_it_began_there(rate: int, most: int) -> None:
    first, second = (noise(4000, seed)[:, 0] / np.float32(32768) for seed in (1, 2))
    first[-3:] = second[100:110] = np.nan
    alone = [list(resampled([Block(part)], rate, RATE, most)) for part in (first, second)]
    came = list(resampled([Block(first), Block(second, lost=rate)], rate, RATE, most))
    assert [block.lost for block in came] == [RATE * (i == len(alone[0])) for i in range(len(came))]
    for block, wanted in zip(came, alone[0] + alone[1], strict=True):
        assert np.array_equal(block.samples, wanted.samples, equal_nan=True)


def test_a_flac_file_that_is_cut_gives_what_is_there_and_then_an_error(tmp_path: Path) -> None:
    content = flac(noise(100_000))
    (tmp_path / "a.flac").write_bytes(content[: len(content) // 2])
    samples, _, text = heard(recording(tmp_path / "a.flac", RATE))
    assert np.array_equal(samples * 32768, noise(100_000)[: len(samples), 0]) and len(samples) > 40_000
    assert f"is damaged at 3.07 s: {len(samples)} (3.07 s) of 100000 samples (6.25 s) could be read" in text


# ------------------------------------------------------------------------------------------ files that are no sound


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.wav", b"", r"a\.wav is empty: fetch or record it again"),
        ("a.wav", b"hello " * 50, r"a\.wav is no sound file, or damaged \(.*\): give wav, flac, ogg, mp3 or aiff"),
        ("a.wav", b"RIFF", r"is no sound file, or damaged"),
        ("a.flac", b"fLaC" + bytes(500), r"is no sound file, or damaged|is damaged"),
        ("a.wav", wav(noise(0)), r"a\.wav has a header and no samples"),
        ("a.wav", wav(noise(0), data=4000), r"has a header and no samples"),
        ("a.wav", wav(noise(0), data=0xFFFFFFFF), r"has a header and no samples"),
        ("a.wav", wav(noise(0), after=struct.pack("<4sI", b"LIST", 4) + b"note"), r"has a header and no samples"),
        ("a.wav", wav(noise(9), rate=0), r"is no sound file, or damaged"),
        ("a.wav", wav(noise(9), rate=999), r"has 999 Hz, and sound has 1000 to 768000 Hz"),
        ("a.wav", wav(noise(9), rate=2_000_000_000), r"has 2000000000 Hz, and sound has"),
        ("a.wav", wav(noise(9), channels=0), r"is no sound file, or damaged \(Channel count is zero"),
        ("a.wav", wav(noise(900), channels=65), r"has 65 channels, and 1 to 64 can be mixed"),
        ("a.wav", wav(noise(90_000), channels=30_000), r"is no sound file, or damaged \(Too many channels"),
        ("a.raw", noise(900).tobytes(), r"a\.raw is raw and does not say its rate: give it on standard input"),
    ],
)
def test_what_is_no_sound_file_is_refused(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=text):
        next(recording(tmp_path / name, RATE))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.wav cannot be read \(No such file or directory\): give the path"):
        next(recording(tmp_path / "none.wav", RATE))
    with pytest.raises(DataError, match=r"is a folder: give one sound file"):
        next(recording(str(tmp_path), RATE))
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(DataError, match=r"is no ordinary file: give a sound file, or raw samples on standard input"):
        next(recording(tmp_path / "pipe.wav", RATE))


def test_rates_and_blocks_that_nobody_can_want_are_refused(tmp_path: Path) -> None:
    for make in (lambda *a: recording(tmp_path, *a), lambda *a: pipe(io.BytesIO(), a[0], RATE, 1, a[1]), wish):
        with pytest.raises(DataError, match=r"sound at 0 Hz is asked for: 1000 to 768000 Hz are possible"):
            next(make(0, 1600))
        with pytest.raises(DataError, match=r"blocks of 0 samples are asked for: a block has at least 1"):
            next(make(RATE, 0))


def wish(rate: int, block: int) -> Iterator[Block]:
    return microphone(rate, None, block)


# ------------------------------------------------------------------------------------------------------------- pipes


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
    _, blocks, text = heard(pipe(Ragged(samples.tobytes(), sizes), RATE, rate, channels, block))  # type: ignore[arg-type]
    assert text == "" and all(0 < len(one.samples) <= block for one in blocks)
    assert np.array_equal(np.concatenate([one.samples for one in blocks]), whole(recording(file, RATE)))


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
    samples, _, text = heard(pipe(io.BytesIO(noise(1000).tobytes() + b"\1"), RATE, rate))
    assert len(samples) == 1000 * RATE // rate
    assert "the raw sound ends within a sample, 1 of 2 bytes came of the last one: 16 bits and 1 channels" in text
    samples, _, text = heard(pipe(io.BytesIO(noise(1000).tobytes() + b"\1\2"), RATE, rate, channels=2))
    assert len(samples) == 500 * RATE // rate and "2 of 4 bytes" in text


@pytest.mark.parametrize(
    ("content", "count", "text"),
    [
        (b"", 0, "no sound came, the pipe ended at once"),
        (b"\1", 0, "ends within a sample, 1 of 2 bytes"),
        (b"\1\2", 1, ""),
        (b"\1\2\3", 1, "ends within a sample, 1 of 2 bytes"),
        (
            wav(noise(100)),
            0,
            "begins with RIFF, the header of a WAV file: raw samples of 16 bits are wanted. Give the file",
        ),
        (flac(noise(100)), 0, "begins with fLaC, the header of a FLAC file"),
        (b"OggS" + bytes(100), 0, "begins with OggS, the header of a Ogg file"),
    ],
    ids=["empty", "byte", "sample", "sample and byte", "wav", "flac", "ogg"],
)
def test_short_and_foreign_pipes(content: bytes, count: int, text: str) -> None:
    for file in (io.BytesIO(content), Ragged(content, [1])):
        samples, _, said = heard(pipe(file, RATE, RATE))  # type: ignore[arg-type]
        assert len(samples) == count and text in said and bool(text) == bool(said)


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
        (reset, "the pipe broke (Connection reset by peer): all that came before was given"),
        (lambda: None, "the pipe does not wait for its sender: give one that blocks"),
    ],
)
def test_a_pipe_that_breaks_gives_what_came_and_then_an_error(end: Callable[[], bytes | None], text: str) -> None:
    file = Broken(noise(1000).tobytes(), [700])
    file.end = end
    samples, _, said = heard(pipe(file, RATE, 8000))  # type: ignore[arg-type]
    assert len(samples) == 2000 and text in said


@pytest.mark.parametrize(
    ("rate", "channels", "text"),
    [
        (0, 1, r"the raw sound has 0 Hz, and sound has 1000 to 768000 Hz"),
        (RATE, 0, r"the raw sound has 0 channels, and 1 to 64 can be mixed"),
    ],
)
def test_pipes_of_no_rate_or_no_channels_are_refused(rate: int, channels: int, text: str) -> None:
    with pytest.raises(DataError, match=text):
        next(pipe(io.BytesIO(bytes(100)), RATE, rate, channels))


# ------------------------------------------------------------------------------------------------------- microphones


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
    monkeypatch.setattr(microphones, "_PATIENCE_S", 0.05)
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
    line = microphones._Line(RATE, 1600)
    FakeStream(fake, samplerate=RATE, callback=line._put).record(np.ones(1600), overflow=True)
    assert next(line.blocks(SimpleNamespace(active=True))).lost == 1


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
    samples, came, text = heard(blocks)
    assert [block.lost for block in came if block.lost] == [RATE]
    assert samples[8000] == pytest.approx(0.5, abs=1e-3) and "the microphone has stopped" in text


def test_a_microphone_that_stops_by_itself_says_so_after_all_it_recorded(fake: FakeSounddevice) -> None:
    blocks, _ = listening(fake)
    fake.stream.record(np.ones(1600))
    fake.stream.active = False
    samples, _, text = heard(blocks)
    assert len(samples) == 1600 and "the microphone has stopped: was it unplugged, or the computer asleep?" in text
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
    text = rf"the microphone of the system cannot be opened \({reason}\): 'python -m sounddevice' lists the devices"
    with pytest.raises(DataError, match=text):
        next(microphone(RATE))
    with pytest.raises(DataError, match=r"the microphone 'kitchen' cannot be opened"):
        next(microphone(RATE, "kitchen"))
    if refuses == "start":
        assert fake.stream.closed


# ------------------------------------------------------------------------------------------------------------ extras


@pytest.mark.parametrize(
    ("module", "extra", "start"),
    [
        ("soundfile", "listen", lambda file: recording(file, RATE)),
        ("soxr", "listen", lambda file: recording(file, 8000)),
        ("soxr", "listen", lambda file: pipe(io.BytesIO(bytes(100)), RATE, 8000)),
        ("sounddevice", "microphone", lambda file: microphone(RATE)),
    ],
)
def test_what_is_not_installed_is_named_with_its_extra(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    extra: str,
    start: Callable[[Path], Iterator[Block]],
) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(100)))
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"^{module} is not installed: pip install 'penstock\[{extra}\]'"):
        next(start(tmp_path / "a.wav"))


def test_a_device_needs_numpy_alone_until_it_listens() -> None:
    code = "import penstock.runtime.audio, sys; print({'torch', 'soundfile', 'soxr', 'sounddevice'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"
