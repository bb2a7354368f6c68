"""Audio clips: padding, and noise divided among the splits."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from penstock.datasets.audio_clips import PARTS, noise_span, pad_or_trim, read_clip
from penstock.errors import DataError


@given(st.integers(0, 10**7), st.integers(1, 20_000))
def test_no_sample_of_noise_is_in_two_parts(samples: int, length: int) -> None:
    spans = [noise_span(samples, part, length) for part in PARTS]
    assert all(before.stop == after.start for before, after in pairwise(spans))
    assert spans[0].start == 0 and spans[-1].stop == samples // length * length
    assert all(span.start <= span.stop and span.start % length == 0 for span in spans)


def test_clips_are_padded_and_cut(tmp_path: Path) -> None:
    samples = np.random.default_rng(1).integers(-3000, 3000, 500).astype(np.int16)
    soundfile.write(tmp_path / "a.flac", samples, 16_000, subtype="PCM_16")
    assert read_clip(tmp_path / "a.flac").tolist() == samples.tolist()
    assert pad_or_trim(read_clip(tmp_path / "a.flac"), 502).tolist() == [*samples.tolist(), 0, 0]
    assert pad_or_trim(samples, 499).tolist() == samples[:499].tolist()
    with pytest.raises(DataError, match=r"b.flac \(No such file"):
        read_clip(tmp_path / "b.flac")
