"""The manifest of a bundle: shapes, dtypes, gate thresholds, their guarantee, and checksums.

`manifest_parser` reads it from a file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from penstock.runtime.bundle.guarantee import Guarantee
from penstock.runtime.images.config import ImageConfig
from penstock.runtime.streaming.config import StreamConfig

FORMAT = 3  # the only manifest format that this version writes and reads

FILE = "manifest.json"

TYPES = ("float32", "float16", "float64", "int8", "uint8", "int16", "int32", "int64")  # of tensors between stages


@dataclass(frozen=True)
class TensorSpec:
    """The input or output of a stage; quantised values are real = scale · (stored − zero_point)."""

    shape: tuple[int, ...]  # of one sample, without the batch dimension
    dtype: str  # one of `TYPES`
    scale: float | None = None  # None if not quantised
    zero_point: int | None = None

    @cached_property
    def numpy_dtype(self) -> np.dtype:
        """The dtype as a numpy object; cached, because numpy parses strings on every call."""
        return np.dtype(self.dtype)

    @cached_property
    def payload_bytes(self) -> int:
        """Bytes of one sample."""
        return prod(self.shape) * self.numpy_dtype.itemsize


@dataclass(frozen=True)
class GateRule:
    """A gate's decision rule: a sample passes when the gate's logit is at least the threshold."""

    threshold: float  # a logit
    positives: tuple[int, ...] | None = None  # labels that should pass; None for all but background


@dataclass(frozen=True)
class Stage:
    """One stage: its graph, input, output and gate."""

    file: str  # name of the graph's file in the bundle
    sha256: str
    file_bytes: int
    macs: int  # multiply-accumulates per sample, of the exported stage and its gate
    input: TensorSpec  # the network's input, or the output of the previous stage
    output: TensorSpec  # packed values; class logits for the last stage
    gate: GateRule | None = None  # None if every sample passes


@dataclass(frozen=True)
class Manifest:
    """Everything in a bundle except the graphs."""

    penstock: str  # version that wrote the bundle
    model: str  # class name of the network
    labels: tuple[str, ...]  # name of each class
    background: int  # index of the class that stopped samples get
    precision: str  # arithmetic of the stages: float32 or int8
    stages: tuple[Stage, ...]  # in order of execution
    guarantee: Guarantee | None = None  # None if the thresholds were set by hand
    stream_config: StreamConfig | None = None  # None if the bundle takes single samples only
    image_config: ImageConfig | None = None  # None if it takes network inputs, not pictures

    @property
    def id(self) -> str:
        """Checksum of the manifest, and through the graphs' checksums of the whole bundle."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    @property
    def positives(self) -> frozenset[int]:
        """Labels that every gate should let pass."""
        found = set(range(len(self.labels))) - {self.background}
        for stage in self.stages:
            if stage.gate is not None and stage.gate.positives is not None:
                found &= set(stage.gate.positives)
        return frozenset(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; without image_config if there is none, as in older bundles."""
        values = {**asdict(self), "stream_config": None if self.stream_config is None else self.stream_config.to_dict()}
        del values["image_config"]
        return values if self.image_config is None else {**values, "image_config": self.image_config.to_dict()}

    def to_bytes(self) -> bytes:
        """Return the content of the manifest's file."""
        return (json.dumps({"format": FORMAT, "id": self.id, **self.to_dict()}, indent=1) + "\n").encode()
