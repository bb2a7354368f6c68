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
    from penstock.bundle import Bundle
    from penstock.calibration import calibrate
    from penstock.chain import Chain
    from penstock.data.batches import class_counts
    from penstock.evaluation import Evaluation, evaluate
    from penstock.exporting import Exported, Float32, Int8, export
    from penstock.layers import (
        Both,
        Compression,
        CompressionOnly,
        Drawn,
        Gate,
        GatedCompression,
        GateOnly,
        PerChannel,
        PerElement,
        PerFeature,
        Thresholded,
    )
    from penstock.network import Certificate, GatedNetwork, GatedOutput, Prediction
    from penstock.objective import Loss, Objective
    from penstock.recipe import Adam, Machine
    from penstock.storage import load, save
    from penstock.surgery.cuts import Cut, cuts
    from penstock.surgery.gate import gate, ungate
    from penstock.training import CollapseWarning, GatedTraining, History, fit

_ROOMS = {
    "penstock.calibration": "calibrate",
    "penstock.data.batches": "class_counts",
    "penstock.bundle": "Bundle",
    "penstock.chain": "Chain",
    "penstock.evaluation": "Evaluation evaluate",
    "penstock.exporting": "Exported Float32 Int8 export",
    "penstock.layers": "Both Compression CompressionOnly Drawn Gate GatedCompression GateOnly PerChannel "
    "PerElement PerFeature Thresholded",
    "penstock.network": "Certificate GatedNetwork GatedOutput Prediction",
    "penstock.objective": "Loss Objective",
    "penstock.storage": "load save",
    "penstock.surgery": "Cut cuts gate ungate",
    "penstock.recipe": "Adam Machine",
    "penstock.training": "CollapseWarning GatedTraining History fit",
}
_EXTRAS = {"penstock.chain": "run", "penstock.exporting": "train,export"}
_HOME = {name: room for room, names in _ROOMS.items() for name in names.split()}

# fmt: off
__all__ = [
    "Adam", "Both", "Bundle", "Certificate", "Chain", "CollapseWarning", "Compression", "CompressionOnly", "Cut",
    "Drawn", "Evaluation", "Exported", "Float32", "Gate", "GateOnly", "GatedCompression", "GatedNetwork",
    "GatedOutput", "GatedTraining", "History", "Int8", "Loss", "Machine", "Objective", "PenstockError", "PerChannel",
    "PerElement", "PerFeature", "Prediction", "Thresholded", "calibrate", "class_counts", "cuts", "errors", "evaluate",
    "export", "fit", "gate", "load", "save", "ungate",
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
