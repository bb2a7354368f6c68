"""The gated network: stages joined by gated compression layers, all plain modules."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn

from penstock.errors import CutError, LabelError, ShapeError
from penstock.layers import GatedCompression
from penstock.mode import mode


class GatedOutput(NamedTuple):
    """What a forward pass gives for training.

    Attributes:
        logits: (batch, classes).
        gates: the logits (batch,) of each layer's gate; None for a layer without a gate.
    """

    logits: Tensor
    gates: tuple[Tensor | None, ...]


class Prediction(NamedTuple):
    """What becomes of each sample when gates really stop it.

    Attributes:
        label: (batch,), `background` for what was stopped.
        stopped_at: (batch,), the number of the layer whose gate stopped it, counted from 0; -1 if none did.
        scores: (batch, layers), each gate's probability that the sample is of interest; NaN where it did not get.
        logits: (batch, classes), NaN for what was stopped.
    """

    label: Tensor
    stopped_at: Tensor
    scores: Tensor
    logits: Tensor


@dataclass(frozen=True)
class Certificate:
    """The promise that thresholds keep: with this confidence, no more positives are lost than the bound.

    Attributes:
        positives: how many positives the promise was tested on.
        lost: how many of them the cascade stopped.
        bound: the upper confidence bound of the share that is lost.
        max_positive_loss: the share that was allowed.
        confidence: 1 − δ.
        thresholds: of each layer's gate, as logits; None without a gate.
    """

    positives: int
    lost: int
    bound: float
    max_positive_loss: float
    confidence: float
    thresholds: tuple[float | None, ...]

    def __str__(self) -> str:
        return (
            f"with {self.confidence:.1%} confidence at most {self.bound:.2%} of the positives are lost "
            f"(allowed {self.max_positive_loss:.2%}; {self.lost} of {self.positives} were)"
        )


@dataclass(frozen=True)
class Plan:
    """Where and out of what a gated network was made; all that is needed to make it again.

    Attributes:
        model: the name of the network's class.
        at: the names of the cuts.
        example_shape: of one sample, without the batch.
        example_dtype: such as 'float32'.
        classes: how many the network tells apart.
        macs: a sample, of each stage.
    """

    model: str
    at: tuple[str, ...]
    example_shape: tuple[int, ...]
    example_dtype: str
    classes: int
    macs: tuple[int, ...]


@dataclass(eq=False)
class _Origin:
    """The network that was cut; its modules are the stages' own, so it always has the trained weights."""

    model: nn.Module | list[nn.Module] = field(repr=False)


class GatedNetwork(nn.Module):
    """Stages joined by gated compression layers. Made by `gate`.

    Attributes:
        stages: one more than there are layers.
        layers: a `GatedCompression` behind each stage but the last.
        background: the label of what is of no interest, and of what is stopped.
        plan: where it was cut.
        certificate: the promise its thresholds keep, None until calibrated.
    """

    def __init__(
        self,
        stages: Sequence[nn.Module],
        layers: Sequence[GatedCompression],
        plan: Plan,
        origin: nn.Module | list[nn.Module],
        *,
        background: int = 0,
    ):
        super().__init__()
        if not 0 <= background < plan.classes:
            raise LabelError(
                f"background = {background} is no class of this network; its classes are 0 … {plan.classes - 1}."
            )
        for layer in layers:
            wrong = [c for c in (layer.gate.positives or ()) if not 0 <= c < plan.classes] if layer.gate else []
            if wrong:
                raise LabelError(
                    f"positives {wrong} are no classes of this network; its classes are 0 … {plan.classes - 1}."
                )
        self.stages = nn.ModuleList(stages)
        self.layers: Sequence[GatedCompression] = nn.ModuleList(layers)  # type: ignore[assignment]
        self.plan = plan
        self.background = background
        self.certificate: Certificate | None = None
        self._origin = _Origin(origin)

    def forward(self, x: Tensor) -> GatedOutput:
        gates = []
        for stage, layer in zip(self.stages, self.layers, strict=False):
            x, logit = layer(stage(x))
            gates.append(logit)
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
        with mode(self, training=False):
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

    def positive(self, labels: Tensor) -> Tensor:
        """Say which labels are of interest to every gate: what must reach the end."""
        wanted = labels != self.background if not self.active() else torch.ones_like(labels, dtype=torch.bool)
        for i in self.active():
            wanted &= self._gate(i).omega(labels, self.background)
        return wanted

    @property
    def thresholds(self) -> tuple[float | None, ...]:
        """The logit at which a sample passes each layer's gate. Setting them by hand voids the certificate."""
        return tuple(None if layer.gate is None else layer.gate.threshold.item() for layer in self.layers)

    @thresholds.setter
    def thresholds(self, values: Sequence[float | None]) -> None:
        if len(values) != len(self.layers):
            raise CutError(
                f"{len(values)} thresholds came for {len(self.layers)} layers: give one for each, None without a gate."
            )
        for layer, value in zip(self.layers, values, strict=True):
            if layer.gate is not None and value is not None:
                layer.gate.threshold.fill_(value)
        self.certificate = None

    @property
    def origin(self) -> nn.Module | list[nn.Module]:
        """The network that was cut, with the weights as they are now; shared, not copied (`ungate` copies)."""
        return self._origin.model

    def __str__(self) -> str:
        from penstock.report.tables import network_table, render

        return render(network_table(self))

    def _gate(self, i: int):  # type: ignore[no-untyped-def]
        gate = self.layers[i].gate
        assert gate is not None
        return gate

    def _predict(self, x: Tensor, active: frozenset[int]) -> Prediction:
        batch = len(x)
        alive = torch.arange(batch, device=x.device)
        stopped_at = torch.full((batch,), -1, device=x.device)
        scores = torch.full((batch, len(self.layers)), torch.nan, device=x.device)
        label = torch.full((batch,), self.background, device=x.device)
        logits = torch.full((batch, self.plan.classes), torch.nan, device=x.device)
        for i, (stage, layer) in enumerate(zip(self.stages, self.layers, strict=False)):
            x = stage(x)
            if i in active:
                logit = layer.score(x)
                scores[alive, i] = logit.sigmoid()
                passed = logit.double() >= self._gate(i).threshold
                stopped_at[alive[~passed]] = i
                alive, x = alive[passed], x[passed]
                if not len(alive):
                    return Prediction(label, stopped_at, scores, logits)
            x = layer.thin(x)
        out = self.stages[-1](x).float()
        logits[alive] = out
        label[alive] = out.argmax(1)
        return Prediction(label, stopped_at, scores, logits)

    def _check_input(self, x: Tensor) -> None:
        if x.ndim != len(self.plan.example_shape) + 1:
            raise ShapeError(
                f"an input of shape {tuple(x.shape)} came; this network takes (batch, "
                f"{', '.join(map(str, self.plan.example_shape))})."
            )
        if x.is_floating_point() and not torch.isfinite(x).all():
            bad = (~torch.isfinite(x)).flatten(1).any(1).nonzero().flatten().tolist()
            raise ShapeError(
                f"NaN or infinity in samples {bad[:10]} of {len(x)}: a gate cannot judge them, and "
                "stopping them silently would hide a "
                "broken sensor. Replace or drop these samples before predicting."
            )
