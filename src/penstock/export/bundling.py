"""Export a gated network as a bundle, verified against PyTorch before anything is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from penstock.datasets.loading import Data
from penstock.errors import ExportError, ShapeError
from penstock.evaluation.calibrate import choose_thresholds
from penstock.export.exporters import StageFile, load_exporter
from penstock.export.precision import Float32, Int8, Precision
from penstock.export.stage_module import check, is_gated
from penstock.export.verification import Decisions, collect_engine_outputs, compare
from penstock.gating.network import GatedNetwork
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.bundle.manifest import GateRule, Manifest, Stage
from penstock.runtime.engines import load_engines
from penstock.runtime.streaming.config import StreamConfig


@dataclass(frozen=True)
class Exported:
    """A written bundle, and how it compares with PyTorch.

    Attributes:
        errors: of each stage in float32, relative to its largest output.
        floats: of each stage, the operators that are left in float32 and how many of each; empty in float32.
        before, after: decisions of the network and of the bundle on ``check_on``; None without it.
    """

    bundle: Bundle
    errors: tuple[float, ...]
    floats: tuple[Mapping[str, int], ...]
    before: Decisions | None = None
    after: Decisions | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values, without the stages' files."""
        return {
            "id": self.bundle.manifest.id,
            "manifest": self.bundle.manifest.to_dict(),
            "errors": list(self.errors),
            "floats": list(map(dict, self.floats)),
            "before": None if self.before is None else asdict(self.before),
            "after": None if self.after is None else asdict(self.after),
        }

    def __str__(self) -> str:
        from penstock.export.tables import export_tables
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
    """Write a bundle: one file per stage, and a manifest. The network is unchanged.

    If the network has an ``image_config``, the bundle has it too: then pictures are its inputs.

    Before anything is written, the outputs of each stage are compared with PyTorch's, and so are the decisions on
    ``check_on``.

    Args:
        example: a batch of inputs; real samples make a stricter comparison than random ones.
        folder: where the bundle is written; an older bundle there is replaced.
        precision: numbers and file format of the stages.
        check_on: data on which decisions are compared, such as the validation data.
        labels: the name of each class; default: their numbers.
        stream_config: how the bundle processes a stream; see `penstock.runtime.streaming.listener`.

    Raises:
        ExportError: when a stage is not a static graph, or its outputs or the decisions differ from PyTorch's.
    """
    check(net)
    names = _class_names(net, labels)
    _check_stream_config(net, stream_config)
    _check_image_config(net)
    net = deepcopy(net).cpu().eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    example = _example(net, example)
    files = load_exporter(precision.format)(net, example, precision)
    manifest = Manifest(
        penstock=version("penstock"),
        model=net.spec.model,
        labels=names,
        background=net.background,
        precision="int8" if isinstance(precision, Int8) else "float32",
        stages=tuple(_stage(net, number, file, precision.format) for number, file in enumerate(files)),
        guarantee=net.guarantee if _keeps_gate_logits(net, precision) else None,
        stream_config=stream_config,
        image_config=net.image_config,
    )
    bundle = Bundle(manifest, tuple(file.content for file in files))
    _check_finite(bundle, example)
    if isinstance(precision, Int8) and precision.held_out is not None and net.guarantee is not None:
        bundle = _recalibrated(net, bundle, precision.held_out)
    exported = Exported(bundle, tuple(file.error for file in files), tuple(file.floats for file in files))
    if check_on is not None:
        before, after = compare(net, bundle, check_on, precision)
        exported = replace(exported, before=before, after=after)
    bundle.write(Path(folder))
    return exported


def _stage(net: GatedNetwork, number: int, file: StageFile, suffix: str) -> Stage:
    rule = None
    if number < len(net.layers) and is_gated(net, number):
        gate, threshold = net.layers[number].gate, net.thresholds[number]
        assert gate is not None and threshold is not None
        rule = GateRule(threshold, gate.positives)
    return Stage(
        file=f"stage-{number + 1}.{suffix}",
        sha256=hashlib.sha256(file.content).hexdigest(),
        file_bytes=len(file.content),
        macs=file.macs,
        input=file.input,
        output=file.output,
        gate=rule,
    )


def _recalibrated(net: GatedNetwork, bundle: Bundle, held_out: Data) -> Bundle:
    """Return the bundle with thresholds chosen from its own gate logits, for the loss that the network guarantees."""
    assert net.guarantee is not None
    outputs = collect_engine_outputs(load_engines(bundle, threads=0), held_out, progress="calibrating")
    thresholds, guarantee = choose_thresholds(
        net,
        outputs.labels,
        outputs.gates,
        max_positive_loss=net.guarantee.max_positive_loss,
        confidence=net.guarantee.confidence,
        active=[i for i in range(len(net.layers)) if is_gated(net, i)],
    )
    stages = list(bundle.manifest.stages)
    for number, threshold in enumerate(thresholds):
        rule = stages[number].gate
        if rule is not None and threshold is not None:
            stages[number] = replace(stages[number], gate=replace(rule, threshold=threshold))
    return replace(bundle, manifest=replace(bundle.manifest, stages=tuple(stages), guarantee=guarantee))


def _keeps_gate_logits(net: GatedNetwork, precision: Precision) -> bool:
    """Return whether the bundle's gate logits are the network's, so that its guarantee holds."""
    gates = sum(is_gated(net, i) for i in range(len(net.layers)))
    return isinstance(precision, Float32) and (precision.payload == "float32" or gates < 2)


def _check_finite(bundle: Bundle, example: Tensor) -> None:
    """Refuse a bundle whose values overflow the dtype in which they cross a link."""
    values = example.numpy()
    for number, engine in enumerate(load_engines(bundle), start=1):
        values, _ = engine.run(values)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise ExportError(f"outputs of stage {number} overflow {values.dtype}. Send float32 values instead.")


def _check_stream_config(net: GatedNetwork, stream_config: StreamConfig | None) -> None:
    if stream_config is None:
        return
    if stream_config.shape != net.spec.example_shape or net.spec.example_dtype != "float32":
        raise ExportError(
            f"expected a stream_config with windows of {net.spec.example_shape}, {net.spec.example_dtype}, got "
            f"{stream_config.shape}, float32. Use the stream_config that the network was trained with."
        )
    wrong = [word for word in stream_config.words if word == net.background or word >= net.spec.classes]
    if wrong:
        raise ExportError(
            f"words of the stream_config must be classes below {net.spec.classes} other than background "
            f"{net.background}, got {wrong}"
        )


def _check_image_config(net: GatedNetwork) -> None:
    image = net.image_config
    if image is not None and (image.shape != net.spec.example_shape or net.spec.example_dtype != "float32"):
        raise ExportError(
            f"expected an image_config for inputs {net.spec.example_shape}, {net.spec.example_dtype}, got "
            f"{image.shape}, float32. Use the image_config that the network was trained with."
        )


def _class_names(net: GatedNetwork, labels: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(map(str, range(net.spec.classes) if labels is None else labels))
    if len(names) != net.spec.classes:
        raise ExportError(f"expected {net.spec.classes} labels, one for each class, got {len(names)}")
    return names


def _example(net: GatedNetwork, example: Tensor) -> Tensor:
    """Return at least two samples: exporters take a batch of one for a constant."""
    if tuple(example.shape[1:]) != net.spec.example_shape:
        expected = ", ".join(map(str, net.spec.example_shape))
        raise ShapeError(f"expected an example of shape (batch, {expected}), got {tuple(example.shape)}")
    example = example.detach().cpu().contiguous()  # exporters have no operator for other strides
    return example if len(example) > 1 else torch.cat([example, example])
