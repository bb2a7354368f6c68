"""Headers of WAV files: placeholders for the size, contradictions, chunks after the samples."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from helpers.sound_files import RATE, collect, noise, samples_of, soundfile, wav
from penstock.runtime.audio.file import recording


@pytest.mark.parametrize("size", [0, 0x7FFFF000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFFF - 36])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_size_that_a_streaming_writer_left_is_no_promise(tmp_path: Path, size: int, channels: int) -> None:
    samples = noise(10_000, channels=channels)
    (tmp_path / "a.wav").write_bytes(wav(samples, data=size, channels=channels))
    came = samples_of(recording(tmp_path / "a.wav", RATE))
    np.testing.assert_allclose(came, samples.mean(axis=1) / 32768, atol=1e-7)


def test_big_endian_files_are_read_to_the_end_too(tmp_path: Path) -> None:
    form = struct.pack(">4sIHHIIHH", b"fmt ", 16, 1, 1, RATE, 2 * RATE, 2, 16)
    body = noise(3000).astype(">i2").tobytes()
    (tmp_path / "a.wav").write_bytes(b"RIFX" + struct.pack(">I", 0) + b"WAVE" + form + b"data" + bytes(4) + body)
    assert np.array_equal(samples_of(recording(tmp_path / "a.wav", RATE)) * 32768, noise(3000)[:, 0])


@pytest.mark.parametrize(
    ("place", "kind", "value", "text"),
    [
        (34, "<H", 8, "8 bits and 1 channel.*2 bytes per frame"),
        (34, "<H", 24, "24 bits"),
        (34, "<H", 32, "32 bits"),
        (22, "<H", 2, "16 bits and 2 channel.*2 bytes"),
        (24, "<I", 8000, "8000 Hz and 2 bytes.*32000 bytes per second"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    tmp_path: Path, place: int, kind: str, value: int, text: str
) -> None:
    content = bytearray(wav(noise(2000)))
    struct.pack_into(kind, content, place, value)
    (tmp_path / "a.wav").write_bytes(content)
    samples, _, error = collect(recording(tmp_path / "a.wav", RATE))
    assert not len(samples) and re.search(rf"a\.wav contradicts itself: .*{text}", error)


@pytest.mark.parametrize(("place", "kind"), [(28, "<I"), (32, "<H")])
def test_a_header_that_does_not_know_is_no_contradiction(tmp_path: Path, place: int, kind: str) -> None:
    content, given = bytearray(wav(noise(2000))), noise(2000)
    struct.pack_into(kind, content, place, 0)
    (tmp_path / "a.wav").write_bytes(content)
    np.testing.assert_array_equal(samples_of(recording(tmp_path / "a.wav", RATE)), given[:, 0] / np.float32(32768))


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
    assert len(collect(recording(tmp_path / "a.wav", 44_100))[0]) >= 2000


@pytest.mark.parametrize(
    "after", [struct.pack("<4sI", b"LIST", 60_000) + bytes(60_000), bytes(500), b"TAG" + bytes(125)]
)
def test_a_chunk_or_a_little_padding_after_the_samples_is_no_lie(tmp_path: Path, after: bytes) -> None:
    (tmp_path / "a.wav").write_bytes(wav(noise(1000), after=after))
    assert np.array_equal(samples_of(recording(tmp_path / "a.wav", RATE)) * 32768, noise(1000)[:, 0])
