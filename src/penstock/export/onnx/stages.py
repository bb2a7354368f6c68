"""Export stages as ONNX graphs, in float32 or int8; each graph is compared with PyTorch on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from penstock.datasets.loading import Data, batches
from penstock.export.exporters import StageFile, stage_tensors
from penstock.export.onnx.channel_pruning import prune_channels
from penstock.export.onnx.codes import decode_input, encode_output
from penstock.export.onnx.float_operators import float_operators
from penstock.export.onnx.graph import cleaned, gather_by_element, macs, to_bytes, to_graph
from penstock.export.onnx.payload import convert_input, convert_output, quantization_of
from penstock.export.onnx.quantization import quantize
from penstock.export.precision import Int8, Precision
from penstock.export.stage_module import DeployedStage
from penstock.export.verification import check_error, relative_error
from penstock.gating.network import GatedNetwork
from penstock.runtime.bundle.manifest import TensorSpec
from penstock.runtime.engines.onnxruntime import OnnxRuntime

CALIBRATION_SAMPLES = 512
"""Samples from which the ranges of int8 values are measured, spread over the calibration data."""


def export_onnx(net: GatedNetwork, example: Tensor, precision: Precision) -> list[StageFile]:
    """Return each stage as an ONNX file; see `penstock.export.exporters`."""
    graphs, errors = _float32_graphs(net, example)
    counts = [macs(graph) for graph in graphs]
    tensors = stage_tensors(net, example)
    if isinstance(precision, Int8):
        graphs, tensors = _quantized(net, graphs, tensors, precision)
    else:
        tensors[1:-1] = [replace(values, dtype=precision.payload) for values in tensors[1:-1]]
    for i, layer in enumerate(net.layers):
        if layer.quantizer is not None:
            tensors[i + 1] = TensorSpec((layer.transmitted_bytes,), "uint8")
            encode_output(graphs[i], layer)
            decode_input(graphs[i + 1], layer)
        else:
            convert_output(graphs[i], tensors[i + 1])
            convert_input(graphs[i + 1], tensors[i + 1])
    for graph in graphs:
        gather_by_element(graph)
    contents = [to_bytes(graph) for graph in graphs]
    floats = [float_operators(content) if isinstance(precision, Int8) else {} for content in contents]
    return [StageFile(*parts) for parts in zip(contents, counts, tensors, tensors[1:], errors, floats, strict=False)]


@torch.no_grad()
def _float32_graphs(net: GatedNetwork, example: Tensor) -> tuple[list[ir.Model], list[float]]:
    """Return the graph of each stage, and its error relative to PyTorch, for the batch and for a single sample."""
    graphs, errors, values = [], [], example
    for number in range(len(net.stages)):
        stage = DeployedStage(net, number).eval()
        graph = cleaned(prune_channels(to_graph(stage, values, number + 1)))
        engine = OnnxRuntime(to_bytes(graph))
        outputs = stage(values)
        error = max(
            relative_error(engine.run(values.numpy()), outputs),
            relative_error(engine.run(values[:1].numpy()), stage(values[:1])),
        )
        check_error(error, number + 1)
        graphs.append(graph)
        errors.append(error)
        values = outputs[0] if isinstance(outputs, tuple) else outputs
    return graphs, errors


def _quantized(
    net: GatedNetwork, graphs: list[ir.Model], tensors: list[TensorSpec], precision: Int8
) -> tuple[list[ir.Model], list[TensorSpec]]:
    """Return the graphs in int8, and the tensors between them with their scales and zero points."""
    values, dtype = sample_inputs(precision.calibration_data), precision.activations
    quantized, specs = [], [tensors[0]]
    for number, graph in enumerate(graphs):
        engine = OnnxRuntime(to_bytes(graph), threads=0)
        batches_of_32 = [values[i : i + 32] for i in range(0, len(values), 32)]
        products = (_products(net, number - 1), _products(net, number))
        quantized.append(quantize(graph, batches_of_32, dtype, products=products))
        values, gate_logit = engine.run(values)
        threshold = net.thresholds[number] if number < len(net.layers) else None
        if gate_logit is not None and threshold is not None and (gate_logit >= threshold).any():
            values = values[gate_logit >= threshold]  # the next stage sees only samples that pass
        spec = tensors[number + 1]
        is_last = number == len(graphs) - 1
        specs.append(spec if is_last else TensorSpec(spec.shape, dtype, *quantization_of(values, dtype)))
    return quantized, specs


def _products(net: GatedNetwork, layer: int) -> int:
    """Return how many matrix products change coordinates at a layer; 0 at the network's two ends."""
    compression = net.layers[layer].compression if 0 <= layer < len(net.layers) else None
    transform = None if compression is None else compression.transform
    return 0 if transform is None or not transform.fitted else 1 + len(transform.places)


def sample_inputs(data: Data, samples: int = CALIBRATION_SAMPLES) -> np.ndarray:
    """Return the inputs of some samples, spread evenly over the data, holding at most twice as many in memory."""
    kept: list[Tensor] = []
    step, seen = 1, 0  # every `step`-th sample is kept
    for x, _ in batches(data, batch_size=256):
        kept += [x[i].clone() for i in range(-seen % step, len(x), step)]
        seen += len(x)
        while len(kept) >= 2 * samples:
            kept, step = kept[::2], 2 * step
    picked = np.unique(np.linspace(0, len(kept) - 1, min(samples, len(kept))).round().astype(int))
    return torch.stack([kept[i] for i in picked]).numpy()  # type: ignore[no-any-return]
