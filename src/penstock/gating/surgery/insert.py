"""Put gates into a network, and take them out again."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from numbers import Integral

from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from penstock.errors import CutError, LabelError
from penstock.gating.layers import GatedCompression, LayerConfig
from penstock.gating.network import CutSpec, GatedNetwork
from penstock.gating.surgery.cuts import survey
from penstock.gating.surgery.partition import partition
from penstock.gating.surgery.profile import measure_stages

Positives = Collection[int] | Sequence[Collection[int] | None] | None


def gate(
    model: nn.Module | Sequence[nn.Module],
    example: Tensor,
    at: float | int | str | Iterable[float | str] | None = None,
    *,
    layer: LayerConfig | Sequence[LayerConfig] = LayerConfig(),
    positives: Positives = None,
    background: int = 0,
) -> GatedNetwork:
    """Return ``model`` as a gated network; ``model`` itself is not changed.

    Args:
        model: a network with one input and class logits as its output; or, if it cannot be traced, a list of its
            stages, which get a gate between each two.
        example: a batch as the network takes it, (batch, ...). Only its shape and dtype matter.
        at: where the gates are placed: a depth (0.4), several (0.2, 0.4, 0.6), a number of gates spread evenly (3), or
            names of modules ("layer2"). `cuts` lists the legal places. 0 gives the plain network, ready for `fit`.
        layer: what each layer consists of: one `LayerConfig` for all, or a sequence with one for each.
        positives: Ω, the labels that gates let pass: one set for all gates, or a list with one for each. None for all
            but background.
        background: the label of negatives.
    """
    if isinstance(model, nn.Module):
        if at is None:
            raise CutError("at is missing: pass a depth (0.4), a number of gates (3), a module's name, or a list.")
        copied = _copied(model)
        surveyed = survey(copied, example)
        places = surveyed.find(at)
        cut, fixed_size = partition(copied, surveyed, places)
        stages: list[nn.Module] = list(cut)
        shapes = [place.cut.shape for place in places]
        tokens = [len(place.cut.shape) == 2 and _has_features_last(place.node, copied) for place in places]
        macs_before = [0, *(place.cut.macs for place in places), sum(surveyed.measured.macs.values())]
        macs = [end - start for start, end in pairwise(macs_before)]
        names = tuple(place.cut.name for place in places)
        classes = surveyed.measured.classes
        origin: nn.Module | list[nn.Module] = copied
    else:
        if at is not None:
            raise CutError(f"at must be left out for a list of stages, which get gates in between, got {at!r}.")
        stages = _checked_stages(model)
        (*shapes, (classes, *_)), macs = measure_stages(stages, example)
        tokens = [False] * len(shapes)
        names, fixed_size = tuple(f"stage {i}" for i in range(1, len(stages))), False
        origin = list(stages)
    spec = CutSpec(
        model=type(model).__name__,
        at=names,
        example_shape=tuple(example.shape[1:]),
        example_dtype=str(example.dtype).removeprefix("torch."),
        classes=classes,
        macs=tuple(macs),
        fixed_size=fixed_size,
    )
    training = model.training if isinstance(model, nn.Module) else stages[0].training
    configs, omegas = _configs(layer, len(shapes)), _positives(positives, len(shapes))
    layers = []
    for shape, config, omega, are_tokens in zip(shapes, configs, omegas, tokens, strict=True):
        if are_tokens and config.has_gate and (config.head, config.gate_input) == ("auto", "kept"):
            config = replace(config, head="attention")
        built = GatedCompression(
            shape, config, positives=omega, classes=classes, background=background, network_macs=sum(macs)
        )
        layers.append(built.to(example.device).train(training))
    network = GatedNetwork(stages, layers, spec, origin, background=background)
    network.training = training
    return network


def _has_features_last(node: fx.Node, model: nn.Module) -> bool:
    """Return whether the nearest layer before a place computes along the last axis: it gives tokens (T, D)."""
    waiting, seen = deque([node]), {node}
    while waiting:
        node = waiting.popleft()
        layer = model.get_submodule(str(node.target)) if node.op == "call_module" else None
        name = getattr(node.target, "__name__", "") if layer is None else type(layer).__name__
        if "conv" in name.lower() or isinstance(layer, _BatchNorm):
            return False
        if name in ("linear", "layer_norm", "embedding") or isinstance(layer, _FEATURES_LAST):
            return True
        found = [source for source in node.all_input_nodes if source not in seen]
        waiting.extend(found)
        seen.update(found)
    return False


_FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.RNNBase)


def ungate(network: GatedNetwork) -> nn.Module | list[nn.Module]:
    """Return the plain network with the trained weights, as a copy; a list if it was gated as a list of stages."""
    return copy.deepcopy(network.origin)


def _copied(model: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(model)
    except RuntimeError as error:
        raise CutError(
            f"cannot copy {type(model).__name__}: {error} If it uses nn.utils.weight_norm or spectral_norm, replace "
            "them by those of nn.utils.parametrizations."
        ) from error


def _checked_stages(stages: Sequence[nn.Module]) -> list[nn.Module]:
    if len(stages) < 2 or not all(isinstance(stage, nn.Module) for stage in stages):
        found = [type(stage).__name__ for stage in stages]
        raise CutError(f"expected a network, or a list of at least 2 stages, each an nn.Module, got {found}.")
    return copy.deepcopy(list(stages))


def _positives(positives: Positives, gates: int) -> list[Collection[int] | None]:
    if positives is None:
        return [None] * gates
    if isinstance(positives, Tensor):  # its elements are tensors, not numbers
        positives = positives.tolist()
    if all(isinstance(one, Integral) for one in positives):
        return [positives] * gates  # type: ignore[list-item]
    if len(positives) != gates:
        raise LabelError(
            f"positives must be one set of labels, or one for each of the {gates} gates, got {len(positives)}."
        )
    return list(positives)  # type: ignore[arg-type]


def _configs(layer: LayerConfig | Sequence[LayerConfig], gates: int) -> list[LayerConfig]:
    if isinstance(layer, LayerConfig):
        return [layer] * gates
    if len(layer) != gates:
        raise CutError(f"layer must be one LayerConfig, or one for each of the {gates} gates, got {len(layer)}.")
    return list(layer)
