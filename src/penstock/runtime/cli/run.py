"""`penstock run`: run a bundle on a file of samples."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import DataError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.cli.parsing import parser_of, samples_of
from penstock.runtime.pipeline import BatchResult, Pipeline

BATCH = 64  # samples per batch; results do not depend on it


def penstock_run(arguments: Sequence[str]) -> None:
    """Run a bundle in this process, stage by stage, stopping at the gates."""
    parser = parser_of(penstock_run, "penstock run bundle/ samples.npy")
    parser.add_argument("bundle", type=Path, help="folder written by penstock export")
    parser.add_argument("input", type=Path, help=".npy file with an array (samples, ...), or one sample")
    parser.add_argument("--threads", type=int, default=1, help="threads per stage; 0: all cores (default: 1)")
    parser.add_argument("--each", action="store_true", help="print a line for each sample")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    args = parser.parse_args(arguments)
    if args.threads < 0:
        raise DataError(f"--threads must be at least 0 (0: all cores), got {args.threads}.")
    pipeline = Pipeline(Bundle.read(args.bundle), threads=args.threads)
    x = samples_of(args.input, pipeline.manifest)
    began = time.perf_counter()
    parts = [pipeline.predict(x[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    seconds = time.perf_counter() - began
    results = BatchResult(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    if args.json:
        print(json.dumps([_to_dict(pipeline, results, i) for i in range(len(x))], indent=1))
        return
    if args.each:
        print("\n".join(_line(pipeline, results, i) for i in range(len(x))))
    print("\n".join(_summary(pipeline, results, seconds)))


def _to_dict(pipeline: Pipeline, results: BatchResult, i: int) -> dict[str, Any]:
    stopped = bool(results.stopped[i])
    return {
        "label": pipeline.manifest.labels[results.label[i]],
        "exit_stage": int(results.exit_stage[i]),
        "stopped": stopped,
        "scores": [None if np.isnan(score) else round(float(score), 6) for score in results.scores[i]],
        "logits": None if stopped else [round(float(logit), 6) for logit in results.logits[i]],
    }


def _line(pipeline: Pipeline, results: BatchResult, i: int) -> str:
    scores = " ".join("–" if np.isnan(score) else f"{score:.3f}" for score in results.scores[i])
    end = f"stopped by gate {results.exit_stage[i]}" if results.stopped[i] else "to the end"
    return f"{i:>8}  {pipeline.manifest.labels[results.label[i]]:<16} {end:<18} gates: {scores}"


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
