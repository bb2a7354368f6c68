"""Save and load a gated network without pickle: one safetensors file, with its spec as JSON in the file's header.

A file holds numbers and names, no code: `load` takes a network of the same class, cuts it at the same places and loads
the weights. Everything is in one file that is written under another name and then renamed: it is never half written.
"""

from __future__ import annotations

import hashlib
import json
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
from penstock.runtime.images.config import ImageConfig

FORMAT = 5
KEY = "penstock"


def save(net: GatedNetwork, path: str | Path) -> None:
    """Write the network to one file.

    Raises:
        StorageError: if a gate was not made by `gate`, or the file could not be written.
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
        "image_config": None if net.image_config is None else net.image_config.to_dict(),
        "tied": tied,
    }
    header["sha256"] = _digest(tensors, header)
    write_atomically(Path(path), safetensors.torch.save(tensors, {KEY: json.dumps(header, allow_nan=False)}))


def load(path: str | Path, model: nn.Module | Sequence[nn.Module]) -> GatedNetwork:
    """Read a network that `save` wrote.

    Args:
        path: the file.
        model: a network of the class that was gated (or the list of its stages); its weights do not matter, and it is
            not changed.
    """
    path = Path(path)
    header, tensors = _read(path)
    spec = header["spec"]
    example = torch.zeros((1, *spec["example_shape"]), dtype=getattr(torch, spec["example_dtype"]))
    configs = [LayerConfig(**layer["config"]) for layer in header["layers"]]
    positives = [layer["positives"] for layer in header["layers"]]
    at = None if spec["model"] == "list" else spec["at"]
    try:
        if isinstance(model, nn.Module) == (at is None):
            raise CutError("only one of them is a list of stages.")
        net = gate(model, example, at, layer=configs, positives=positives, background=header["background"])
        tensors |= {name: tensors[source] for name, source in header["tied"].items()}
        for prefix, part in _parts(net):
            part.load_state_dict(
                {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            )
    except (PenstockError, RuntimeError) as error:
        raise StorageError(
            f"{path} holds a gated {spec['model']}, which does not fit the given {type(model).__name__}: {error} Pass "
            "a network built like the one that was saved."
        ) from error
    if header["guarantee"] is not None:
        net.guarantee = Guarantee(**header["guarantee"])
    if header.get("image_config") is not None:  # older files have no such entry
        net.image_config = ImageConfig.from_dict(header["image_config"])
    return net


def _check_gates(net: GatedNetwork) -> None:
    """Raise a StorageError for a gate that `load` could not rebuild."""
    for i, layer in enumerate(net.layers):
        expected = ClassGate if layer.config.class_loss_weight else Gate
        if layer.gate is not None and type(layer.gate) is not expected:
            raise StorageError(
                f"layer {i} has a gate of class {type(layer.gate).__name__}, which load() could not rebuild: only "
                "gates made by gate() can be saved. Save the weights with torch.save(net.state_dict(), ...) instead."
            )


def _tensors(net: GatedNetwork) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return each tensor once, and the other names of tensors that have several."""
    state: dict[str, Tensor] = {}
    for prefix, part in _parts(net):
        part.state_dict(destination=state, prefix=prefix, keep_vars=True)
    others = [name.partition(".")[2] for name, tensor in state.items() if not isinstance(tensor, Tensor)]
    if others:
        raise StorageError(f"only tensors can be saved: keep {', '.join(others[:3])} of the network in a buffer.")
    first: dict[int, str] = {}
    tied = {name: first[id(t)] for name, t in state.items() if first.setdefault(id(t), name) != name}
    # Cloned, because safetensors refuses views of one storage.
    return {name: t.detach().cpu().contiguous().clone() for name, t in state.items() if name not in tied}, tied


def _parts(net: GatedNetwork) -> list[tuple[str, nn.Module]]:
    """Return what is saved, with the prefix of its tensors' names."""
    origin = net.origin if isinstance(net.origin, nn.Module) else nn.ModuleList(net.origin)
    return [("model.", origin), ("layers.", net.layers)]  # type: ignore[list-item]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise StorageError(f"there is no file {path}.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise StorageError(f"{path} is damaged or not a safetensors file: {error}") from error
    if KEY not in metadata:
        raise StorageError(f"expected a file written by penstock.save, got {path}, whose header has no {KEY!r} entry.")
    try:
        header = json.loads(metadata[KEY])
        format_, writer = header["format"], header["penstock"]
        damaged = format_ == FORMAT and header["sha256"] != _digest(tensors, header)
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{path} is damaged: cannot read its header ({error!r}). Use another copy.") from error
    if format_ != FORMAT:
        advice = "Update Penstock." if format_ > FORMAT else "Train the network and save it again with this version."
        raise StorageError(f"expected format {FORMAT}, got format {format_} in {path}, of Penstock {writer}. {advice}")
    if damaged:
        raise StorageError(f"{path} is damaged: its checksum does not match its content. Use another copy.")
    return header, tensors


def _digest(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> str:
    """Return a checksum of everything else in the file."""
    rest = {key: value for key, value in header.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def describe(layer: GatedCompression) -> dict[str, Any]:
    """Return the configuration of a layer, as JSON values."""
    positives = None if layer.gate is None or layer.gate.positives is None else list(layer.gate.positives)
    return {"config": asdict(layer.config), "positives": positives}
