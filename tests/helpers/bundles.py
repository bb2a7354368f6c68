"""Bundles and engines that are made up: what runs them needs no torch and no graph."""

from dataclasses import replace
from hashlib import sha256

import numpy as np

from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.guarantee import Guarantee
from penstock.runtime.bundle.manifest import GateRule, Manifest, Stage, TensorSpec
from penstock.runtime.engines import Output

GRAPHS = (b"the first graph", b"the second")


def stage(number, takes, gives, gate=None) -> Stage:
    content = GRAPHS[number - 1]
    return Stage(f"stage-{number}.onnx", sha256(content).hexdigest(), len(content), 1000 * number, takes, gives, gate)


PACKED = TensorSpec((120,), "int8", 0.25, -128)
MANIFEST = Manifest(
    penstock="0.1.0",
    model="ResNet",
    labels=("background", "yes"),
    background=0,
    precision="int8",
    stages=(
        stage(1, TensorSpec((1, 28, 28), "float32"), PACKED, GateRule(-1.25, (1,))),
        stage(2, PACKED, TensorSpec((2,), "float32")),
    ),
    guarantee=Guarantee(500, 2, 0.0125, 0.02, 0.95),
)
BUNDLE = Bundle(MANIFEST, GRAPHS)

THREE = replace(
    MANIFEST,
    labels=("none", "a", "b"),
    stages=(
        replace(
            MANIFEST.stages[0],
            input=TensorSpec((3,), "float32"),
            output=TensorSpec((3,), "float32"),
            gate=GateRule(0.0),
        ),
        replace(MANIFEST.stages[0], input=TensorSpec((3,), "float32"), output=TensorSpec((3,), "float32"), gate=None),
        replace(
            MANIFEST.stages[0],
            input=TensorSpec((3,), "float32"),
            output=TensorSpec((3,), "float32"),
            gate=GateRule(0.5),
        ),
        replace(MANIFEST.stages[1], input=TensorSpec((3,), "float32"), output=TensorSpec((3,), "float32")),
    ),
)


class Shift:
    """Adds a number to all values; its gate looks at the first one. Never sees a batch of none."""

    def __init__(self, number, gated):
        self.number, self.gated = number, gated

    def run(self, values):
        assert len(values)
        return Output(values + np.float32(self.number), values[:, 0] if self.gated else None)


ENGINES = (Shift(0.25, True), Shift(1, False), Shift(-2, True), Shift(0, False))
