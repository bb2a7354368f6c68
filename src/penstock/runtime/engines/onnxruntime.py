"""Run stages with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.errors import BundleError, require
from penstock.runtime.bundle.graph_names import GATE
from penstock.runtime.bundle.manifest import TYPES, Stage, TensorSpec
from penstock.runtime.engines.engine import Output

# onnxruntime's names of dtypes
_TYPES = {name: f"tensor({name})" for name in TYPES} | {"float32": "tensor(float)", "float64": "tensor(double)"}


class OnnxRuntime:
    """Engine that runs one ONNX graph on the CPU.

    Args:
        graph: content of the graph's file.
        name: of the graph, for errors.
        threads: per run; 0 for all cores. Devices have few cores, and idle threads of a pool spin and burn power.

    Raises:
        BundleError: when onnxruntime cannot load the graph.
        MissingExtraError: when onnxruntime is not installed.
    """

    def __init__(self, graph: bytes, *, name: str = "the graph", threads: int = 1):
        ort = require("onnxruntime", extra="run")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4  # errors are raised
        try:
            self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions have no common base class
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise BundleError(f"onnxruntime {ort.__version__} cannot load {name}: {reason}") from error
        self._input = self._session.get_inputs()[0].name
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._gated = GATE in self._outputs

    @classmethod
    def from_stage(cls, stage: Stage, graph: bytes, *, threads: int = 1) -> OnnxRuntime:
        """Return an engine for a stage of a bundle.

        Raises:
            BundleError: when the inputs or outputs of the graph differ from the manifest.
        """
        engine = cls(graph, name=stage.file, threads=threads)
        inputs, (output, *gates) = engine._session.get_inputs(), engine._session.get_outputs()
        _check_tensor(stage.file, "input", inputs[0], stage.input)
        _check_tensor(stage.file, "output", output, stage.output)
        found = [(gate.name, gate.type, len(gate.shape)) for gate in gates]
        if len(inputs) != 1 or found != [(GATE, "tensor(float)", 1)] * (stage.gate is not None or len(gates)):
            raise BundleError(
                f"{stage.file} does not match the manifest: expected one input and, beside the values, the output "
                f"{GATE!r} with one float per sample. Export the bundle again."
            )
        return engine

    def run(self, values: np.ndarray) -> Output:
        """Run the stage on a batch."""
        out = self._session.run(self._outputs, {self._input: values})
        return Output(out[0], out[1] if self._gated else None)


def _check_tensor(file: str, role: str, tensor: Any, spec: TensorSpec) -> None:
    if tensor.type != _TYPES[spec.dtype] or tuple(tensor.shape[1:]) != spec.shape:
        raise BundleError(
            f"{file} does not match the manifest: expected {role} {list(spec.shape)} {spec.dtype}, got "
            f"{tensor.shape[1:]} {tensor.type}. Export the bundle again."
        )
