"""Save and load a gated network without pickle: one safetensors file, with its spec as JSON in the file's header.

A file holds numbers and names, no code: `load` takes the network that was gated, cuts it at the same places and fills
in the weights. One file, written under another name and then renamed, can be neither half written nor out of step.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from penstock.errors import CutError, PenstockError, StorageError
from penstock.gating.layers import ClassGate, Gate, GatedCompression, LayerConfig
from penstock.gating.network import GatedNetwork
from penstock.gating.surgery import gate
from penstock.runtime.bundle.guarantee import Guarantee
from penstock.runtime.files import write_atomically

FORMAT = 3
KEY = "penstock"


def save(net: GatedNetwork, path: str | Path) -> None:
    """Write the network to one file.

    Raises:
        StorageError: when a gate is none that `gate` makes, or the file could not be written.
    """
    _check_gates(net)
    tensors, tied = _tensors(net)
    header: dict[str, Any] = {
        "format": FORMAT,
        "penstock": version("penstock"),
        "spec": asdict(net.spec),
        "background": net.background,
        "layers": [describe(layer) for layer in net.layers],
        "guarantee": None if net.guarantee is None else asdict(net.guarantee),
        "tied": tied,
    }
    header["sha256"] = _digest(tensors, header)
    write_atomically(Path(path), safetensors.torch.save(tensors, {KEY: json.dumps(header, allow_nan=False)}))


def load(path: str | Path, model: nn.Module | Sequence[nn.Module]) -> GatedNetwork:
    """Read what `save` wrote.

    Args:
        model: a network of the class that was gated (or the list of its stages); its own weights do not matter, and
            it stays untouched.
    """
    path = Path(path)
    header, tensors = _read(path)
    spec = header["spec"]
    made = type(model).__name__ if isinstance(model, nn.Module) else "list"
    example = torch.zeros((1, *spec["example_shape"]), dtype=getattr(torch, spec["example_dtype"]))
    configs = [LayerConfig(**layer["config"]) for layer in header["layers"]]
    positives = [layer["positives"] for layer in header["layers"]]
    at = None if spec["model"] == "list" else spec["at"]
    try:
        if isinstance(model, nn.Module) == (at is None):
            raise CutError("one is a list of stages and the other is not")
        net = gate(model, example, at, layer=configs, positives=positives, background=header["background"])
        _fill(net, tensors, header["tied"])
    except (PenstockError, RuntimeError) as error:
        raise StorageError(
            f"{path} holds a gated {spec['model']}, and the {made} given does not fit it: {error} Give a network built "
            "just as the one that was saved."
        ) from error
    guarantee = header["guarantee"]
    if guarantee is not None:
        net.guarantee = Guarantee(**guarantee)
    return net


def _check_gates(net: GatedNetwork) -> None:
    """Refuse what `load` could not build again."""
    for i, layer in enumerate(net.layers):
        expected = ClassGate if layer.config.class_loss_weight else Gate
        if layer.gate is not None and type(layer.gate) is not expected:
            raise StorageError(
                f"layer {i} has a gate of class {type(layer.gate).__name__}, which load() could not rebuild: only "
                "gates made by gate() can be saved. Save the weights with torch.save(net.state_dict(), ...) instead."
            )


def _tensors(net: GatedNetwork) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return each tensor once, and the names of those that share it."""
    origin = net.origin if isinstance(net.origin, nn.Module) else nn.ModuleList(net.origin)
    state = {f"model.{name}": tensor for name, tensor in origin.state_dict(keep_vars=True).items()}
    state |= {f"layers.{name}": tensor for name, tensor in net.layers.state_dict(keep_vars=True).items()}  # type: ignore[attr-defined]
    strange = [name for name, tensor in state.items() if not isinstance(tensor, Tensor)]
    if strange:
        raise StorageError(
            f"{', '.join(name.partition('.')[2] for name in strange[:3])} of the network is no tensor, and only "
            "tensors are written: keep it in a buffer, or write it yourself."
        )
    first: dict[int, str] = {}
    tied = {name: first[id(t)] for name, t in state.items() if first.setdefault(id(t), name) != name}
    kept = {name: t.detach().cpu().contiguous() for name, t in state.items() if name not in tied}
    shared = Counter(t.untyped_storage().data_ptr() for t in kept.values())
    for name, t in kept.items():
        if shared[t.untyped_storage().data_ptr()] > 1:  # views of one storage: each is written by itself
            kept[name] = t.clone()
    return kept, tied


def _fill(net: GatedNetwork, tensors: Mapping[str, Tensor], tied: Mapping[str, str]) -> None:
    full = dict(tensors) | {name: tensors[source] for name, source in tied.items()}
    origin = net.origin if isinstance(net.origin, nn.Module) else nn.ModuleList(net.origin)
    for prefix, module in (("model.", origin), ("layers.", net.layers)):
        part = {name.removeprefix(prefix): t for name, t in full.items() if name.startswith(prefix)}
        module.load_state_dict(part)  # type: ignore[union-attr]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise StorageError(f"there is no file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged, or no safetensors file: {error}") from error
    if KEY not in metadata:
        raise StorageError(
            f"{path} is a safetensors file that Penstock did not write: its header has no {KEY!r} entry. Files are "
            "written by penstock.save."
        )
    try:
        header = json.loads(metadata[KEY])
        format_, writer = header["format"], header["penstock"]
        damaged = format_ == FORMAT and header["sha256"] != _digest(tensors, header)
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is damaged: its header cannot be read ({error!r}). Use another copy.") from error
    if format_ != FORMAT:
        advice = "Update Penstock." if format_ > FORMAT else "Train the network and save it again with this version."
        raise StorageError(
            f"{path} was written by Penstock {writer} in format {format_}; this version reads format {FORMAT}. {advice}"
        )
    if damaged:
        raise StorageError(f"{path} is damaged: its checksum does not match its content. Use another copy.")
    return header, tensors


def _digest(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> str:
    """Return a checksum of everything in the file but itself."""
    rest = {key: value for key, value in header.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def describe(layer: GatedCompression) -> dict[str, Any]:
    """Return how a layer is built, as JSON values."""
    positives = None if layer.gate is None or layer.gate.positives is None else list(layer.gate.positives)
    return {"config": asdict(layer.config), "positives": positives}
