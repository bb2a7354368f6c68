"""What is deployed: one static graph a stage, and a manifest that says what flows between them.

    bundle/
      manifest.json    everything but the graphs: shapes, types, thresholds, the promise they keep, checksums
      stage-1.onnx     the first stage: the input -> packed, gate
      stage-2.onnx     the next one: packed -> packed, gate; the last one: packed -> logits

A stage gives ``packed``, the values that its mask keeps, in the type in which they cross the link, and ``gate``, one
logit a sample. A bundle is read whole, checked, and only then used: what was changed after it was written is refused.
It holds graphs and numbers, and nothing that could run as code.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import BundleError
from penstock.files import write_atomically

FORMAT = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 4 << 20
"""Bytes; more is not read."""

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

    @property
    def payload_bytes(self) -> int:
        """The bytes of one sample."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True)
class Rule:
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
    gate: Rule | None = None


@dataclass(frozen=True)
class Promise:
    """What thresholds promise of the network as it is in the bundle (`Certificate`).

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
    """

    penstock: str
    model: str
    labels: tuple[str, ...]
    background: int
    precision: str
    stages: tuple[Stage, ...]
    promise: Promise | None = None

    @property
    def id(self) -> str:
        """A checksum of all that the manifest says, the checksums of the graphs among it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the manifest as it stands in its file."""
        return (json.dumps({"format": FORMAT, "id": self.id, **asdict(self)}, indent=1) + "\n").encode()


@dataclass(frozen=True)
class Bundle:
    """A manifest, and the graphs that it lists, as they were checked.

    Attributes:
        graphs: the content of each stage's file.
    """

    manifest: Manifest
    graphs: tuple[bytes, ...]

    def write(self, folder: Path) -> None:
        """Write it; the manifest last, so that a bundle that was not written to its end is none."""
        (folder / MANIFEST).unlink(missing_ok=True)
        for stage, graph in zip(self.manifest.stages, self.graphs, strict=True):
            write_atomically(folder / stage.file, graph)
        write_atomically(folder / MANIFEST, self.manifest.to_bytes())

    @classmethod
    def read(cls, folder: str | Path) -> Bundle:
        """Read a bundle and check all of it.

        Raises:
            BundleError: when it is missing, damaged, changed, or of a newer format.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        return cls(manifest, tuple(_graph(folder, stage) for stage in manifest.stages))


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest alone.

    Raises:
        BundleError: when it is missing, damaged, changed, or of a newer format.
    """
    path = folder / MANIFEST
    if not _is_file(path):
        raise BundleError(
            f"{folder} is no bundle: there is no {MANIFEST} in it. Bundles are written by penstock.export."
        )
    content = _content(path, LARGEST_MANIFEST)
    try:
        plain = json.loads(content)
        fields = _Fields(plain, "the manifest")
        if fields.count("format") > FORMAT:
            raise BundleError(
                f"{path} was written by Penstock {fields.text('penstock')} in format {plain['format']}; this one reads "
                f"up to {FORMAT}. Update Penstock."
            )
        manifest = _manifest(fields)
        written = fields.text("id")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BundleError(f"{path} is damaged: {error!r:.200}. Take another copy.") from error
    except _Wrong as wrong:
        raise BundleError(f"{path} is damaged: {wrong}. Take another copy.") from wrong
    if written != manifest.id:
        raise BundleError(
            f"{path} was changed after it was written: its id is not that of its content. Export it anew."
        )
    return manifest


def _graph(folder: Path, stage: Stage) -> bytes:
    path = folder / stage.file
    if not _is_file(path):
        raise BundleError(f"{folder} is not whole: {stage.file} is missing. Take another copy.")
    content = _content(path, stage.file_bytes)
    if len(content) != stage.file_bytes or hashlib.sha256(content).hexdigest() != stage.sha256:
        raise BundleError(f"{path} is damaged or was changed: it is not what the manifest lists. Take another copy.")
    return content


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _content(path: Path, most: int) -> bytes:
    """Read a file, but no more than it may have."""
    try:
        with path.open("rb") as file:
            content = file.read(min(most, os.fstat(file.fileno()).st_size) + 1)
    except OSError as error:
        raise BundleError(f"{path} could not be read: {error.strerror or error}.") from error
    if len(content) > most:
        raise BundleError(f"{path} has more than the {most} bytes that it may have. Take another copy.")
    return content


class _Wrong(Exception):
    """A field that is not what it should be."""


class _Fields:
    """The fields of a JSON object, each taken once and by its type."""

    def __init__(self, plain: Any, where: str):
        if not isinstance(plain, dict):
            raise _Wrong(f"{where} is no object")
        self.plain, self.where = plain, where

    def text(self, name: str) -> str:
        return self._take(name, str, "a text")  # type: ignore[no-any-return]

    def count(self, name: str) -> int:
        value = self._take(name, int, "a number")
        if value < 0:
            raise _Wrong(f"{name} of {self.where} is {value}, below 0")
        return value  # type: ignore[no-any-return]

    def number(self, name: str) -> float:
        value = self._take(name, (int, float), "a number")
        if not math.isfinite(value):
            raise _Wrong(f"{name} of {self.where} is {value}")
        return float(value)

    def items(self, name: str) -> list[Any]:
        return self._take(name, list, "a list")  # type: ignore[no-any-return]

    def fields(self, name: str) -> _Fields:
        return _Fields(self.plain[name], f"{name} of {self.where}")

    def missing(self, name: str) -> bool:
        return self.plain[name] is None

    def _take(self, name: str, kind: Any, meant: str) -> Any:
        value = self.plain[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise _Wrong(f"{name} of {self.where} is {value!r:.40}, which is no {meant.removeprefix('a ')}")
        return value


def _manifest(plain: _Fields) -> Manifest:
    labels = plain.items("labels")
    if not labels or not all(isinstance(label, str) for label in labels):
        raise _Wrong("labels are no texts")
    stages = tuple(_stage(_Fields(stage, f"stage {i}")) for i, stage in enumerate(plain.items("stages"), start=1))
    made = Manifest(
        penstock=plain.text("penstock"),
        model=plain.text("model"),
        labels=tuple(labels),
        background=plain.count("background"),
        precision=plain.text("precision"),
        stages=stages,
        promise=None if plain.missing("promise") else _promise(plain.fields("promise")),
    )
    _check(made)
    return made


def _stage(plain: _Fields) -> Stage:
    file = plain.text("file")
    if Path(file).name != file or file in ("", ".", "..", MANIFEST):
        raise _Wrong(f"{file!r:.40} is no name of a file in the bundle")
    return Stage(
        file=file,
        sha256=plain.text("sha256"),
        file_bytes=plain.count("file_bytes"),
        macs=plain.count("macs"),
        takes=_values(plain.fields("takes")),
        gives=_values(plain.fields("gives")),
        gate=None if plain.missing("gate") else _rule(plain.fields("gate")),
    )


def _values(plain: _Fields) -> Values:
    shape = plain.items("shape")
    if not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape):
        raise _Wrong(f"shape of {plain.where} is {shape!r:.40}")
    dtype = plain.text("dtype")
    if dtype not in TYPES:
        raise _Wrong(f"dtype of {plain.where} is {dtype!r:.40}, none of {', '.join(TYPES)}")
    if plain.missing("scale"):
        return Values(tuple(shape), dtype)
    zero_point = plain._take("zero_point", int, "a number")
    return Values(tuple(shape), dtype, plain.number("scale"), zero_point)


def _rule(plain: _Fields) -> Rule:
    positives = None if plain.missing("positives") else tuple(plain.items("positives"))
    if positives is not None and not all(isinstance(label, int) for label in positives):
        raise _Wrong(f"positives of {plain.where} are no labels")
    return Rule(plain.number("threshold"), positives)


def _promise(plain: _Fields) -> Promise:
    return Promise(
        positives=plain.count("positives"),
        lost=plain.count("lost"),
        bound=plain.number("bound"),
        max_positive_loss=plain.number("max_positive_loss"),
        confidence=plain.number("confidence"),
    )


def _check(manifest: Manifest) -> None:
    """See that the parts fit each other."""
    stages = manifest.stages
    if not stages:
        raise _Wrong("there are no stages")
    if len({stage.file for stage in stages}) < len(stages):
        raise _Wrong("two stages have one file")
    for number, (before, after) in enumerate(pairwise(stages), start=1):
        if before.gives != after.takes:
            raise _Wrong(f"stage {number + 1} does not take what stage {number} gives")
    if stages[-1].gives.shape != (len(manifest.labels),):
        raise _Wrong(f"the last stage gives {stages[-1].gives.shape}, and there are {len(manifest.labels)} labels")
    if stages[-1].gate is not None:
        raise _Wrong("the last stage has a gate")
    if manifest.background >= len(manifest.labels):
        raise _Wrong(f"background is {manifest.background}, and there are {len(manifest.labels)} labels")
