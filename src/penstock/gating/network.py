"""The gated network: stages joined by gated compression layers, all plain modules."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from penstock.errors import CutError, LabelError, ShapeError
from penstock.gating.cascade import is_stopped
from penstock.gating.layers import ClassGate, GatedCompression
from penstock.gating.tables import network_table, render
from penstock.gating.temporary_mode import temporary_mode
from penstock.runtime.bundle.guarantee import Guarantee
from penstock.runtime.images.config import ImageConfig


class GatedOutput(NamedTuple):
    """The output of a forward pass in training.

    Attributes:
        logits: (batch, classes).
        gates: (batch,) for each layer, the logits that are compared with thresholds; None for a layer without a gate.
        gate_outputs: what `Objective` trains: ``gates``, but (batch, classes) where the gate is a `ClassGate`.
    """

    logits: Tensor
    gates: tuple[Tensor | None, ...]
    gate_outputs: tuple[Tensor | None, ...]


class Prediction(NamedTuple):
    """The result of a batch with the gates applied.

    Attributes:
        label: (batch,), `background` for samples that were stopped.
        exit_stage: (batch,), int64: the last stage that a sample ran through, counted from 1.
        stopped: (batch,), bool: whether a gate stopped it before the last stage.
        scores: (batch, layers), the probability of each gate that the sample is positive; NaN for gates not reached.
        logits: (batch, classes), NaN for samples that were stopped.
    """

    label: Tensor
    exit_stage: Tensor
    stopped: Tensor
    scores: Tensor
    logits: Tensor


@dataclass(frozen=True)
class CutSpec:
    """How a network was cut: all that is needed to cut it the same way again.

    Attributes:
        model: the name of the network's class.
        at: the names of the cuts.
        example_shape: of one sample, without the batch.
        example_dtype: such as 'float32'.
        classes: the number of classes.
        macs: multiply-accumulates per sample, of each stage.
        fixed_size: only inputs of the example's shape work, because a later stage uses sizes of earlier ones.
    """

    model: str
    at: tuple[str, ...]
    example_shape: tuple[int, ...]
    example_dtype: str
    classes: int
    macs: tuple[int, ...]
    fixed_size: bool = False


class GatedNetwork(nn.Module):
    """Stages joined by gated compression layers. Made by `gate`.

    Attributes:
        stages: one more than there are layers.
        layers: a `GatedCompression` after each stage but the last.
        background: the label of negatives, and of samples that are stopped.
        spec: where it was cut.
        guarantee: what its thresholds guarantee; None until calibrated.
        image_config: how a picture becomes its input, for bundles; None until set, as if its inputs are no pictures.
    """

    _origin: nn.Module | list[nn.Module]

    def __init__(
        self,
        stages: Sequence[nn.Module],
        layers: Sequence[GatedCompression],
        spec: CutSpec,
        origin: nn.Module | list[nn.Module],
        *,
        background: int = 0,
    ):
        super().__init__()
        known = f"a class of the network, 0 … {spec.classes - 1}"
        if not 0 <= background < spec.classes:
            raise LabelError(f"background must be {known}, got {background}.")
        gates = [layer.gate for layer in layers if layer.gate is not None]
        for gate in gates:
            unknown = [label for label in gate.positives or () if not 0 <= label < spec.classes]
            if unknown:
                raise LabelError(f"each of the positives must be {known}, got {unknown}.")
            if isinstance(gate, ClassGate) and gate.background != background:
                raise LabelError(f"expected a gate for background = {background}, got one for {gate.background}.")
        labels = torch.arange(spec.classes)
        if gates and not torch.stack([gate.omega(labels, background) for gate in gates]).all(0).any():
            raise LabelError(
                f"no class passes all gates, positives {[gate.positives for gate in gates]}: choose the positives of "
                "a later gate among those of the earlier ones."
            )
        self.stages = nn.ModuleList(stages)
        self.layers: Sequence[GatedCompression] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.spec = spec
        self.background = background
        self.guarantee: Guarantee | None = None
        self.image_config: ImageConfig | None = None
        # Not registered as a submodule: its modules are those of the stages.
        object.__setattr__(self, "_origin", origin)

    def forward(self, x: Tensor) -> GatedOutput:
        if self.spec.fixed_size and tuple(x.shape[1:]) != self.spec.example_shape:
            raise ShapeError(
                f"expected input {self._expected_shape}, got {tuple(x.shape)}: later stages use sizes of earlier "
                "ones. Gate the network with an example of the shape you need."
            )
        self._check_dtype(x)
        gates, outputs = [], []
        with self._explained(x):
            for stage, layer in zip(self.stages, self.layers, strict=False):
                x, output = layer(stage(x))
                outputs.append(output)
                gates.append(None if layer.gate is None else layer.gate.gate_logit(output))
                if isinstance(self._origin, list):  # a user's own stage may change its input in place
                    x = x.clone()
            return GatedOutput(self.stages[-1](x), tuple(gates), tuple(outputs))

    @torch.no_grad()
    def predict(self, x: Tensor, *, active: Collection[int] | None = None) -> Prediction:
        """Classify a batch; later stages compute only the samples that were not stopped.

        Args:
            x: (batch, ...).
            active: the layers whose gates are on, counted from 0; None for all. ``{i}`` is the paper's independent
                gating, ``range(i + 1)`` its incremental gating.
        """
        on = self.active(active)
        self._check_input(x)
        alive = torch.arange(len(x), device=x.device)
        exit_stage = torch.full((len(x),), len(self.stages), device=x.device)
        scores = torch.full((len(x), len(self.layers)), torch.nan, device=x.device)
        label = torch.full((len(x),), self.background, device=x.device)
        logits = torch.full((len(x), self.spec.classes), torch.nan, device=x.device)
        with temporary_mode(self, training=False), self._explained(x):
            for i, (stage, layer) in enumerate(zip(self.stages, self.layers, strict=False)):
                x = stage(x)
                if layer.gate is not None and i in on:
                    logit = layer.gate.gate_logit(layer.score(x))
                    scores[alive, i] = logit.sigmoid()
                    stopped = is_stopped(logit, layer.gate.threshold)
                    exit_stage[alive[stopped]] = i + 1
                    alive, x = alive[~stopped], x[~stopped]
                    if not len(alive):
                        break
                x = layer.send(x)
            else:
                logits[alive] = self.stages[-1](x).float()
                label[alive] = logits[alive].argmax(1)
        return Prediction(label, exit_stage, exit_stage < len(self.stages), scores, logits)

    def active(self, active: Collection[int] | None = None) -> frozenset[int]:
        """Return the layers whose gates are on; an error if one of them has no gate."""
        gated = {i for i, layer in enumerate(self.layers) if layer.gate is not None}
        if active is None:
            return frozenset(gated)
        wrong = sorted(set(active) - gated)
        if wrong:
            raise CutError(f"active must be among the layers with a gate, {sorted(gated)}, got {wrong}.")
        return frozenset(active)

    def positive(self, labels: Tensor, active: Collection[int] | None = None) -> Tensor:
        """Return which labels are positive for every gate that is on, or for every gate if none is."""
        on = self.active(active) or self.active()
        positive = torch.ones_like(labels, dtype=torch.bool) if on else labels != self.background
        for i, layer in enumerate(self.layers):
            if layer.gate is not None and i in on:
                positive &= layer.gate.omega(labels, self.background)
        return positive

    @property
    def thresholds(self) -> tuple[float | None, ...]:
        """The logit at which a sample passes each layer's gate. Setting them removes the guarantee."""
        return tuple(None if layer.gate is None else layer.gate.threshold.item() for layer in self.layers)

    @thresholds.setter
    def thresholds(self, values: Sequence[float | None]) -> None:
        if len(values) != len(self.layers):
            raise CutError(f"expected {len(self.layers)} thresholds, one per layer, got {len(values)}.")
        if any(value != value for value in values):
            raise CutError(f"thresholds must not be NaN, got {list(values)}.")
        for layer, value in zip(self.layers, values, strict=True):
            if layer.gate is not None and value is not None:
                layer.gate.threshold.fill_(value)
        self.guarantee = None

    @property
    def origin(self) -> nn.Module | list[nn.Module]:
        """The network that was cut, with the current weights; shared, not copied (`ungate` copies)."""
        if isinstance(self._origin, nn.Module):
            for stage in self.stages:
                _share_tensors(self._origin, stage)
        return self._origin

    def train(self, mode: bool = True) -> GatedNetwork:
        """Set the mode, of the network that was cut too: some of its modules are in no stage."""
        for module in [self._origin] if isinstance(self._origin, nn.Module) else self._origin:
            module.train(mode)
        return super().train(mode)

    def __str__(self) -> str:
        return render(network_table(self))

    def _check_dtype(self, x: Tensor) -> None:
        """Explain the usual mistakes, numpy's default dtype and pixels, more clearly than torch does."""
        if x.is_floating_point() != ("float" in self.spec.example_dtype):
            raise self._unlike_example(x)
        if x.dtype == torch.float64:
            dtype = next((weight.dtype for weight in self.parameters() if weight.is_floating_point()), x.dtype)
            if dtype != x.dtype:
                raise ShapeError(f"expected input of {dtype}, as the weights are, got {x.dtype}: use x.float().")

    def _check_input(self, x: Tensor) -> None:
        self._check_dtype(x)
        shape = self.spec.example_shape
        any_length = not self.spec.fixed_size and all(layer.any_length for layer in self.layers)
        fits = x.ndim == len(shape) + 1 and (any_length or tuple(x.shape[1:]) == shape)
        if not fits:
            raise self._unlike_example(x)
        bad = not_finite(x)
        if bad:
            raise ShapeError(
                f"NaN or infinity in samples {bad[:10]} of {len(x)}: stopping them silently would hide a broken "
                "sensor. Replace or drop these samples before predicting."
            )

    @contextmanager
    def _explained(self, x: Tensor) -> Iterator[None]:
        """Replace what torch says about an input of another shape than the example's."""
        try:
            yield
        except RuntimeError as error:
            if tuple(x.shape[1:]) == self.spec.example_shape:
                raise
            raise self._unlike_example(x) from error

    def _unlike_example(self, x: Tensor) -> ShapeError:
        advice = " Pictures become inputs with ImageConfig(...).preprocess." if x.ndim == 4 else ""
        expected = f"{self._expected_shape}, {self.spec.example_dtype}"
        return ShapeError(f"expected input {expected}, got {tuple(x.shape)}, {x.dtype}.{advice}")

    @property
    def _expected_shape(self) -> str:
        return f"(batch, {', '.join(map(str, self.spec.example_shape))})"


def not_finite(x: Tensor) -> list[int]:
    """Return the indices of the samples that contain NaN or infinity."""
    if not x.is_floating_point() or torch.isfinite(x.sum()):  # a fast check: a sum keeps NaN and infinity
        return []
    return (~torch.isfinite(x)).flatten(1).any(1).nonzero().flatten().tolist()


def _share_tensors(origin: nn.Module, stage: nn.Module) -> None:
    """Give the network that was cut the tensors that a stage holds itself.

    A stage shares whole modules with it, but a tensor that `forward` reads directly is registered with the stage again.
    """
    for kind in ("_parameters", "_buffers"):
        for path, part in stage.named_modules():
            for name, tensor in getattr(part, kind).items():
                if not name.startswith("_tensor_constant"):
                    getattr(origin.get_submodule(path), kind)[name] = tensor
