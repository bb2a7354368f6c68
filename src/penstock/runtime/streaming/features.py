"""Log-mel energies and MFCC with numpy alone, the same on a device as in training (paper, section 4).

A frame is a window of samples; the next one starts a hop later. Frame t sees the samples from t * hop to
t * hop + window and nothing else: no centring, no padding, no statistics of the clip. So a stream can be cut
anywhere at a hop, and its frames are those of one long recording.

    samples -> frames x Hann -> |FFT|^2 -> mel filters -> log (LogMel) -> DCT -> coefficients (Mfcc)

- The Hann window is the periodic one. The FFT has the next power of two, with zeros after the window, as on
  microcontrollers.
- The filters are triangles on Slaney's mel scale (linear to 1 kHz, logarithmic above), each of area 1 over Hz.
- Energies are floored at `FLOOR` before the natural logarithm.
- The DCT is the orthonormal DCT-II over the mel bands; its first coefficients are kept.

30 ms every 20 ms and 40 bands are usual in keyword spotting; 1 s gives 49 frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError, ShapeError

FLOOR = 1e-8  # minimum mel energy, about that of 1-LSB white noise in 16-bit audio. Digital silence is log(FLOOR)
FULL_SCALE = 32768  # divisor that scales int16 to between -1 and 1
LOUDEST = 2.0  # samples may overshoot 1 a little, for example after mixing; beyond this the scale is wrong
_BLOCK = 1024  # frames at a time: fits the cache, twice as fast as all at once

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LogMel:
    """Compute the logarithms of mel energies.

    >>> LogMel().frames(16_000), LogMel().samples(49)
    (49, 15840)
    """

    rate_hz: int = 16_000  # samples per second
    window_ms: float = 30  # length of a frame; a whole number of samples
    hop_ms: float = 20  # time from one frame to the next; a whole number of samples
    mels: int = 40  # number of mel bands
    low_hz: float = 20  # lower edge of the first band
    high_hz: float = 7600  # upper edge of the last band

    def __post_init__(self) -> None:
        for name in ("window_ms", "hop_ms"):
            samples = getattr(self, name) * self.rate_hz / 1000
            if samples < 1 or samples != round(samples):
                raise DataError(
                    f"{name} must be a whole number of samples, at least 1, got {getattr(self, name)} ms = {samples:g} "
                    f"samples at {self.rate_hz} Hz"
                )
        if not 0 <= self.low_hz < self.high_hz <= self.rate_hz / 2:
            raise DataError(
                f"expected 0 <= low_hz < high_hz <= {self.rate_hz / 2:g} at {self.rate_hz} Hz, got {self.low_hz:g} and "
                f"{self.high_hz:g}"
            )
        if self.mels < 1 or not _filters(self).any(axis=0).all():
            raise DataError(
                f"{self.mels} mel bands from {self.low_hz:g} to {self.high_hz:g} Hz are narrower than an FFT bin of "
                f"{self.rate_hz / self.fft:g} Hz. Use fewer bands or a longer window."
            )

    @cached_property
    def window(self) -> int:
        """Samples per frame."""
        return round(self.window_ms * self.rate_hz / 1000)

    @cached_property
    def hop(self) -> int:
        """Samples from one frame to the next."""
        return round(self.hop_ms * self.rate_hz / 1000)

    @cached_property
    def fft(self) -> int:
        """FFT size: the next power of two."""
        return 1 << (self.window - 1).bit_length()

    @property
    def values(self) -> int:
        """Values per frame."""
        return self.mels

    def frames(self, samples: int) -> int:
        """Return the number of whole frames in ``samples`` samples."""
        return max(0, (samples - self.window) // self.hop + 1)

    def samples(self, frames: int) -> int:
        """Return the number of samples that ``frames`` frames span."""
        return self.window + (frames - 1) * self.hop


@dataclass(frozen=True)
class Mfcc(LogMel):
    """Compute mel-frequency cepstral coefficients."""

    coefficients: int = 40  # how many of the DCT's outputs to keep, at most ``mels``

    def __post_init__(self) -> None:
        if not 1 <= self.coefficients <= self.mels:
            raise DataError(f"coefficients must be 1 to {self.mels}, the number of mel bands, got {self.coefficients}")
        super().__post_init__()

    @property
    def values(self) -> int:
        return self.coefficients


def features(samples: Array, spec: LogMel, *, rate_hz: int | None = None) -> Floats:
    """Compute the features of one clip or a batch of clips.

    Args:
        samples: (..., samples), int16, or float32 between -1 and 1.
        spec: the features to compute.
        rate_hz: sample rate of ``samples``; checked against ``spec`` if given.

    Returns:
        (..., values, frames), float32.

    Raises:
        DataError: when the sample rate differs.
        ShapeError: when dtype or scale are wrong, samples are not finite, or there are too few for a frame.
    """
    if rate_hz not in (None, spec.rate_hz):
        raise DataError(f"expected samples at {spec.rate_hz} Hz, got {rate_hz} Hz. Resample them first.")
    _check(samples, spec)
    count = spec.frames(samples.shape[-1])
    rows = np.lib.stride_tricks.sliding_window_view(samples.reshape(-1, samples.shape[-1]), spec.window, axis=-1)
    rows = rows[:, :: spec.hop]  # (clips, frames, window), a view
    out = np.empty((len(rows), spec.values, count), np.float32)
    clips = max(1, _BLOCK // count)
    for start in range(0, len(rows), clips):
        out[start : start + clips] = frame_features(rows[start : start + clips], spec).transpose(0, 2, 1)
    return out.reshape(*samples.shape[:-1], spec.values, count)


def frame_features(frames: Array, spec: LogMel) -> Floats:
    """Compute the features of frames, int16 or float32: (..., window) -> (..., values)."""
    spectrum = np.fft.rfft(frames * _taper(spec.window, frames.dtype == np.int16), spec.fft)  # (..., fft / 2 + 1)
    power = (spectrum.real**2 + spectrum.imag**2).astype(np.float32, copy=False)
    energies: Floats = np.log(np.maximum(power @ _filters(spec), np.float32(FLOOR)))
    return energies @ _dct(spec.mels, spec.coefficients) if isinstance(spec, Mfcc) else energies


def _check(samples: Array, spec: LogMel) -> None:
    if samples.dtype not in (np.int16, np.float32):
        raise ShapeError(f"expected samples of int16, or float32 between -1 and 1, got {samples.dtype}")
    if samples.ndim == 0 or samples.shape[-1] < spec.window:
        raise ShapeError(
            f"expected samples (..., {spec.window} or more), one frame of {spec.window_ms:g} ms at {spec.rate_hz} Hz, "
            f"got {samples.shape}"
        )
    if samples.dtype == np.float32 and samples.size:
        peak = float(np.abs(samples).max())
        if not peak <= LOUDEST:  # false for NaN as well
            raise ShapeError(
                f"float32 samples must be finite and between -1 and 1, got up to {peak:g}. Divide int16 values by "
                f"{FULL_SCALE}."
            )


@lru_cache(maxsize=16)
def _taper(window: int, is_int16: bool) -> Floats:
    """Return the Hann window; for int16 it includes the scaling to between -1 and 1."""
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)).astype(np.float32)
    return hann / np.float32(FULL_SCALE if is_int16 else 1)


@lru_cache(maxsize=16)
def _filters(spec: LogMel) -> Floats:
    """Return the mel filters, (fft / 2 + 1, mels)."""
    lines = np.fft.rfftfreq(spec.fft, 1 / spec.rate_hz)[:, None]
    edges = _hz(np.linspace(_mel(spec.low_hz), _mel(spec.high_hz), spec.mels + 2))
    left, peak, right = edges[:-2], edges[1:-1], edges[2:]
    rise, fall = (lines - left) / (peak - left), (right - lines) / (right - peak)
    return (np.maximum(0, np.minimum(rise, fall)) * 2 / (right - left)).astype(np.float32)


@lru_cache(maxsize=16)
def _dct(mels: int, coefficients: int) -> Floats:
    """Return the orthonormal DCT-II as a matrix, (mels, coefficients)."""
    angles = np.pi / mels * (np.arange(mels)[:, None] + 0.5) * np.arange(coefficients)
    matrix = np.sqrt(2 / mels) * np.cos(angles)
    matrix[:, 0] = np.sqrt(1 / mels)
    return matrix.astype(np.float32)


_LINEAR_HZ = 200 / 3  # Hz a mel below the knee of Slaney's scale
_KNEE_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27  # above the knee 27 mels are a factor of 6.4


def _mel(hz: float) -> float:
    if hz < _KNEE_HZ:
        return hz / _LINEAR_HZ
    return float(_KNEE_HZ / _LINEAR_HZ + np.log(hz / _KNEE_HZ) / _LOG_STEP)


def _hz(mel: Array) -> Array:
    knee = _KNEE_HZ / _LINEAR_HZ
    return np.where(mel < knee, mel * _LINEAR_HZ, _KNEE_HZ * np.exp((np.maximum(mel, knee) - knee) * _LOG_STEP))
