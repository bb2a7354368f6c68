"""Leave the notebook: each stage a static graph, checked against PyTorch before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import onnx_ir as ir
import torch
from torch import Tensor

from penstock.datasets.loading import Data, batches
from penstock.errors import ExportError, ShapeError
from penstock.evaluation.calibrate import choose_thresholds
from penstock.evaluation.outputs import collect_outputs
from penstock.export.channel_pruning import prune_channels
from penstock.export.onnx_graph import cleaned, macs, to_bytes, to_graph
from penstock.export.payload import give, spread_over, take
from penstock.export.quantization import quantize
from penstock.export.stage_module import DeployedStage, check, is_gated
from penstock.export.verification import (
    Decisions,
    Outputs,
    check_decisions,
    check_error,
    collect_engine_outputs,
    relative_error,
)
from penstock.gating.network import GatedNetwork
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import TYPES, GateRule, Manifest, Stage, TensorSpec
from penstock.runtime.engines import load_engines
from penstock.runtime.engines.onnxruntime import OnnxRuntime
from penstock.runtime.streaming.config import StreamConfig

SAMPLES = 512
"""That ranges of 8-bit numbers are taken from, spread over the data given."""

ALLOWED = 0.001
"""By how much a bundle of floats may decide worse."""


@dataclass(frozen=True)
class Float32:
    """Stages reckon in floats; what crosses a link is cut to 16 bits if asked for."""

    payload: Literal["float32", "float16"] = "float32"


@dataclass(frozen=True, eq=False)
class Int8:
    """Stages reckon in 8 bits, and 8 bits a value cross a link.

    Attributes:
        ranges_from: data whose values tell the ranges; that of the training will do.
        held_out: data that thresholds are chosen on anew, to keep the promise that the network was calibrated for: in 8
            bits its gates say something else. Without it the thresholds stay, and the bundle promises nothing.
        allowed: by how much accuracy and early stopping may fall, and the positives lost rise, on ``check_on``.
    """

    ranges_from: Data
    held_out: Data | None = None
    allowed: float = 0.005


Precision: TypeAlias = Float32 | Int8


@dataclass(frozen=True)
class Exported:
    """What was written, and how it compares with PyTorch.

    Attributes:
        bundle: as it lies in the folder.
        errors: of each stage in floats, in parts of its largest output.
        before, after: what both decide on ``check_on``; None without it.
    """

    bundle: Bundle
    errors: tuple[float, ...]
    before: Decisions | None = None
    after: Decisions | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, without the graphs."""
        return {
            "id": self.bundle.manifest.id,
            "manifest": self.bundle.manifest.to_dict(),
            "errors": list(self.errors),
            "before": None if self.before is None else asdict(self.before),
            "after": None if self.after is None else asdict(self.after),
        }

    def __str__(self) -> str:
        from penstock.evaluation.tables import export_tables
        from penstock.gating.tables import render

        return render(*export_tables(self))


def export_bundle(
    net: GatedNetwork,
    example: Tensor,
    folder: str | Path,
    *,
    precision: Precision = Float32(),
    check_on: Data | None = None,
    labels: Sequence[str] | None = None,
    stream_config: StreamConfig | None = None,
) -> Exported:
    """Write a bundle: one ONNX graph a stage, and a manifest. The network stays as it is.

    Each stage is compared with PyTorch's before anything is written; so is what the network decides, given data.

    Args:
        example: a batch as the network takes it; real samples compare more than random ones.
        folder: where the bundle goes; an older one there is replaced.
        check_on: data to compare decisions on, such as the validation data.
        labels: the name of each class; default: their numbers.
        stream_config: how the bundle listens to a stream; see `penstock.runtime.streaming.listener`.

    Raises:
        ExportError: when a stage is no static graph, or its export computes or decides something else.
    """
    check(net)
    names = _names(net, labels)
    _check_hearing(net, stream_config)
    net = deepcopy(net).cpu().eval()
    example = _example(net, example)
    graphs, errors = _graphs(net, example)
    counts = [macs(graph) for graph in graphs]
    crossing = _crossing(net, example)
    if isinstance(precision, Int8):
        graphs, crossing = _in_8_bits(net, graphs, crossing, precision)
    else:
        crossing[1:-1] = [replace(values, dtype=precision.payload) for values in crossing[1:-1]]
    for before, behind, values in zip(graphs, graphs[1:], crossing[1:], strict=False):
        give(before, values)
        take(behind, values)
    contents = tuple(to_bytes(graph) for graph in graphs)
    manifest = Manifest(
        penstock=version("penstock"),
        model=net.spec.model,
        labels=names,
        background=net.background,
        precision="int8" if isinstance(precision, Int8) else "float32",
        stages=_stages(net, contents, counts, crossing),
        guarantee=net.guarantee if _keeps_scores(net, precision) else None,
        stream_config=stream_config,
    )
    bundle = Bundle(manifest, contents)
    _check_finite(bundle, example)
    if isinstance(precision, Int8) and precision.held_out is not None and net.guarantee is not None:
        bundle = _calibrated(net, bundle, precision.held_out)
    exported = Exported(bundle, errors)
    if check_on is not None:
        exported = _compared(net, exported, check_on)
        assert exported.before is not None and exported.after is not None
        check_decisions(exported.before, exported.after, precision.allowed if isinstance(precision, Int8) else ALLOWED)
    bundle.write(Path(folder))
    return exported


@torch.no_grad()
def _graphs(net: GatedNetwork, example: Tensor) -> tuple[list[ir.Model], tuple[float, ...]]:
    """Return each stage as a graph, and by how much it differs from PyTorch's."""
    graphs, errors, values = [], [], example
    for number in range(len(net.stages)):
        stage = DeployedStage(net, number).eval()
        graph = cleaned(prune_channels(to_graph(stage, values, number + 1)))
        engine = OnnxRuntime(to_bytes(graph))
        for some in (values, values[:1]):
            wanted = stage(some)
            errors.append(relative_error(engine.run(some.numpy()), wanted))
            check_error(errors[-1], number + 1)
        graphs.append(graph)
        whole = stage(values)
        values = whole[0] if isinstance(whole, tuple) else whole
    return graphs, tuple(max(pair) for pair in zip(errors[::2], errors[1::2], strict=True))


@torch.no_grad()
def _crossing(net: GatedNetwork, example: Tensor) -> list[TensorSpec]:
    """Return what goes into the first stage, what crosses each link, and what the last stage gives."""
    dtype = str(example.dtype).removeprefix("torch.")
    if dtype not in TYPES:
        raise ExportError(
            f"an example of {dtype} came; a bundle takes {', '.join(TYPES)}. Convert it before the network."
        )
    kept = [(layer.transmitted_values,) for layer in net.layers]
    shapes = [*kept, (net.spec.classes,)]
    return [TensorSpec(tuple(example.shape[1:]), dtype), *(TensorSpec(shape, "float32") for shape in shapes)]


def _in_8_bits(
    net: GatedNetwork, graphs: list[ir.Model], crossing: list[TensorSpec], precision: Int8
) -> tuple[list[ir.Model], list[TensorSpec]]:
    """Return the graphs in 8 bits, and in which numbers values cross the links."""
    values = _some(precision.ranges_from)
    made, numbers = [], [crossing[0]]
    for number, graph in enumerate(graphs):
        engine = OnnxRuntime(to_bytes(graph), threads=0)
        made.append(quantize(graph, [values[i : i + 32] for i in range(0, len(values), 32)]))
        values, said = engine.run(values)
        threshold = net.thresholds[number] if number < len(net.layers) else None
        if said is not None and threshold is not None and (said >= threshold).any():
            values = values[said >= threshold]  # the next stage sees only what passes
        spec = crossing[number + 1]
        last = number == len(graphs) - 1
        numbers.append(spec if last else TensorSpec(spec.shape, "int8", *spread_over(values)))
    return made, numbers


def _some(data: Data) -> np.ndarray:
    """Return some samples, spread over the data, of which never many more are held than are returned."""
    kept: list[Tensor] = []
    every, seen = 1, 0  # each `every`-th sample is kept
    for x, _ in batches(data, batch_size=256):
        kept += [x[i].clone() for i in range(-seen % every, len(x), every)]
        seen += len(x)
        while len(kept) >= 2 * SAMPLES:
            kept, every = kept[::2], 2 * every
    picked = np.unique(np.linspace(0, len(kept) - 1, min(SAMPLES, len(kept))).round().astype(int))
    return torch.stack([kept[i] for i in picked]).numpy()  # type: ignore[no-any-return]


def _stages(
    net: GatedNetwork, contents: Sequence[bytes], counts: Sequence[int], crossing: Sequence[TensorSpec]
) -> tuple[Stage, ...]:
    return tuple(
        Stage(
            file=f"stage-{number + 1}.onnx",
            sha256=hashlib.sha256(content).hexdigest(),
            file_bytes=len(content),
            macs=counts[number],
            input=crossing[number],
            output=crossing[number + 1],
            gate=_rule(net, number),
        )
        for number, content in enumerate(contents)
    )


def _rule(net: GatedNetwork, number: int) -> GateRule | None:
    if number >= len(net.layers) or not is_gated(net, number):
        return None
    gate, threshold = net.layers[number].gate, net.thresholds[number]
    assert gate is not None and threshold is not None
    return GateRule(threshold, gate.positives)


def _calibrated(net: GatedNetwork, bundle: Bundle, held_out: Data) -> Bundle:
    """Choose thresholds anew, by what the exported gates say; with the promise of the network's own."""
    asked = net.guarantee
    assert asked is not None
    said = collect_engine_outputs(load_engines(bundle, threads=0), held_out, progress="calibrating")
    thresholds, guarantee = choose_thresholds(
        net,
        said.labels,
        said.gates,
        max_positive_loss=asked.max_positive_loss,
        confidence=asked.confidence,
        active=[i for i in range(len(net.layers)) if is_gated(net, i)],
    )
    stages = list(bundle.manifest.stages)
    for number, threshold in enumerate(thresholds):
        rule = stages[number].gate
        if rule is not None and threshold is not None:
            stages[number] = replace(stages[number], gate=replace(rule, threshold=threshold))
    return replace(bundle, manifest=replace(bundle.manifest, stages=tuple(stages), guarantee=guarantee))


def _compared(net: GatedNetwork, exported: Exported, data: Data) -> Exported:
    """Decide about the same data with PyTorch and with the bundle."""
    stages = exported.bundle.manifest.stages
    thresholds = [None if stage.gate is None else stage.gate.threshold for stage in stages[:-1]]
    before = Outputs(*collect_outputs(net, data, progress="PyTorch"))
    after = collect_engine_outputs(load_engines(exported.bundle, threads=0), data, progress="exported")
    return replace(exported, before=before.decided(net, net.thresholds), after=after.decided(net, thresholds))


def _keeps_scores(net: GatedNetwork, precision: Precision) -> bool:
    """Say whether the gates say what the network's own say, so that the promise of their thresholds holds."""
    gates = sum(is_gated(net, i) for i in range(len(net.layers)))
    return isinstance(precision, Float32) and (precision.payload == "float32" or gates < 2)


def _check_finite(bundle: Bundle, example: Tensor) -> None:
    """Refuse a bundle whose values do not fit the type in which they cross a link."""
    values = example.numpy()
    for number, engine in enumerate(load_engines(bundle), start=1):
        values, _ = engine.run(values)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ExportError(
                f"what stage {number} gives does not fit {values.dtype}: it becomes infinite. Let float32 cross."
            )


def _check_hearing(net: GatedNetwork, stream_config: StreamConfig | None) -> None:
    if stream_config is None:
        return
    if stream_config.shape != net.spec.example_shape or net.spec.example_dtype != "float32":
        raise ExportError(
            f"windows of {stream_config.shape} came with the hearing, and the network takes {net.spec.example_shape}, "
            f"{net.spec.example_dtype}: give the hearing that it was trained with."
        )
    wrong = [word for word in stream_config.words if word == net.background or word >= net.spec.classes]
    if wrong:
        raise ExportError(
            f"the hearing listens for the labels {wrong}: give labels of interest, below {net.spec.classes} and not "
            f"the background, {net.background}."
        )


def _names(net: GatedNetwork, labels: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(map(str, range(net.spec.classes) if labels is None else labels))
    if len(names) != net.spec.classes:
        raise ExportError(
            f"{len(names)} labels came, and the network has {net.spec.classes} classes: name each of them."
        )
    return names


def _example(net: GatedNetwork, example: Tensor) -> Tensor:
    """Return at least two samples: a batch of one would be taken for a constant."""
    if tuple(example.shape[1:]) != net.spec.example_shape:
        raise ShapeError(
            f"an example of shape {tuple(example.shape)} came; this network was gated for (batch, "
            f"{', '.join(map(str, net.spec.example_shape))}), and a bundle is made for that."
        )
    example = example.detach().cpu()
    return example if len(example) > 1 else torch.cat([example, example])
