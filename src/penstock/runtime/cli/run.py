"""The commands of a device: the standard library, numpy and one engine.

They are parsed by argparse, because a device has no room for more.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import DataError
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.cli.certs import certs
from penstock.runtime.cli.island import island
from penstock.runtime.cli.listen import listen
from penstock.runtime.cli.parsing import parser_of, samples_of
from penstock.runtime.cli.serve import serve
from penstock.runtime.cli.up import up
from penstock.runtime.pipeline import BatchResult, Pipeline

BATCH = 64
"""Samples at once; what they are decided is the same for any."""


def run(arguments: Sequence[str]) -> None:
    """Run a whole bundle in this process: the stages one behind the other, stopping at the gates."""
    parser = parser_of(run, "penstock run bundle/ samples.npy")
    parser.add_argument("bundle", type=Path, help="the folder that penstock export wrote")
    parser.add_argument("input", type=Path, help="samples as a .npy file: an array (samples, ...), or one sample")
    parser.add_argument("--threads", type=int, default=1, help="that a stage may use; 0: all there are (default: 1)")
    parser.add_argument("--each", action="store_true", help="print a line for each sample")
    parser.add_argument("--json", action="store_true", help="print JSON for machines, and nothing else")
    given = parser.parse_args(arguments)
    if given.threads < 0:
        raise DataError(f"--threads {given.threads} is not possible: 1 or more, or 0 for all there are.")
    chain = Pipeline(Bundle.read(given.bundle), threads=given.threads)
    x = samples_of(given.input, chain.manifest)
    began = time.perf_counter()
    parts = [chain.predict(x[i : i + BATCH]) for i in range(0, len(x), BATCH)]
    seconds = time.perf_counter() - began
    answers = BatchResult(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    if given.json:
        print(json.dumps([_plain(chain, answers, i) for i in range(len(x))], indent=1))
        return
    if given.each:
        print("\n".join(_line(chain, answers, i) for i in range(len(x))))
    print("\n".join(_summary(chain, answers, seconds)))


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "run": run,
    "listen": listen,
    "island": island,
    "serve": serve,
    "up": up,
    "certs": certs,
}
"""By the name that a person types."""


def run_on_device(arguments: Sequence[str]) -> None:
    """Run one of the commands, given its name and arguments."""
    COMMANDS[arguments[0]](arguments[1:])


def _plain(chain: Pipeline, answers: BatchResult, i: int) -> dict[str, Any]:
    stopped = bool(answers.stopped[i])
    return {
        "label": chain.manifest.labels[answers.label[i]],
        "exit_stage": int(answers.exit_stage[i]),
        "stopped": stopped,
        "scores": [None if np.isnan(score) else round(float(score), 6) for score in answers.scores[i]],
        "logits": None if stopped else [round(float(logit), 6) for logit in answers.logits[i]],
    }


def _line(chain: Pipeline, answers: BatchResult, i: int) -> str:
    scores = " ".join("–" if np.isnan(score) else f"{score:.3f}" for score in answers.scores[i])
    end = f"stopped by gate {answers.exit_stage[i]}" if answers.stopped[i] else "to the end"
    return f"{i:>8}  {chain.manifest.labels[answers.label[i]]:<16} {end:<18} gates: {scores}"


def _summary(chain: Pipeline, answers: BatchResult, seconds: float) -> list[str]:
    """Say what became of the samples, and what it took."""
    samples, stages = len(answers.label), chain.manifest.stages
    left, crossed, macs = samples, 0, 0
    lines = [f"{samples:,} samples, {1e6 * seconds / max(samples, 1):.0f} µs each"]
    for number, stage in enumerate(stages):
        macs += left * stage.macs
        stopped = int((answers.stopped & (answers.exit_stage == number + 1)).sum())
        if stage.gate is not None:
            lines.append(f"  gate {number + 1} stopped {stopped:,} of {left:,}")
        left -= stopped
        crossed += left * stage.output.payload_bytes if number < len(stages) - 1 else 0
    whole = samples * sum(stage.macs for stage in stages)
    lines.append(f"  {left:,} reached the end; {macs / max(whole, 1):.1%} of all multiply-accumulates were done")
    lines.append(f"  {crossed:,} bytes crossed between stages")
    names, counts = np.unique(answers.label, return_counts=True)
    lines += [f"  {chain.manifest.labels[name]}: {count:,}" for name, count in zip(names, counts, strict=True)]
    return lines
