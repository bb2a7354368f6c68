"""Parse a manifest: every field is checked, because a device runs what it describes."""

from __future__ import annotations

import json
from dataclasses import fields as dataclass_fields
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from penstock.errors import BundleError, DataError
from penstock.runtime.bundle.guarantee import Guarantee
from penstock.runtime.bundle.json_reader import FieldError, JsonReader
from penstock.runtime.bundle.manifest import FILE, FORMAT, TYPES, GateRule, Manifest, Stage, TensorSpec
from penstock.runtime.images.config import ImageConfig
from penstock.runtime.streaming.config import FRONTENDS, StreamConfig
from penstock.runtime.streaming.detector import DetectorConfig

T = TypeVar("T")


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
        image_config=_image_config(fields.object("image_config")) if fields.has("image_config") else None,
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


def _image_config(fields: JsonReader) -> ImageConfig:
    try:
        return ImageConfig(
            height=fields.count("height"),
            width=fields.count("width"),
            fit=fields.string("fit"),  # type: ignore[arg-type]
            share=fields.number("share"),
            mean=tuple(fields.numbers("mean")),
            std=tuple(fields.numbers("std")),
        )
    except DataError as error:
        raise FieldError(f"image_config: {error}") from error


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
    first, image = stages[0].input, manifest.image_config
    if image is not None and (first.shape, first.dtype) != (image.shape, "float32"):
        raise FieldError(
            f"the input of stage 1 must be {image.shape} float32, one picture, got {first.shape} {first.dtype}"
        )


def _check_stream(manifest: Manifest, stream: StreamConfig) -> None:
    first = manifest.stages[0].input
    if (first.shape, first.dtype) != (stream.shape, "float32"):
        raise FieldError(
            f"the input of stage 1 must be {stream.shape} float32, one window, got {first.shape} {first.dtype}"
        )
    if not set(stream.words) <= set(range(len(manifest.labels))) - {manifest.background}:
        raise FieldError(f"words must be labels other than background {manifest.background}, got {stream.words}")
