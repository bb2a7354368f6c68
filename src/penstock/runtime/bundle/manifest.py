"""The manifest of a bundle: shapes, types, thresholds, the promise that they keep, and checksums.

It is read field by field, each by its type: what it says is what a device is about to run.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import BundleError, DataError
from penstock.runtime.bundle.json_reader import FieldError, JsonReader
from penstock.runtime.streaming.config import FRONTENDS, StreamConfig
from penstock.runtime.streaming.detector import DetectorConfig
from penstock.runtime.streaming.frontend import FrontendConfig

FORMAT = 3
"""The one format that this version writes and reads."""

FILE = "manifest.json"

TYPES = ("float32", "float16", "float64", "int8", "uint8", "int16", "int32", "int64")
"""What a tensor between stages can consist of."""


@dataclass(frozen=True)
class Values:
    """A tensor that goes into a stage or comes out of it; its shapes are those of one sample, without the batch.

    Attributes:
        shape: of one sample.
        dtype: of `TYPES`.
        scale, zero_point: where numbers stand for others: value = scale · (number − zero_point).
    """

    shape: tuple[int, ...]
    dtype: str
    scale: float | None = None
    zero_point: int | None = None

    @cached_property
    def numpy_dtype(self) -> np.dtype:
        """The type, as numpy's functions take it soonest."""
        return np.dtype(self.dtype)

    @cached_property
    def payload_bytes(self) -> int:
        """The bytes of one sample."""
        return prod(self.shape) * self.numpy_dtype.itemsize


@dataclass(frozen=True)
class GateRule:
    """When a gate lets a sample pass: when its logit reaches the threshold.

    Attributes:
        threshold: as a logit.
        positives: the labels that it is meant to let pass; None for all but background.
    """

    threshold: float
    positives: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Stage:
    """One graph, and what it takes and gives.

    Attributes:
        file: its name in the bundle.
        sha256, file_bytes: of the file.
        macs: multiply-accumulates a sample, of what is left of the stage and of its gate.
        takes: the input, or what the stage before gives.
        gives: the packed values; of the last stage the class logits.
        gate: the rule of its gate; None where everything passes.
    """

    file: str
    sha256: str
    file_bytes: int
    macs: int
    takes: Values
    gives: Values
    gate: GateRule | None = None


@dataclass(frozen=True)
class Guarantee:
    """What thresholds promise of the network as it is in the bundle (`Guarantee`).

    Attributes:
        positives: how many it was tested on.
        lost: how many of them were lost.
        bound: with ``confidence``, no larger share of the positives is lost.
        max_positive_loss: what was allowed.
    """

    positives: int
    lost: int
    bound: float
    max_positive_loss: float
    confidence: float


@dataclass(frozen=True)
class Manifest:
    """All of a bundle but its graphs.

    Attributes:
        penstock: the version that wrote it.
        model: the name of the network's class.
        labels: the name of each class.
        background: the class of what is stopped.
        precision: in which the stages compute: float32 or int8.
        stages: in their order.
        promise: that the thresholds keep; None where they were set by hand.
        hearing: how it listens to a stream; None where samples are given one by one.
    """

    penstock: str
    model: str
    labels: tuple[str, ...]
    background: int
    precision: str
    stages: tuple[Stage, ...]
    guarantee: Guarantee | None = None
    stream_config: StreamConfig | None = None

    @property
    def id(self) -> str:
        """A checksum of all that the manifest says, the checksums of the graphs among it."""
        return hashlib.sha256(json.dumps(self.to_plain(), sort_keys=True).encode()).hexdigest()

    @property
    def positives(self) -> frozenset[int]:
        """The labels that are of interest to each gate: what must not be lost."""
        found = set(range(len(self.labels))) - {self.background}
        for stage in self.stages:
            if stage.gate is not None and stage.gate.positives is not None:
                found &= set(stage.gate.positives)
        return frozenset(found)

    def to_plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {**asdict(self), "stream_config": None if self.stream_config is None else self.stream_config.to_plain()}

    def to_bytes(self) -> bytes:
        """Return the manifest as it stands in its file."""
        return (json.dumps({"format": FORMAT, "id": self.id, **self.to_plain()}, indent=1) + "\n").encode()


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """Read a manifest out of its file's content.

    Args:
        path: where it comes from, for errors.

    Raises:
        BundleError: when it is damaged, changed, or of a newer format.
    """
    try:
        plain = json.loads(content)
        fields = JsonReader(plain, "the manifest")
        written_in = fields.count("format")
        if written_in != FORMAT:
            advice = "Update Penstock." if written_in > FORMAT else "Export it again with `penstock export`."
            raise BundleError(
                f"{path} was written by Penstock {fields.text('penstock')} in format {written_in}; expected format "
                f"{FORMAT}. {advice}"
            )
        manifest = _manifest(fields)
        written = fields.text("id")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: {error!r:.200}. Take another copy.") from error
    except FieldError as wrong:
        raise BundleError(f"{path} is damaged: {wrong}. Take another copy.") from wrong
    if written != manifest.id:
        raise BundleError(
            f"{path} was changed after it was written: its id is not that of its content. Export it anew."
        )
    return manifest


def _manifest(plain: JsonReader) -> Manifest:
    labels = plain.items("labels")
    if not labels or not all(isinstance(label, str) for label in labels):
        raise FieldError("labels are no texts")
    stages = tuple(_stage(JsonReader(stage, f"stage {i}")) for i, stage in enumerate(plain.items("stages"), start=1))
    made = Manifest(
        penstock=plain.text("penstock"),
        model=plain.text("model"),
        labels=tuple(labels),
        background=plain.count("background"),
        precision=plain.text("precision"),
        stages=stages,
        guarantee=None if plain.missing("guarantee") else _guarantee(plain.fields("guarantee")),
        stream_config=None if plain.missing("stream_config") else _stream_config(plain.fields("stream_config")),
    )
    _check(made)
    return made


def _stage(plain: JsonReader) -> Stage:
    file = plain.text("file")
    if Path(file).name != file or file in ("", ".", "..", FILE):
        raise FieldError(f"{file!r:.40} is no name of a file in the bundle")
    return Stage(
        file=file,
        sha256=plain.text("sha256"),
        file_bytes=plain.count("file_bytes"),
        macs=plain.count("macs"),
        takes=_values(plain.fields("takes")),
        gives=_values(plain.fields("gives")),
        gate=None if plain.missing("gate") else _rule(plain.fields("gate")),
    )


def _values(plain: JsonReader) -> Values:
    shape = plain.items("shape")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape):
        raise FieldError(f"shape of {plain.where} is {shape!r:.40}")
    dtype = plain.text("dtype")
    if dtype not in TYPES:
        raise FieldError(f"dtype of {plain.where} is {dtype!r:.40}, none of {', '.join(TYPES)}")
    if plain.missing("scale"):
        return Values(tuple(shape), dtype)
    zero_point = plain.whole("zero_point")
    return Values(tuple(shape), dtype, plain.number("scale"), zero_point)


def _rule(plain: JsonReader) -> GateRule:
    positives = None if plain.missing("positives") else tuple(plain.items("positives"))
    if positives is not None and not all(isinstance(label, int) for label in positives):
        raise FieldError(f"positives of {plain.where} are no labels")
    return GateRule(plain.number("threshold"), positives)


def _guarantee(plain: JsonReader) -> Guarantee:
    return Guarantee(
        positives=plain.count("positives"),
        lost=plain.count("lost"),
        bound=plain.number("bound"),
        max_positive_loss=plain.number("max_positive_loss"),
        confidence=plain.number("confidence"),
    )


def _stream_config(plain: JsonReader) -> StreamConfig:
    detector = plain.fields("detector")
    try:
        return StreamConfig(
            frontend=_frontend(plain.fields("frontend")),
            frames=plain.count("frames"),
            hop=plain.count("hop"),
            mean=tuple(plain.numbers("mean")),
            std=tuple(plain.numbers("std")),
            words=tuple(plain.counts("words")),
            detector=DetectorConfig(
                threshold=detector.number("threshold"),
                off_threshold=detector.number("off_threshold"),
                smoothing=detector.count("smoothing"),
                refractory_s=detector.number("refractory_s"),
            ),
        )
    except DataError as error:
        raise FieldError(f"stream_config: {error}") from error


def _frontend(plain: JsonReader) -> FrontendConfig:
    kind = plain.text("kind")
    if kind not in FRONTENDS:
        raise FieldError(f"kind of {plain.where} is {kind!r:.40}, none of {', '.join(FRONTENDS)}")
    values: dict[str, Any] = {
        field.name: plain.count(field.name) if field.type == "int" else plain.number(field.name)
        for field in fields(FRONTENDS[kind])
    }
    return FRONTENDS[kind](**values)


def _check(manifest: Manifest) -> None:
    """See that the parts fit each other."""
    if (stream_config := manifest.stream_config) is not None and manifest.stages:
        takes = manifest.stages[0].takes
        if (takes.shape, takes.dtype) != (stream_config.shape, "float32"):
            raise FieldError(
                f"windows are {stream_config.shape}, float32, and stage 1 takes {takes.shape}, {takes.dtype}"
            )
        if not set(stream_config.words) <= set(range(len(manifest.labels))) - {manifest.background}:
            raise FieldError(f"words are {stream_config.words}, and the labels of interest are others")
    stages = manifest.stages
    if not stages:
        raise FieldError("there are no stages")
    if len({stage.file for stage in stages}) < len(stages):
        raise FieldError("two stages have one file")
    for number, (before, after) in enumerate(pairwise(stages), start=1):
        if before.gives != after.takes:
            raise FieldError(f"stage {number + 1} does not take what stage {number} gives")
    if stages[-1].gives.shape != (len(manifest.labels),):
        raise FieldError(f"the last stage gives {stages[-1].gives.shape}, and there are {len(manifest.labels)} labels")
    if stages[-1].gate is not None:
        raise FieldError("the last stage has a gate")
    if manifest.background >= len(manifest.labels):
        raise FieldError(f"background is {manifest.background}, and there are {len(manifest.labels)} labels")
