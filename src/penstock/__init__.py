"""Penstock turns any PyTorch network into a gated, always-on network.

    import penstock as ps

    net = ps.gate(model, example, at=0.4)
    ps.fit(net, train, val, objective=ps.Objective(alpha=0.5, beta=0.55), epochs=20)
    ps.calibrate(net, held_out, max_positive_loss=0.01, confidence=0.95)
    print(ps.evaluate(net, test))

Importing it loads neither torch nor anything else: each name is loaded when it is first used, so that what runs on a
device stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock import errors as errors
from penstock.errors import MissingExtraError, PenstockError

if TYPE_CHECKING:
    from penstock.datasets.loading import class_counts
    from penstock.evaluation.calibrate import calibrate
    from penstock.evaluation.evaluate import Evaluation, evaluate
    from penstock.export import Exported, Float32, Int8, export_bundle
    from penstock.gating.checkpoint import load, save
    from penstock.gating.layers import Compression, Gate, GatedCompression, LayerConfig
    from penstock.gating.network import GatedNetwork, GatedOutput, Guarantee, Prediction
    from penstock.gating.objective import Loss, Objective
    from penstock.gating.surgery.cuts import Cut, cuts
    from penstock.gating.surgery.insert import gate, ungate
    from penstock.runtime.bundle.bundle import Bundle
    from penstock.runtime.pipeline import Pipeline
    from penstock.training.config import Hardware, OptimizerConfig
    from penstock.training.fit import CollapseWarning, GatedLightningModule, History, fit

_ROOMS = {
    "penstock.evaluation.calibrate": "calibrate",
    "penstock.datasets.loading": "class_counts",
    "penstock.runtime.bundle.bundle": "Bundle",
    "penstock.runtime.pipeline": "Pipeline",
    "penstock.evaluation.evaluate": "Evaluation evaluate",
    "penstock.export": "Exported Float32 Int8 export_bundle",
    "penstock.gating.layers": "Compression Gate GatedCompression LayerConfig",
    "penstock.gating.network": "Guarantee GatedNetwork GatedOutput Prediction",
    "penstock.gating.objective": "Loss Objective",
    "penstock.gating.checkpoint": "load save",
    "penstock.gating.surgery": "Cut cuts gate ungate",
    "penstock.training.config": "OptimizerConfig Hardware",
    "penstock.training.fit": "CollapseWarning GatedLightningModule History fit",
}
_EXTRAS = {"penstock.runtime.pipeline": "run", "penstock.export": "train,export"}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

# fmt: off
__all__ = [
    "Bundle",
    "CollapseWarning",
    "Compression",
    "Cut",
    "Evaluation",
    "Exported",
    "Float32",
    "Gate",
    "GatedCompression",
    "GatedLightningModule",
    "GatedNetwork",
    "GatedOutput",
    "Guarantee",
    "Hardware",
    "History",
    "Int8",
    "LayerConfig",
    "Loss",
    "Objective",
    "OptimizerConfig",
    "PenstockError",
    "Pipeline",
    "Prediction",
    "calibrate",
    "class_counts",
    "cuts",
    "errors",
    "evaluate",
    "export_bundle",
    "fit",
    "gate",
    "load",
    "save",
    "ungate",
]
# fmt: on


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOME[name]), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("penstock"):
            raise
        extra = _EXTRAS.get(_HOME[name], "train")
        raise MissingExtraError(
            f"penstock.{name} needs {error.name!r}, which is not installed: pip install 'penstock[{extra}]'."
        ) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
