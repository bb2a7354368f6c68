"""An int8 bundle on a stream of photographs, against the plain network in 8 bits by onnxruntime's own quantizer.

Both run one frame at a time on one thread. A gate is trained into the network that `make doorbell` has fine-tuned,
which stays as it is; the threshold is one at which half of a 1:9 stream stops. `stopped` is what it stops of the
negatives at 1, 2 and 5 % of the positives lost, on calibration data.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor, nn

import penstock as ps
from benchmarks.doorbell import SEEDS, fitted, photos, plain_network, stopped_at
from benchmarks.figures import Figure
from penstock.evaluation.outputs import collect_outputs, gate_logits
from penstock.evaluation.timing import best_seconds
from penstock.export import Int8
from penstock.runtime.engines import load_engines

AT, SEED = "_blocks.3", SEEDS[-1]
"""After 24 % of the multiply-accumulates: the first blocks of such a network take more than their share of time."""
FRAMES, CALIBRATION, ROUNDS = 200, 256, 25


class Batches(CalibrationDataReader):  # type: ignore[misc]
    """Inputs from which onnxruntime measures its ranges."""

    def __init__(self, name: str, x: np.ndarray):
        self._batches: Iterator[dict[str, np.ndarray]] = iter([{name: part} for part in np.array_split(x, 8)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def quantized_by_onnxruntime(model: nn.Module, x: Tensor) -> ort.InferenceSession:
    """Return a network in 8 bits as onnxruntime's documentation has it: uint8 activations, int8 weights by channel."""
    with tempfile.TemporaryDirectory() as folder:
        exported, prepared, done = (str(Path(folder) / name) for name in ("a.onnx", "b.onnx", "c.onnx"))
        any_batch = ({0: torch.export.Dim.DYNAMIC},)
        torch.onnx.export(
            model, (x[:2],), exported, dynamo=True, input_names=["x"], dynamic_shapes=any_batch, verbose=False
        )
        quant_pre_process(exported, prepared)
        quantize_static(
            prepared,
            done,
            Batches("x", x.numpy()),
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
        )
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return ort.InferenceSession(done, options, providers=["CPUExecutionProvider"])


def stream() -> Tensor:
    """Return test photographs, one positive to nine negatives."""
    data = photos()["test"]
    labels = torch.tensor([int(label) for label in data.y])
    chosen = [torch.nonzero(labels > 0)[: FRAMES // 10, 0], torch.nonzero(labels == 0)[: FRAMES - FRAMES // 10, 0]]
    return torch.stack([data[int(i)][0] for i in torch.cat(chosen)])


def measure() -> list[Figure]:
    """Return the time of the chain relative to the plain network's and to its own ideal."""
    plain, _, _ = plain_network(SEED)
    gates = ps.LayerConfig("gate")
    net, _ = fitted(plain, SEED, "gates only, early", at=AT, layer=gates, teacher=plain, train_only="gates")
    data, frames = photos()["calibration"], stream()
    x = torch.stack([data[i][0] for i in range(0, len(data), len(data) // CALIBRATION)])
    labels = torch.stack([data.y[i] for i in range(0, len(data), len(data) // CALIBRATION)])
    with torch.no_grad():
        (scores,) = gate_logits(net.eval(), frames)[1]
    assert scores is not None
    net.thresholds = [scores.double().median().item()]
    with tempfile.TemporaryDirectory() as folder:
        bundle = ps.export_bundle(net, x[:16], folder, precision=Int8((x, labels))).bundle
    pipeline, (first, rest) = ps.Pipeline(bundle), load_engines(bundle)
    theirs, one_by_one = quantized_by_onnxruntime(plain, x), [frame[None] for frame in frames.numpy()]
    packed = [first.run(frame).values for frame in one_by_one]
    seconds = best_seconds(
        {
            "plain": lambda: [theirs.run(None, {"x": frame}) for frame in one_by_one],
            "chain": lambda: [pipeline.predict_one(frame) for frame in frames.numpy()],
            "stage 1": lambda: [first.run(frame) for frame in one_by_one],
            "rest": lambda: [rest.run(values) for values in packed],
        },
        rounds=ROUNDS,
        warm_up=2,
    )
    passed = float((~pipeline.predict(frames.numpy()).stopped).mean())
    ideal = seconds["stage 1"] + passed * seconds["rest"]
    details = seconds | {"pass_rate": passed, "ideal": ideal, "frames": len(frames), "seed": SEED, "at": AT}
    details["stopped"] = stopped_at(collect_outputs(net, data))
    name = "int8 on photographs, batch 1, one thread, half of a 1:9 stream stopped"
    return [
        Figure(
            f"{name}: chain / the plain network by onnxruntime's quantizer",
            seconds["chain"] / seconds["plain"],
            "<=",
            0.75,
            details,
        ),
        Figure(f"{name}: chain / ideal (stage 1 + pass rate × the rest)", seconds["chain"] / ideal, "<=", 1.10),
    ]
