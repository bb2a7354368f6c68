"""How a bundle processes a stream. Part of the manifest, so that device and training do the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import DataError
from penstock.runtime.streaming.detector import DetectorConfig
from penstock.runtime.streaming.features import LogMel, Mfcc
from penstock.runtime.streaming.frontend import FrontendConfig, Sensor

# Front ends by their name in a manifest.
FRONTENDS: dict[str, type[LogMel] | type[Sensor]] = {"log-mel": LogMel, "mfcc": Mfcc, "sensor": Sensor}


@dataclass(frozen=True)
class StreamConfig:
    """From samples to the input of the first stage, and from logits to events."""

    frontend: FrontendConfig
    frames: int  # per window
    hop: int  # frames from one window to the next
    mean: tuple[float, ...]  # of each value of a frame, to standardise it
    std: tuple[float, ...]
    words: tuple[int, ...]  # class indices to detect
    detector: DetectorConfig = DetectorConfig()

    def __post_init__(self) -> None:
        if self.frames < 1 or self.hop < 1:
            raise DataError(f"frames and hop must be at least 1, got {self.frames} and {self.hop}")
        if not len(self.mean) == len(self.std) == self.frontend.values:
            raise DataError(
                f"mean and std must have {self.frontend.values} values, one per value of a frame, got {len(self.mean)} "
                f"and {len(self.std)}"
            )
        if not all(0 < value < np.inf for value in self.std) or not np.isfinite(self.mean).all():
            raise DataError("mean must be finite, and std finite and above 0")
        if not self.words or len(set(self.words)) < len(self.words) or min(self.words) < 0:
            raise DataError(f"words must be distinct class indices, at least one, got {self.words}")

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a window, the input of the first stage: (values, frames)."""
        return (self.frontend.values, self.frames)

    @property
    def window_s(self) -> float:
        """Length of a window in seconds."""
        return self.frontend.samples(self.frames) / self.frontend.rate_hz

    def standardised(self, frames: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return standardised frames: (..., values) -> (..., values)."""
        mean, std = self._moments
        return (frames - mean) / std  # type: ignore[no-any-return]

    @cached_property
    def _moments(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        return np.array(self.mean, np.float32), np.array(self.std, np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        name = next(name for name, kind in FRONTENDS.items() if type(self.frontend) is kind)
        return {
            **asdict(self),
            "mean": [float(value) for value in self.mean],
            "std": [float(value) for value in self.std],
            "frontend": {"kind": name, **_to_dict(self.frontend)},
            "detector": _to_dict(self.detector),
        }


def _to_dict(config: FrontendConfig | DetectorConfig) -> dict[str, float]:
    """Return the fields; integers in float fields become floats, so that the manifest's id survives a round trip."""
    return {
        f.name: float(getattr(config, f.name)) if f.type == "float" else getattr(config, f.name) for f in fields(config)
    }
