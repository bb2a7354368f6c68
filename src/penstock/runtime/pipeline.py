"""All stages of a bundle in one process: the embedded default, and what islands over links are held against."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from penstock.errors import ShapeError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import TensorSpec
from penstock.runtime.engines import Engine, OnnxRuntime


class BatchResult(NamedTuple):
    """What became of each sample of a batch.

    Attributes:
        label: (batch,), `background` for what was stopped.
        stopped_at: (batch,), the number of the gate that stopped it, counted from 0; -1 if none did.
        scores: (batch, stages - 1), each gate's probability that the sample is of interest; NaN where it did not get,
            and where there is no gate.
        logits: (batch, classes), NaN for what was stopped.
    """

    label: np.ndarray
    stopped_at: np.ndarray
    scores: np.ndarray
    logits: np.ndarray


class SampleResult(NamedTuple):
    """What became of one sample, as `BatchResult` has it of each.

    Attributes:
        stopped_at: the number of the gate that stopped it; -1 if none did.
        scores: each gate's; NaN where it did not get, and where there is no gate.
        logits: (classes,); None if it was stopped.
    """

    stopped_at: int
    scores: tuple[float, ...]
    logits: np.ndarray | None


class Pipeline:
    """The stages of a bundle, one behind the other: `GatedNetwork.predict` without torch.

    Args:
        engines: one a stage, where others than onnxruntime are to run them.
        threads: that a stage may use.
    """

    def __init__(self, bundle: Bundle, *, engines: Sequence[Engine] | None = None, threads: int = 1):
        self.manifest = bundle.manifest
        self._engines = engines or engines_of(bundle, threads=threads)
        rules = [stage.gate for stage in bundle.manifest.stages]
        self._steps = [
            (engine.run, None if rule is None else rule.threshold)
            for engine, rule in zip(self._engines, rules, strict=True)
        ]
        self._background = np.array([bundle.manifest.background])
        self._nothing = np.full((1, len(bundle.manifest.labels)), np.nan, np.float32)

    def predict(self, x: np.ndarray) -> BatchResult:
        """Classify a batch, and really stop: later stages see only the survivors."""
        stages = self.manifest.stages
        check_input(x, stages[0].input)
        if len(x) == 1:  # arrays of one are slow
            return self._answers(self._run(x))
        batch, gates, classes = len(x), len(stages) - 1, len(self.manifest.labels)
        label = np.full(batch, self.manifest.background)
        stopped_at = np.full(batch, -1)
        scores = np.full((batch, gates), np.nan, np.float32)
        logits = np.full((batch, classes), np.nan, np.float32)
        alive, values = np.arange(batch), x
        for number, (stage, engine) in enumerate(zip(stages, self._engines, strict=True)):
            if not len(alive):
                return BatchResult(label, stopped_at, scores, logits)
            values, said = engine.run(values)
            if stage.gate is not None and said is not None:
                scores[alive, number] = probability(said)
                passed = said.astype(np.float64) >= stage.gate.threshold
                if not passed.all():
                    stopped_at[alive[~passed]] = number
                    alive, values = alive[passed], values[passed]
        logits[alive] = values
        label[alive] = values.argmax(1)
        return BatchResult(label, stopped_at, scores, logits)

    def ask(self, sample: np.ndarray) -> SampleResult:
        """Classify a single sample: what `predict` does, without a batch, as a device has one at a time."""
        values = np.asarray(sample)[None]
        check_input(values, self.manifest.stages[0].input)
        return self._run(values)

    def _run(self, values: np.ndarray) -> SampleResult:
        """Take a batch of one through the stages."""
        scores = [math.nan] * (len(self._steps) - 1)
        for number, (run, threshold) in enumerate(self._steps):
            values, said = run(values)
            if threshold is not None and said is not None:
                logit = float(said[0])
                scores[number] = probability_of(logit)
                if not logit >= threshold:  # NaN is stopped, as in a batch
                    return SampleResult(number, tuple(scores), None)
        return SampleResult(-1, tuple(scores), values[0])

    def _answers(self, of: SampleResult) -> BatchResult:
        scores = np.array(of.scores, np.float32).reshape(1, -1)
        if of.logits is None:
            return BatchResult(self._background.copy(), np.array([of.stopped_at]), scores, self._nothing.copy())
        return BatchResult(np.array([of.logits.argmax()]), np.array([-1]), scores, of.logits[None])


def engines_of(bundle: Bundle, *, threads: int = 1) -> list[Engine]:
    """Return an engine for each stage."""
    return [
        OnnxRuntime.of(stage, graph, threads=threads)
        for graph, stage in zip(bundle.graphs, bundle.manifest.stages, strict=True)
    ]


def probability(logit: np.ndarray) -> np.ndarray:
    """Return the sigmoid of logits, whatever their size.

    >>> probability(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    return 0.5 * (1 + np.tanh(0.5 * logit))  # type: ignore[no-any-return]


def probability_of(logit: float) -> float:
    """Return the sigmoid of one logit."""
    return 0.5 * (1 + math.tanh(0.5 * logit))


def is_finite(x: np.ndarray) -> bool:
    """Say whether there is neither NaN nor infinity; one product tells it of ordinary samples.

    >>> is_finite(np.array([3e38, 3e38], np.float32)), is_finite(np.array([np.inf, -np.inf], np.float32))
    (True, False)
    """
    return math.isfinite(np.vdot(x, x)) or bool(np.isfinite(x).all())


def check_input(x: np.ndarray, wanted: TensorSpec) -> None:
    """Refuse what is not a batch of samples.

    Raises:
        ShapeError: for another shape or type, and for NaN and infinity.
    """
    if not isinstance(x, np.ndarray) or x.shape[1:] != wanted.shape or x.ndim < 2 or x.dtype != wanted.dtype:
        came = f"shape {x.shape}, {x.dtype}" if isinstance(x, np.ndarray) else f"type {type(x).__name__}"
        sizes = ", ".join(map(str, ("batch", *wanted.shape)))
        raise ShapeError(f"an input of {came} came; this bundle takes an array ({sizes}), {wanted.dtype}.")
    if x.dtype.kind == "f" and not is_finite(x):
        bad = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(1)).tolist()
        raise ShapeError(
            f"NaN or infinity in samples {bad[:10]} of {len(x)}: a gate cannot judge them, and stopping them silently "
            "would hide a broken sensor. Replace or drop these samples."
        )
