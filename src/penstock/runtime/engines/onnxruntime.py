"""Stages on onnxruntime."""

from __future__ import annotations

import numpy as np

from penstock.errors import BundleError, require
from penstock.runtime.bundle.graph_names import GATE
from penstock.runtime.bundle.manifest import TYPES, Stage
from penstock.runtime.engines.engine import Output

_TYPES = {name: f"tensor({name})" for name in TYPES} | {
    "float32": "tensor(float)",
    "float64": "tensor(double)",
}
"""As onnxruntime says them."""


class OnnxRuntime:
    """One graph, ready to run.

    Args:
        graph: the content of its file.
        name: of it, for errors.
        threads: that one run may use, 0 for all there are. Devices have few, and threads that wait for work burn power.
    """

    def __init__(self, graph: bytes, *, name: str = "the graph", threads: int = 1):
        ort = require("onnxruntime", extra="run")
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4  # what goes wrong is raised
        try:
            self._session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's exceptions share no class of their own
            reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
            raise BundleError(f"{name} is no graph that onnxruntime {ort.__version__} runs: {reason}") from error
        self._input = self._session.get_inputs()[0].name
        self._outputs = [output.name for output in self._session.get_outputs()]
        self._gated = GATE in self._outputs

    @classmethod
    def of(cls, stage: Stage, graph: bytes, *, threads: int = 1) -> OnnxRuntime:
        """Return the engine of a bundle's stage.

        Raises:
            BundleError: when the graph takes or gives something else than the manifest says.
        """
        made = cls(graph, name=stage.file, threads=threads)
        taken, (given, *gates) = made._session.get_inputs(), made._session.get_outputs()
        for what, said, values in (("input", taken[0], stage.input), ("output", given, stage.output)):
            if said.type != _TYPES[values.dtype] or tuple(said.shape[1:]) != values.shape:
                raise BundleError(
                    f"{stage.file} is not the graph of the manifest: it {what} {said.type} of shape {said.shape[1:]} a "
                    f"sample, and the manifest says {values.dtype} of shape {list(values.shape)}. Export it anew."
                )
        logits = [(gate.name, gate.type, len(gate.shape)) for gate in gates]
        if len(taken) != 1 or logits != [(GATE, "tensor(float)", 1)] * (stage.gate is not None or len(gates)):
            raise BundleError(
                f"{stage.file} is not the graph of the manifest: one input is wanted, and a gate's logit, one float a "
                "sample, beside the values. Export the bundle anew."
            )
        return made

    def run(self, values: np.ndarray) -> Output:
        """Run the stage on a batch."""
        out = self._session.run(self._outputs, {self._input: values})
        return Output(out[0], out[1] if self._gated else None)
