"""Sound files: any block size gives the same samples; damaged files give all that can be read, then an error."""

import os
import re
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.sound_files import RATE, collect, flac, noise, samples_of, soundfile, wav
from penstock.errors import DataError
from penstock.runtime.audio.file import recording

pytest.importorskip("soxr", reason="needs soxr to resample")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


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
    _, blocks, text = collect(recording(file, RATE, block))
    assert text == "" and all(0 < len(one.samples) <= block for one in blocks)
    assert np.array_equal(np.concatenate([one.samples for one in blocks]), samples_of(recording(file, RATE)))


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_U8", "FLOAT", "DOUBLE", "ULAW"])
def test_every_kind_of_sample_is_what_soundfile_says(tmp_path: Path, subtype: str) -> None:
    soundfile.write(tmp_path / "a.wav", noise(5000, channels=2), RATE, subtype=subtype)
    theirs, _ = soundfile.read(tmp_path / "a.wav", dtype="float64")
    np.testing.assert_allclose(samples_of(recording(tmp_path / "a.wav", RATE)), theirs.mean(axis=1), atol=1e-7)


@pytest.mark.parametrize("kind", ["wav", "flac", "aiff"])
@pytest.mark.parametrize("channels", [2, 3, 6])
def test_equal_channels_are_one_channel(tmp_path: Path, kind: str, channels: int) -> None:
    one = noise(5000)
    soundfile.write(tmp_path / f"one.{kind}", one, 48_000)
    soundfile.write(tmp_path / f"many.{kind}", np.repeat(one, channels, axis=1), 48_000)
    first, second = (samples_of(recording(tmp_path / f"{name}.{kind}", RATE)) for name in ("one", "many"))
    assert np.array_equal(first, second)


def test_lossy_files_are_read_forward_whatever_the_blocks(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.ogg", noise(30_000), RATE)
    theirs, _ = soundfile.read(tmp_path / "a.ogg", dtype="float32")
    for block in (7, 1600):
        assert np.array_equal(samples_of(recording(tmp_path / "a.ogg", RATE, block)), theirs)


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


def test_a_header_that_promises_more_gives_what_is_there_and_then_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(10_000), data=40_000))
    samples, _, text = collect(recording(tmp_path / "a.wav", RATE))
    assert np.array_equal(samples * 32768, noise(10_000)[:, 0])
    assert re.search(r"truncated.*20000 samples \(1\.25 s\).*10000 samples \(0\.62 s\)", text)
    samples, _, text = collect(recording(tmp_path / "a.wav", 8000))
    assert len(samples) == 5000 and "declares 20000 samples" in text  # with what the filter had delayed


def test_a_file_that_lost_its_last_byte_is_short_of_a_sample(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(10_000))[:-1])
    samples, _, text = collect(recording(tmp_path / "a.wav", RATE))
    assert len(samples) == 9999 and re.search(r"declares 10000 samples.*read 9999", text)


def test_samples_that_cannot_be_read_raw_are_read_to_the_end_too(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", noise(9000), RATE, subtype="IMA_ADPCM")
    theirs, content = soundfile.read(tmp_path / "a.wav", dtype="float32")[0], (tmp_path / "a.wav").read_bytes()
    place = content.index(b"data") + 4
    (tmp_path / "a.wav").write_bytes(content[:place] + b"\xff" * 4 + content[place + 4 :])
    assert np.array_equal(samples_of(recording(tmp_path / "a.wav", RATE)), theirs)


def test_a_header_that_promises_less_gives_that_and_then_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(50_000), data=20_000))
    samples, _, text = collect(recording(tmp_path / "a.wav", RATE))
    assert len(samples) == 10_000
    assert re.search(r"longer.*10000 samples \(0\.62 s\).*80000 more bytes", text)


def test_a_flac_file_that_does_not_know_its_length_is_read_to_the_end(tmp_path: Path) -> None:
    content = bytearray(flac(noise(10_000)))
    content[21] &= 0xF0  # 36 bits of the first block: how many samples
    content[22:26] = bytes(4)
    (tmp_path / "a.flac").write_bytes(content)
    assert np.array_equal(samples_of(recording(tmp_path / "a.flac", RATE)) * 32768, noise(10_000)[:, 0])


def test_a_flac_file_that_promises_more_gives_what_is_there_and_then_an_error(tmp_path: Path) -> None:
    content = bytearray(flac(noise(10_000)))
    content[22:26] = struct.pack(">I", 20_000)
    (tmp_path / "a.flac").write_bytes(content)
    samples, _, text = collect(recording(tmp_path / "a.flac", RATE))
    assert len(samples) == 10_000 and re.search(r"declares 20000 samples.*read 10000", text)


def torn(samples: int, bytes_: int) -> bytes:
    content = bytearray(flac(noise(samples)))
    middle = len(content) // 2
    content[middle : middle + bytes_] = np.random.default_rng(1).bytes(bytes_)
    return bytes(content)


@pytest.mark.parametrize("bytes_", [1, 50, 30_000])
@pytest.mark.parametrize("block", [777, 1600, 300_000])
def test_sound_before_and_behind_damage_is_heard_and_in_its_place(tmp_path: Path, bytes_: int, block: int) -> None:
    (tmp_path / "a.flac").write_bytes(torn(200_000, bytes_))
    _, blocks, text = collect(recording(tmp_path / "a.flac", RATE, block))
    place, lost = 0, 0
    for one in blocks:
        place, lost = place + one.lost, lost + one.lost
        assert np.array_equal(one.samples * 32768, noise(200_000)[place : place + len(one.samples), 0])
        place += len(one.samples)
    assert place == 200_000 and 0 < lost < 4 * 4096 + bytes_
    assert sum(bool(one.lost) for one in blocks) == 1
    assert f"damaged at 6.14 s: read {200_000 - lost} samples" in text and "of 200000 samples (12.50 s)" in text


@pytest.mark.parametrize("rate", [8000, 48_000])
def test_damage_is_in_its_place_after_resampling(tmp_path: Path, rate: int) -> None:
    tone = (8000 * np.sin(2 * np.pi * 440 * np.arange(200_000) / rate)).astype(np.int16)
    content = bytearray(flac(tone, rate))
    content[len(content) // 2] ^= 0xFF
    (tmp_path / "a.flac").write_bytes(content)
    _, blocks, text = collect(recording(tmp_path / "a.flac", RATE))
    torn_at = next(i for i, one in enumerate(blocks) if one.lost)
    before = sum(len(one.samples) for one in blocks[:torn_at])
    behind = np.concatenate([one.samples for one in blocks[torn_at:]])
    start = before + blocks[torn_at].lost
    assert abs(start + len(behind) - 200_000 * RATE / rate) <= 2 and "damaged at" in text
    wanted = 8000 / 32768 * np.sin(2 * np.pi * 440 * np.arange(start, start + len(behind)) / RATE)
    half_a_sample = 8000 / 32768 * 2 * np.pi * 440 / RATE / 2
    assert np.abs(behind - wanted)[2000:-2000].max() < half_a_sample + 5e-4


def test_a_flac_file_that_is_cut_gives_what_is_there_and_then_an_error(tmp_path: Path) -> None:
    content = flac(noise(100_000))
    (tmp_path / "a.flac").write_bytes(content[: len(content) // 2])
    samples, _, text = collect(recording(tmp_path / "a.flac", RATE))
    assert np.array_equal(samples * 32768, noise(100_000)[: len(samples), 0]) and len(samples) > 40_000
    assert f"damaged at 3.07 s: read {len(samples)} samples (3.07 s) of 100000" in text


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.wav", b"", r"a\.wav.*empty"),
        ("a.wav", b"hello " * 50, r"a\.wav is not a sound file.*flac, ogg"),
        ("a.wav", b"RIFF", r"not a sound file"),
        ("a.flac", b"fLaC" + bytes(500), r"not a sound file|damaged"),
        ("a.wav", wav(noise(0)), r"a\.wav.*no samples"),
        ("a.wav", wav(noise(0), data=4000), r"no samples"),
        ("a.wav", wav(noise(0), data=0xFFFFFFFF), r"no samples"),
        ("a.wav", wav(noise(0), after=struct.pack("<4sI", b"LIST", 4) + b"note"), r"no samples"),
        ("a.wav", wav(noise(9), rate=0), r"not a sound file"),
        ("a.wav", wav(noise(9), rate=999), r"1000 to 768000 Hz, got 999"),
        ("a.wav", wav(noise(9), rate=2_000_000_000), r"Hz, got 2000000000"),
        ("a.wav", wav(noise(9), channels=0), r"Channel count is zero"),
        ("a.wav", wav(noise(900), channels=65), r"1 to 64 channels, got 65"),
        ("a.wav", wav(noise(90_000), channels=30_000), r"Too many channels"),
        ("a.raw", noise(900).tobytes(), r"a\.raw.*standard input, with --rate"),
    ],
)
def test_what_is_no_sound_file_is_refused(tmp_path: Path, name: str, content: bytes, text: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=text):
        next(recording(tmp_path / name, RATE))


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.wav: No such file"):
        next(recording(tmp_path / "none.wav", RATE))
    with pytest.raises(DataError, match=r"sound file.*folder"):
        next(recording(str(tmp_path), RATE))
    os.mkfifo(tmp_path / "pipe.wav")
    with pytest.raises(DataError, match=r"pipe\.wav is not a regular file"):
        next(recording(tmp_path / "pipe.wav", RATE))
