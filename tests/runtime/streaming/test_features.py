"""MFCC: against librosa, against a loop that does what the docstring says, and the laws of a stream."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DataError, ShapeError
from penstock.runtime.streaming.features import FLOOR, Mfcc, features

SPECS = [
    Mfcc(),
    Mfcc(coefficients=10, window_ms=40),
    Mfcc(hop_ms=10, mels=32, coefficients=13, low_hz=60, high_hz=4000),
    Mfcc(rate_hz=8000, window_ms=32, hop_ms=16, mels=24, coefficients=24, low_hz=0, high_hz=4000),
]


def sound(samples: int, seed: int = 0) -> np.ndarray:
    """Tones that swell and fade over a little noise, as int16."""
    random = np.random.default_rng(seed)
    time = np.arange(samples) / 16_000
    tones = sum(np.sin(2 * np.pi * hz * time) for hz in random.uniform(100, 5000, 4)) * np.sin(3 * time) ** 2
    return ((0.2 * tones + 0.01 * random.normal(size=samples)) * 32767 * 0.8).astype(np.int16)


@pytest.mark.slow  # librosa takes half a minute to import
@pytest.mark.parametrize("spec", SPECS)
def test_librosa_computes_the_same(spec: Mfcc) -> None:
    librosa = pytest.importorskip("librosa", reason="needs librosa for a second opinion")
    samples = sound(spec.rate_hz).astype(np.float32) / 32768
    lead = (spec.fft - spec.window) // 2  # librosa centres the window in the FFT; a power spectrum does not see it
    energies = librosa.feature.melspectrogram(
        y=np.pad(samples, (lead, spec.fft - spec.window - lead)),
        sr=spec.rate_hz,
        n_fft=spec.fft,
        win_length=spec.window,
        hop_length=spec.hop,
        center=False,
        power=2,
        n_mels=spec.mels,
        fmin=spec.low_hz,
        fmax=spec.high_hz,
        htk=False,
        norm="slaney",
    )
    theirs = librosa.feature.mfcc(S=np.log(np.maximum(energies, FLOOR)), n_mfcc=spec.coefficients, norm="ortho")
    ours = features(samples, spec)
    assert ours.shape == theirs.shape == (spec.coefficients, spec.frames(spec.rate_hz))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-3)  # of values up to 50


def dumb(samples: np.ndarray, spec: Mfcc) -> np.ndarray:
    """Loop over frames, lines, bands and coefficients with Python's floats and a naive Fourier transform."""

    def mel(hz: float) -> float:
        return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)

    bottom, top = mel(spec.low_hz), mel(spec.high_hz)
    step = (top - bottom) / (spec.mels + 1)

    def hz(place: float) -> float:
        at = bottom + step * place
        return 200 * at / 3 if at < 15 else 1000 * 6.4 ** ((at - 15) / 27)

    columns = []
    for start in range(0, len(samples) - spec.window + 1, spec.hop):
        n = np.arange(spec.window)
        frame = samples[start + n] / 32768 * np.sin(np.pi * n / spec.window) ** 2
        lines = [abs(np.sum(frame * np.exp(-2j * np.pi * k * n / spec.fft))) ** 2 for k in range(spec.fft // 2 + 1)]
        logs = []
        for band in range(spec.mels):
            left, peak, right = hz(band), hz(band + 1), hz(band + 2)
            energy = 0.0
            for k, power in enumerate(lines):
                at = k * spec.rate_hz / spec.fft
                if left < at <= peak:
                    energy += power * (at - left) / (peak - left) * 2 / (right - left)
                elif peak < at < right:
                    energy += power * (right - at) / (right - peak) * 2 / (right - left)
            logs.append(math.log(max(energy, FLOOR)))
        columns.append(
            [
                math.sqrt((1 if c == 0 else 2) / spec.mels)
                * sum(v * math.cos(math.pi * c * (2 * m + 1) / (2 * spec.mels)) for m, v in enumerate(logs))
                for c in range(spec.coefficients)
            ]
        )
    return np.array(columns).T


@pytest.mark.parametrize("spec", SPECS)
def test_a_dumb_loop_computes_the_same(spec: Mfcc) -> None:
    samples = sound(spec.samples(5) + 3, seed=1)
    np.testing.assert_allclose(features(samples, spec), dumb(samples, spec), rtol=1e-4, atol=1e-3)


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 319), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_any_chunking_of_a_stream_gives_the_frames_of_one_batch(hops: list[int], extra: int, seed: int) -> None:
    spec = Mfcc()
    stream = sound(spec.samples(sum(hops)) + extra, seed)
    parts, first = [], 0
    for count in hops:
        parts.append(features(stream[first * spec.hop : first * spec.hop + spec.samples(count)], spec))
        first += count
    np.testing.assert_allclose(np.concatenate(parts, axis=1), features(stream, spec), rtol=1e-5, atol=1e-4)


def test_int16_is_float_over_32768() -> None:
    samples = sound(16_000)
    assert np.array_equal(features(samples, Mfcc()), features(samples.astype(np.float32) / 32768, Mfcc()))


def test_many_clips_are_each_clip_alone() -> None:
    clips = np.stack([sound(16_000, seed) for seed in range(200)]).reshape(2, 100, 16_000)  # more than one block
    together = features(clips, Mfcc())
    assert together.shape == (2, 100, 40, 49) and together.dtype == np.float32
    for i, j in [(0, 0), (0, 99), (1, 0), (1, 57)]:
        np.testing.assert_allclose(together[i, j], features(clips[i, j], Mfcc()), rtol=1e-5, atol=1e-4)


def test_no_clips_give_no_features() -> None:
    assert features(np.zeros((0, 16_000), np.float32), Mfcc()).shape == (0, 40, 49)


def test_silence_is_the_floor_and_nothing_else() -> None:
    silence = features(np.zeros(16_000, np.int16), Mfcc())
    assert silence[0] == pytest.approx(math.sqrt(40) * math.log(FLOOR), rel=1e-6)
    assert np.abs(silence[1:]).max() < 1e-3


def test_samples_stay_as_they_are() -> None:
    samples = sound(16_000)
    samples.flags.writeable = False
    before = samples.copy()
    features(samples, Mfcc())
    assert np.array_equal(samples, before)


@pytest.mark.parametrize("spec", SPECS)
def test_counts_of_frames_and_samples_agree(spec: Mfcc) -> None:
    for frames in (1, 2, 49):
        assert spec.frames(spec.samples(frames)) == frames == spec.frames(spec.samples(frames + 1) - 1)
    assert spec.frames(spec.window - 1) == 0


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        (np.zeros(16_000), "float64"),
        (np.zeros(479, np.int16), r"480.*\(479,\)"),
        (np.float32(0.5), r"\(\)"),
        (np.full(16_000, np.nan, np.float32), "finite.*nan"),
        (np.full(16_000, np.inf, np.float32), "finite.*inf"),
        (np.full(16_000, 900, np.float32), "900.*32768"),
    ],
    ids=["dtype", "short", "scalar", "nan", "inf", "scale"],
)
def test_samples_that_do_not_fit_are_refused(samples: np.ndarray, text: str) -> None:
    with pytest.raises(ShapeError, match=text):
        features(samples, Mfcc())


def test_another_rate_is_refused() -> None:
    with pytest.raises(DataError, match=r"16000 Hz.*44100 Hz"):
        features(sound(16_000), Mfcc(), rate_hz=44_100)
    assert features(sound(16_000), Mfcc(), rate_hz=16_000).shape == (40, 49)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rate_hz": 11_025}, r"window_ms.*330\.75.*11025 Hz"),
        ({"hop_ms": 0}, r"hop_ms.* 0 "),
        ({"coefficients": 41}, "coefficients.*40.*41"),
        ({"coefficients": 0}, r"coefficients.* 0$"),
        ({"high_hz": 9000}, "high_hz.*8000.*9000"),
        ({"low_hz": 5000, "high_hz": 400}, r"low_hz < high_hz.*5000 and 400"),
        ({"mels": 200}, r"200 mel bands.*31\.25 Hz"),
    ],
    ids=["rate", "hop", "many", "none", "nyquist", "order", "empty bands"],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int], text: str) -> None:
    with pytest.raises(DataError, match=text):
        Mfcc(**settings)


def test_a_device_needs_numpy_alone() -> None:
    code = "import penstock.runtime.streaming.features, sys\n"
    code += "print(sorted({'torch', 'scipy', 'librosa', 'soundfile'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
