"""All stages of a bundle in one process: the usual way to run a bundle on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.errors import BundleError, ShapeError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import Manifest, TensorSpec
from penstock.runtime.cascade import batch_passes, gate_score, gate_scores, passes
from penstock.runtime.engines import Engine, load_engines
from penstock.runtime.images.config import ImageConfig


class BatchResult(NamedTuple):
    """Results for a batch.

    Attributes:
        label: (batch,), class index; `background` for stopped samples.
        exit_stage: (batch,), int64, the last stage that ran, counted from 1.
        stopped: (batch,), bool, whether a gate stopped the sample before the last stage.
        scores: (batch, stages - 1), each gate's probability that the sample is positive; NaN for gates that the sample
            did not reach, and for stages without a gate.
        logits: (batch, classes), NaN for stopped samples.
    """

    label: np.ndarray
    exit_stage: np.ndarray
    stopped: np.ndarray
    scores: np.ndarray
    logits: np.ndarray


class SampleResult(NamedTuple):
    """Result for one sample; see `BatchResult`.

    Attributes:
        exit_stage: the last stage that ran, counted from 1.
        stopped: whether a gate stopped the sample before the last stage.
        scores: one per gate; NaN for gates that the sample did not reach, and for stages without a gate.
        logits: (classes,); None if the sample was stopped.
    """

    exit_stage: int
    stopped: bool
    scores: tuple[float, ...]
    logits: np.ndarray | None


class Pipeline:
    """Run the stages of a bundle one after the other: `GatedNetwork.predict` without torch.

    Args:
        engines: one per stage; by default onnxruntime runs them.
        threads: per stage; 0 for all cores.
    """

    def __init__(self, bundle: Bundle, *, engines: Sequence[Engine] | None = None, threads: int = 1):
        self.manifest = bundle.manifest
        self._engines = engines or load_engines(bundle, threads=threads)
        self._thresholds = [None if stage.gate is None else stage.gate.threshold for stage in bundle.manifest.stages]
        self._steps = [
            (number, engine.run, threshold)
            for number, (engine, threshold) in enumerate(zip(self._engines, self._thresholds, strict=True), start=1)
        ]
        self._background = np.array([bundle.manifest.background])
        self._no_logits = np.full((1, len(bundle.manifest.labels)), np.nan, np.float32)

    def predict(self, x: np.ndarray) -> BatchResult:
        """Classify a batch. A stage runs only on samples that passed the gates before it."""
        stages = self.manifest.stages
        check_input(x, stages[0].input)
        if len(x) == 1:  # numpy is slow on arrays of one
            return self._to_batch(self._run(x))
        batch, classes = len(x), len(self.manifest.labels)
        label = np.full(batch, self.manifest.background)
        exit_stage = np.full(batch, len(stages), np.int64)
        scores = np.full((batch, len(stages) - 1), np.nan, np.float32)
        logits = np.full((batch, classes), np.nan, np.float32)
        active, values = np.arange(batch), x
        for number, run, threshold in self._steps:
            if not len(active):
                break
            values, gate_logits = run(values)
            if threshold is not None and gate_logits is not None:
                scores[active, number - 1] = gate_scores(gate_logits)
                passed = batch_passes(gate_logits, threshold)
                if not passed.all():
                    exit_stage[active[~passed]] = number
                    active, values = active[passed], values[passed]
        if len(active):
            logits[active] = values
            label[active] = values.argmax(1)
        return BatchResult(label, exit_stage, exit_stage < len(stages), scores, logits)

    def predict_images(self, images: Sequence[np.ndarray]) -> BatchResult:
        """Classify pictures, such as a camera's frames: (rows, columns, 3), uint8, in the order red, green, blue.

        Raises:
            BundleError: if the bundle does not say how a picture becomes an input.
            ShapeError: if an array is not a picture.
        """
        config = image_config_of(self.manifest)
        inputs = [config.preprocess(image) for image in images]
        return self.predict(np.array(inputs, np.float32).reshape(-1, *config.shape))

    def predict_one(self, sample: np.ndarray) -> SampleResult:
        """Classify one sample without a batch dimension; the fast path of a device."""
        values = np.asarray(sample)[None]
        check_input(values, self.manifest.stages[0].input)
        return self._run(values)

    def _run(self, values: np.ndarray) -> SampleResult:
        """Run the stages on a batch of one."""
        scores = [math.nan] * (len(self._steps) - 1)
        for number, run, threshold in self._steps:
            values, gate_logits = run(values)
            if threshold is not None and gate_logits is not None:
                logit = float(gate_logits[0])
                scores[number - 1] = gate_score(logit)
                if not passes(logit, threshold):
                    return SampleResult(number, True, tuple(scores), None)
        return SampleResult(len(self._steps), False, tuple(scores), values[0])

    def _to_batch(self, result: SampleResult) -> BatchResult:
        exit_stage, stopped = np.array([result.exit_stage], np.int64), np.array([result.stopped])
        scores = np.array(result.scores, np.float32).reshape(1, -1)
        if result.logits is None:
            return BatchResult(self._background.copy(), exit_stage, stopped, scores, self._no_logits.copy())
        return BatchResult(np.array([result.logits.argmax()]), exit_stage, stopped, scores, result.logits[None])


def image_config_of(manifest: Manifest) -> ImageConfig:
    """Return how a picture becomes the bundle's input; raise a BundleError if it does not say so."""
    if manifest.image_config is None:
        raise BundleError(
            "the bundle takes network inputs (one .npy file), not pictures: it has no image_config. Export it again "
            "with net.image_config = ImageConfig(...); penstock train sets it if the data come from image_folder."
        )
    return manifest.image_config


def is_finite(x: np.ndarray) -> bool:
    """Return whether an array has neither NaN nor infinity; for ordinary samples one dot product is enough.

    >>> is_finite(np.array([3e38, 3e38], np.float32)), is_finite(np.array([np.inf, -np.inf], np.float32))
    (True, False)
    """
    return math.isfinite(np.vdot(x, x)) or bool(np.isfinite(x).all())


def check_input(x: np.ndarray, expected: TensorSpec) -> None:
    """Check that an array is a batch of samples.

    Raises:
        ShapeError: when shape or dtype differ, or a value is NaN or infinite.
    """
    if not isinstance(x, np.ndarray) or x.shape[1:] != expected.shape or x.ndim < 2 or x.dtype != expected.dtype:
        found = f"{x.shape} {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        sizes = ", ".join(map(str, ("batch", *expected.shape)))
        raise ShapeError(f"expected input ({sizes}) {expected.dtype}, got {found}")
    if x.dtype.kind == "f" and not is_finite(x):
        bad = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1)).tolist()
        raise ShapeError(
            f"NaN or infinity in samples {bad[:10]} of {len(x)}. Replace or drop them: a gate would stop them silently "
            "and hide a broken sensor."
        )
