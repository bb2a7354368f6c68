"""The manifest of a bundle: shapes, dtypes, gate thresholds, their guarantee, and checksums.

Every field is checked on load, because a device runs what it describes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from functools import cached_property
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from penstock.errors import BundleError, DataError
from penstock.runtime.bundle.guarantee import Guarantee
from penstock.runtime.bundle.json_reader import FieldError, JsonReader
from penstock.runtime.streaming.config import FRONTENDS, StreamConfig
from penstock.runtime.streaming.detector import DetectorConfig

FORMAT = 3  # the only manifest format that this version writes and reads

FILE = "manifest.json"
T = TypeVar("T")

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
        """Return the fields as JSON values."""
        return {**asdict(self), "stream_config": None if self.stream_config is None else self.stream_config.to_dict()}

    def to_bytes(self) -> bytes:
        """Return the content of the manifest's file."""
        return (json.dumps({"format": FORMAT, "id": self.id, **self.to_dict()}, indent=1) + "\n").encode()


def parse_manifest(content: bytes, path: Path) -> Manifest:
    """Parse the content of the manifest file at ``path``; raise a BundleError if it is damaged or was changed."""
    try:
        fields = JsonReader(json.loads(content), "the manifest")
        _check_format(fields, path)
        manifest = _manifest(fields)
        written_id = fields.string("id")
    except FieldError as error:
        raise BundleError(f"{path} is damaged: {error}. Get another copy.") from error
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: {type(error).__name__}: {error!s:.200}. Get another copy.") from error
    if written_id != manifest.id:
        raise BundleError(
            f"{path} was changed after export: its id does not match its content. Export the bundle again."
        )
    return manifest


def _check_format(fields: JsonReader, path: Path) -> None:
    written = fields.count("format")
    if written != FORMAT:
        fix = "Update Penstock" if written > FORMAT else "Export it again with this version: penstock export"
        raise BundleError(
            f"{path} has manifest format {written} (written by Penstock {fields.string('penstock')}), expected format "
            f"{FORMAT}. {fix}"
        )


def _manifest(fields: JsonReader) -> Manifest:
    labels = fields.items("labels")
    if not labels or not all(isinstance(label, str) for label in labels):
        raise FieldError(f"labels must be strings, at least one, got {labels!r:.40}")
    stages = tuple(_stage(JsonReader(stage, f"stage {i}")) for i, stage in enumerate(fields.items("stages"), start=1))
    manifest = Manifest(
        penstock=fields.string("penstock"),
        model=fields.string("model"),
        labels=tuple(labels),
        background=fields.count("background"),
        precision=fields.string("precision"),
        stages=stages,
        guarantee=None if fields.is_null("guarantee") else _numbers(Guarantee, fields.object("guarantee")),
        stream_config=None if fields.is_null("stream_config") else _stream_config(fields.object("stream_config")),
    )
    _check_consistency(manifest)
    return manifest


def _stage(fields: JsonReader) -> Stage:
    file = fields.string("file")
    if Path(file).name != file or file in ("", ".", "..", FILE):
        raise FieldError(f"file of {fields.where} must be a file name in the bundle, got {file!r:.40}")
    return Stage(
        file=file,
        sha256=fields.string("sha256"),
        file_bytes=fields.count("file_bytes"),
        macs=fields.count("macs"),
        input=_tensor_spec(fields.object("input")),
        output=_tensor_spec(fields.object("output")),
        gate=None if fields.is_null("gate") else _gate_rule(fields.object("gate")),
    )


def _tensor_spec(fields: JsonReader) -> TensorSpec:
    shape = fields.items("shape")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape):
        raise FieldError(f"shape of {fields.where} must be a list of positive integers, got {shape!r:.40}")
    dtype = fields.string("dtype")
    if dtype not in TYPES:
        raise FieldError(f"dtype of {fields.where} must be one of {', '.join(TYPES)}, got {dtype!r:.40}")
    if fields.is_null("scale"):
        return TensorSpec(tuple(shape), dtype)
    return TensorSpec(tuple(shape), dtype, fields.number("scale"), fields.integer("zero_point"))


def _gate_rule(fields: JsonReader) -> GateRule:
    positives = None if fields.is_null("positives") else tuple(fields.items("positives"))
    if positives is not None and not all(isinstance(label, int) for label in positives):
        raise FieldError(f"positives of {fields.where} must be class indices, got {list(positives)!r:.40}")
    return GateRule(fields.number("threshold"), positives)


def _stream_config(fields: JsonReader) -> StreamConfig:
    frontend = fields.object("frontend")
    kind = frontend.string("kind")
    if kind not in FRONTENDS:
        raise FieldError(f"kind of {frontend.where} must be one of {', '.join(FRONTENDS)}, got {kind!r:.40}")
    try:
        return StreamConfig(
            frontend=_numbers(FRONTENDS[kind], frontend),
            frames=fields.count("frames"),
            hop=fields.count("hop"),
            mean=tuple(fields.numbers("mean")),
            std=tuple(fields.numbers("std")),
            words=tuple(fields.counts("words")),
            detector=_numbers(DetectorConfig, fields.object("detector")),
        )
    except DataError as error:
        raise FieldError(f"stream_config: {error}") from error


def _numbers(kind: type[T], fields: JsonReader) -> T:
    """Read a dataclass of integers and floats."""
    values = {
        field.name: fields.count(field.name) if field.type == "int" else fields.number(field.name)
        for field in dataclass_fields(kind)  # type: ignore[arg-type]
    }
    return kind(**values)


def _check_consistency(manifest: Manifest) -> None:
    """Check that the parts of a manifest match."""
    stages, labels = manifest.stages, manifest.labels
    if not stages:
        raise FieldError("stages must not be empty")
    if len({stage.file for stage in stages}) < len(stages):
        raise FieldError("two stages have the same file")
    for number, (before, after) in enumerate(pairwise(stages), start=1):
        if before.output != after.input:
            raise FieldError(f"the input of stage {number + 1} differs from the output of stage {number}")
    if stages[-1].output.shape != (len(labels),):
        raise FieldError(
            f"the last stage must output {len(labels)} logits, one per label, got {stages[-1].output.shape}"
        )
    if stages[-1].gate is not None:
        raise FieldError("the last stage must not have a gate")
    if manifest.background >= len(labels):
        raise FieldError(f"background must be below {len(labels)}, the number of labels, got {manifest.background}")
    if manifest.stream_config is not None:
        _check_stream(manifest, manifest.stream_config)


def _check_stream(manifest: Manifest, stream: StreamConfig) -> None:
    first = manifest.stages[0].input
    if (first.shape, first.dtype) != (stream.shape, "float32"):
        raise FieldError(
            f"the input of stage 1 must be {stream.shape} float32, one window, got {first.shape} {first.dtype}"
        )
    if not set(stream.words) <= set(range(len(manifest.labels))) - {manifest.background}:
        raise FieldError(f"words must be labels other than background {manifest.background}, got {stream.words}")
