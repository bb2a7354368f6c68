"""Hearing: how a bundle listens to a stream. It stands in the manifest, so that device and training do the same."""

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

FRONTENDS: dict[str, type[LogMel] | type[Sensor]] = {"log-mel": LogMel, "mfcc": Mfcc, "sensor": Sensor}
"""By the name that a manifest has."""


@dataclass(frozen=True)
class StreamConfig:
    """From samples to what the first stage takes, and from what the last stage gives to events.

    Attributes:
        sense: what a frame is made of.
        frames: of a window.
        hop: frames from one window to the next.
        mean, std: of each value of a frame; frames are standardised with them.
        words: the labels that are listened for.
        decision: when a word was heard.
    """

    frontend: FrontendConfig
    frames: int
    hop: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    words: tuple[int, ...]
    detector: DetectorConfig = DetectorConfig()

    def __post_init__(self) -> None:
        if self.frames < 1 or self.hop < 1:
            raise DataError(f"windows of {self.frames} frames every {self.hop} came: both are 1 or more.")
        if not len(self.mean) == len(self.std) == self.frontend.values:
            raise DataError(
                f"{len(self.mean)} means and {len(self.std)} deviations came, and a frame has {self.frontend.values} "
                "values: one of each a value."
            )
        if not all(0 < value < np.inf for value in self.std) or not np.isfinite(self.mean).all():
            raise DataError("a mean that is no number, or a deviation that is not above 0, came: frames need both.")
        if not self.words or len(set(self.words)) < len(self.words) or min(self.words) < 0:
            raise DataError(f"the words {self.words} came: name the label of at least one, each once.")

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of a window, as the first stage takes it: (values, frames)."""
        return (self.frontend.values, self.frames)

    @property
    def window_s(self) -> float:
        """The length of a window."""
        return self.frontend.samples(self.frames) / self.frontend.rate_hz

    @property
    def hop_s(self) -> float:
        """From one window to the next."""
        return self.hop * self.frontend.hop / self.frontend.rate_hz

    def standardised(self, frames: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return frames (..., values) as the network takes them."""
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
            "frontend": {"kind": name, **_plain(self.frontend)},
            "detector": _plain(self.detector),
        }


def _plain(of: FrontendConfig | DetectorConfig) -> dict[str, float]:
    """Return fields as a manifest is read: 30 where a float is meant is 30.0, so that its checksum is the same."""
    return {f.name: float(getattr(of, f.name)) if f.type == "float" else getattr(of, f.name) for f in fields(of)}
