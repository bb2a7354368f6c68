"""The gated network: stages joined by gated compression layers, all plain modules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from penstock.errors import CutError, LabelError, ShapeError
from penstock.gating.cascade import is_stopped
from penstock.gating.layers import ClassGate, GatedCompression
from penstock.gating.tables import network_table, render
from penstock.gating.temporary_mode import temporary_mode
from penstock.runtime.bundle.guarantee import Guarantee


class GatedOutput(NamedTuple):
    """What a forward pass gives for training.

    Attributes:
        logits: (batch, classes).
        gates: what each layer's gate says, its logits (batch,), or those of a `ClassGate` (batch, classes), of which
            the gate's ``gate_logit`` makes (batch,); None for a layer without a gate.
    """

    logits: Tensor
    gates: tuple[Tensor | None, ...]


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
    """Where and out of what a gated network was made; all that is needed to make it again.

    Attributes:
        model: the name of the network's class.
        at: the names of the cuts.
        example_shape: of one sample, without the batch.
        example_dtype: such as 'float32'.
        classes: how many the network tells apart.
        macs: a sample, of each stage.
        fixed_size: only inputs of the example's shape are right, because a later stage uses sizes of earlier ones.
    """

    model: str
    at: tuple[str, ...]
    example_shape: tuple[int, ...]
    example_dtype: str
    classes: int
    macs: tuple[int, ...]
    fixed_size: bool = False


@dataclass(eq=False)
class _Origin:
    """The network that was cut; its modules are the stages' own, so it always has the trained weights."""

    model: nn.Module | list[nn.Module] = field(repr=False)

    def parts(self) -> list[nn.Module]:
        """Return it as a list."""
        return [self.model] if isinstance(self.model, nn.Module) else self.model


class GatedNetwork(nn.Module):
    """Stages joined by gated compression layers. Made by `gate`.

    Attributes:
        stages: one more than there are layers.
        layers: a `GatedCompression` behind each stage but the last.
        background: the label of what is of no interest, and of what is stopped.
        spec: where it was cut.
        guarantee: what its thresholds guarantee; None until calibrated.
    """

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
        if not 0 <= background < spec.classes:
            raise LabelError(
                f"background = {background} is no class of this network; its classes are 0 … {spec.classes - 1}."
            )
        for layer in layers:
            wrong = [c for c in (layer.gate.positives or ()) if not 0 <= c < spec.classes] if layer.gate else []
            if wrong:
                raise LabelError(
                    f"positives {wrong} are no classes of this network; its classes are 0 … {spec.classes - 1}."
                )
            if isinstance(layer.gate, ClassGate) and layer.gate.background != background:
                raise LabelError(
                    f"a gate that learns classes was made for background = {layer.gate.background}, and the network "
                    f"has {background}: make both for the same."
                )
        gates = [layer.gate for layer in layers if layer.gate is not None]
        every = torch.arange(spec.classes)
        if gates and not torch.stack([gate.omega(every, background) for gate in gates]).all(0).any():
            raise LabelError(
                f"nothing is of interest to all gates (positives {[gate.positives for gate in gates]}), so nothing "
                "could reach the end: let the positives of a later gate be among those of the earlier ones."
            )
        self.stages = nn.ModuleList(stages)
        self.layers: Sequence[GatedCompression] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.spec = spec
        self.background = background
        self.guarantee: Guarantee | None = None
        self._origin = _Origin(origin)

    def forward(self, x: Tensor) -> GatedOutput:
        if self.spec.fixed_size and tuple(x.shape[1:]) != self.spec.example_shape:
            raise ShapeError(
                f"an input of shape {tuple(x.shape)} came; a later stage of this network uses sizes of earlier ones, "
                f"so only {('batch', *self.spec.example_shape)} is right. Gate it with an example of the shape needed."
            )
        self._check_dtype(x)
        gates = []
        for stage, layer in zip(self.stages, self.layers, strict=False):
            x, logit = layer(stage(x))
            gates.append(logit)
            if isinstance(self._origin.model, list):  # a stage that was given may change its input in place
                x = x.clone()
        return GatedOutput(self.stages[-1](x), tuple(gates))

    @torch.no_grad()
    def predict(self, x: Tensor, *, active: Collection[int] | None = None) -> Prediction:
        """Classify a batch, and really stop: later stages see only the survivors.

        Args:
            x: (batch, ...).
            active: the layers whose gates are switched on; None for all. ``{i}`` is the paper's independent gating,
                ``range(i + 1)`` its incremental gating.
        """
        active = self.active(active)
        self._check_input(x)
        with temporary_mode(self, training=False):
            return self._predict(x, active)

    def active(self, active: Collection[int] | None = None) -> frozenset[int]:
        """Return the layers whose gates are on, after a check."""
        gated = {i for i, layer in enumerate(self.layers) if layer.gate is not None}
        if active is None:
            return frozenset(gated)
        wrong = sorted(set(active) - gated)
        if wrong:
            raise CutError(f"there is no gate {wrong}: the gates of this network are {sorted(gated)}, counted from 0.")
        return frozenset(active)

    def positive(self, labels: Tensor, active: Collection[int] | None = None) -> Tensor:
        """Say which labels are of interest to every gate that is on, or to every gate if none is."""
        gates = self.active(active) or self.active()
        wanted = torch.ones_like(labels, dtype=torch.bool) if gates else labels != self.background
        for i in gates:
            wanted &= self._gate(i).omega(labels, self.background)
        return wanted

    @property
    def thresholds(self) -> tuple[float | None, ...]:
        """The logit at which a sample passes each layer's gate. Setting them voids the guarantee."""
        return tuple(None if layer.gate is None else layer.gate.threshold.item() for layer in self.layers)

    @thresholds.setter
    def thresholds(self, values: Sequence[float | None]) -> None:
        if len(values) != len(self.layers):
            raise CutError(
                f"expected {len(self.layers)} thresholds, one per layer (None without a gate), got {len(values)}."
            )
        if any(value != value for value in values):
            raise CutError(f"thresholds must not be NaN, got {list(values)}.")
        for layer, value in zip(self.layers, values, strict=True):
            if layer.gate is not None and value is not None:
                layer.gate.threshold.fill_(value)
        self.guarantee = None

    @property
    def origin(self) -> nn.Module | list[nn.Module]:
        """The network that was cut, with the weights as they are now; shared, not copied (`ungate` copies)."""
        if isinstance(self._origin.model, nn.Module):
            for stage in self.stages:
                _take_over(self._origin.model, stage)
        return self._origin.model

    def train(self, mode: bool = True) -> GatedNetwork:
        """Set the mode, of the network that was cut too: some of its modules are in no stage."""
        for module in self._origin.parts() if hasattr(self, "_origin") else ():
            module.train(mode)
        return super().train(mode)

    def __str__(self) -> str:
        return render(network_table(self))

    def _gate(self, i: int):  # type: ignore[no-untyped-def]
        gate = self.layers[i].gate
        assert gate is not None
        return gate

    def _predict(self, x: Tensor, active: frozenset[int]) -> Prediction:
        batch = len(x)
        alive = torch.arange(batch, device=x.device)
        exit_stage = torch.full((batch,), len(self.stages), device=x.device)
        scores = torch.full((batch, len(self.layers)), torch.nan, device=x.device)
        label = torch.full((batch,), self.background, device=x.device)
        logits = torch.full((batch, self.spec.classes), torch.nan, device=x.device)
        for i, (stage, layer) in enumerate(zip(self.stages, self.layers, strict=False)):
            x = stage(x)
            if i in active:
                logit = self._gate(i).gate_logit(layer.score(x))
                scores[alive, i] = logit.sigmoid()
                stopped = is_stopped(logit, self._gate(i).threshold)
                exit_stage[alive[stopped]] = i + 1
                passed = ~stopped
                alive, x = alive[passed], x[passed]
                if not len(alive):
                    break
            x = layer.apply_mask(x)
        else:
            out = self.stages[-1](x).float()
            logits[alive] = out
            label[alive] = out.argmax(1)
        return Prediction(label, exit_stage, exit_stage < len(self.stages), scores, logits)

    def _check_dtype(self, x: Tensor) -> None:
        """Refuse what numpy gives by default, and weights hardly ever are: torch says it in its own words."""
        if x.dtype == torch.float64:
            weights = next((one.dtype for one in self.parameters() if one.is_floating_point()), x.dtype)
            if weights != x.dtype:
                raise ShapeError(f"an input of float64 came, and the weights are {weights}: convert it, x.float().")

    def _check_input(self, x: Tensor) -> None:
        self._check_dtype(x)
        wanted = self.spec.example_shape
        any_length = not self.spec.fixed_size and all(layer.any_length for layer in self.layers)
        fits = x.ndim == len(wanted) + 1 and (any_length or tuple(x.shape[1:]) == wanted)
        if not fits or x.is_floating_point() != ("float" in self.spec.example_dtype):
            raise ShapeError(
                f"an input of shape {tuple(x.shape)}, {x.dtype}, came; this network takes (batch, "
                f"{', '.join(map(str, wanted))}), {self.spec.example_dtype}."
            )
        bad = not_finite(x)
        if bad:
            raise ShapeError(
                f"NaN or infinity in samples {bad[:10]} of {len(x)}: a gate cannot judge them, and stopping them "
                "silently would hide a broken sensor. Replace or drop these samples before predicting."
            )


def not_finite(x: Tensor) -> list[int]:
    """Return the numbers of the samples that hold NaN or infinity."""
    if not x.is_floating_point() or torch.isfinite(x.sum()):  # neither is ever lost in a sum, and sums are quick
        return []
    return (~torch.isfinite(x)).flatten(1).any(1).nonzero().flatten().tolist()


def _take_over(origin: nn.Module, stage: nn.Module) -> None:
    """Give the network that was cut the tensors of a stage, where the stage holds them by itself.

    A stage shares whole modules with it, but a tensor that `forward` reads directly is registered with the stage anew.
    """
    for kind in ("_parameters", "_buffers"):
        for path, part in stage.named_modules():
            for name, tensor in getattr(part, kind).items():
                if not name.startswith("_tensor_constant"):
                    getattr(origin.get_submodule(path), kind)[name] = tensor
