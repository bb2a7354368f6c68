"""`penstock run`: run a bundle on pictures or on a file of samples."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import DataError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.cli.parsing import parser_of, samples_of
from penstock.runtime.images.files import image_files, read_images
from penstock.runtime.pipeline import BatchResult, Pipeline, image_config_of

BATCH = 64  # samples per batch; results do not depend on it


def penstock_run(arguments: Sequence[str]) -> None:
    """Run a bundle on pictures or samples, stage by stage, stopping at the gates.

    For each picture a line says what it shows, whether a gate stopped it, and how probable that is. Pictures need a
    bundle that was exported with an image_config, and the extra penstock[images].
    """
    parser = parser_of(penstock_run, "penstock run bundle/ photo.jpg, or: penstock run bundle/ samples.npy")
    parser.add_argument("bundle", type=Path, help="folder written by penstock export")
    parser.add_argument(
        "input",
        type=Path,
        nargs="+",
        help="pictures (.png, .jpg) and folders of pictures; or one .npy file with an array (samples, ...), or one "
        "sample",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads per stage; 0: all cores (default: 1)")
    parser.add_argument("--each", action="store_true", help="print a line for each sample of a .npy file too")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse_args(arguments)
    if args.threads < 0:
        raise DataError(f"--threads must be at least 0 (0: all cores), got {args.threads}.")
    pipeline = Pipeline(Bundle.read(args.bundle), threads=args.threads)
    if len(args.input) == 1 and args.input[0].suffix == ".npy":
        _run_samples(pipeline, args.input[0], each=args.each, as_json=args.json)
    else:
        _run_images(pipeline, args.input, as_json=args.json)


def _run_samples(pipeline: Pipeline, file: Path, *, each: bool, as_json: bool) -> None:
    x = samples_of(file, pipeline.manifest)
    began = time.perf_counter()
    results = _joined([pipeline.predict(x[i : i + BATCH]) for i in range(0, len(x), BATCH)])
    seconds = time.perf_counter() - began
    if as_json:
        print(json.dumps([_to_dict(pipeline, results, i) for i in range(len(x))], indent=1))
        return
    if each:
        print("\n".join(f"{i:>8}  {_line(pipeline, results, i)}" for i in range(len(x))))
    print("\n".join(_summary(pipeline, results, seconds)))


def _run_images(pipeline: Pipeline, paths: Sequence[Path], *, as_json: bool) -> None:
    """Print after the last picture, so that nothing is printed if some cannot be read."""
    config, files, parts = image_config_of(pipeline.manifest), image_files(paths), []
    inputs = map(config.preprocess, read_images(files))
    while batch := list(islice(inputs, BATCH)):
        parts.append(pipeline.predict(np.stack(batch)))
    results = _joined(parts)
    if as_json:
        rows = [{"file": str(file), **_to_dict(pipeline, results, i)} for i, file in enumerate(files)]
        print(json.dumps(rows, indent=1))
        return
    width = max(len(str(file)) for file in files)
    print("\n".join(f"{file!s:<{width}}  {_line(pipeline, results, i)}" for i, file in enumerate(files)))


def _joined(parts: Sequence[BatchResult]) -> BatchResult:
    return BatchResult(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _to_dict(pipeline: Pipeline, results: BatchResult, i: int) -> dict[str, Any]:
    stopped = bool(results.stopped[i])
    return {
        "label": pipeline.manifest.labels[results.label[i]],
        "probability": round(_probability(results, i), 6),
        "exit_stage": int(results.exit_stage[i]),
        "stopped": stopped,
        "scores": [None if np.isnan(score) else round(float(score), 6) for score in results.scores[i]],
        "logits": None if stopped else [round(float(logit), 6) for logit in results.logits[i]],
    }


def _line(pipeline: Pipeline, results: BatchResult, i: int) -> str:
    scores = " ".join("–" if np.isnan(score) else f"{score:.3f}" for score in results.scores[i])
    end = f"stopped by gate {results.exit_stage[i]}" if results.stopped[i] else "to the end"
    label = pipeline.manifest.labels[results.label[i]]
    return f"{label:<16} {_probability(results, i):.3f}  {end:<18} gates: {scores}"


def _probability(results: BatchResult, i: int) -> float:
    """Return the probability of a label: the softmax of its logit, or that the gate saw nothing positive."""
    if results.stopped[i]:
        return 1 - float(results.scores[i, results.exit_stage[i] - 1])
    logits = results.logits[i].astype(np.float64)
    return 1 / math.fsum(np.exp(logits - logits.max()))


def _summary(pipeline: Pipeline, results: BatchResult, seconds: float) -> list[str]:
    """Return where samples stopped, and what share of the computation they needed."""
    samples, stages = len(results.label), pipeline.manifest.stages
    left, crossed, macs = samples, 0, 0
    lines = [f"{samples:,} samples, {1e6 * seconds / max(samples, 1):.0f} µs each"]
    for number, stage in enumerate(stages):
        macs += left * stage.macs
        stopped = int((results.stopped & (results.exit_stage == number + 1)).sum())
        if stage.gate is not None:
            lines.append(f"  gate {number + 1} stopped {stopped:,} of {left:,}")
        left -= stopped
        crossed += left * stage.output.payload_bytes if number < len(stages) - 1 else 0
    all_macs = samples * sum(stage.macs for stage in stages)
    lines.append(f"  {left:,} reached the end; {macs / max(all_macs, 1):.1%} of all multiply-accumulates were done")
    lines.append(f"  {crossed:,} bytes crossed between stages")
    names, counts = np.unique(results.label, return_counts=True)
    lines += [f"  {pipeline.manifest.labels[name]}: {count:,}" for name, count in zip(names, counts, strict=True)]
    return lines
