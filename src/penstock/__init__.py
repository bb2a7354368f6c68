"""Penstock turns any PyTorch network into a gated, always-on network.

    import penstock as ps

    net = ps.gate(model, example, at=0.4)
    ps.fit(net, train, val, objective=ps.Objective(alpha=0.5, beta=0.55), config=ps.FitConfig(epochs=20))
    ps.calibrate(net, held_out, max_positive_loss=0.01, confidence=0.95)
    print(ps.evaluate(net, test))

`import penstock` loads neither torch nor numpy: each name is loaded when it is first used, so that devices stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import errors as errors
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.comparison.compare import Comparison, compare
    from penstock.comparison.config import CompareConfig
    from penstock.datasets.loading import class_counts
    from penstock.evaluation.calibrate import calibrate
    from penstock.evaluation.evaluate import Evaluation, evaluate
    from penstock.export.bundling import export_bundle
    from penstock.export.precision import Float32, Int8
    from penstock.gating.checkpoint import load, save
    from penstock.gating.layers.config import LayerConfig
    from penstock.gating.network import GatedNetwork
    from penstock.gating.objective import Objective
    from penstock.gating.surgery.cuts import Cut, cuts
    from penstock.gating.surgery.insert import gate, ungate
    from penstock.runtime.bundle.bundle import Bundle
    from penstock.runtime.bundle.guarantee import Guarantee
    from penstock.runtime.images.config import ImageConfig
    from penstock.runtime.islands.client import Client
    from penstock.runtime.islands.links.grpc import grpc_connector
    from penstock.runtime.islands.links.tls import TlsConfig
    from penstock.runtime.pipeline import Pipeline
    from penstock.runtime.streaming.listener import Listener
    from penstock.training.config import FitConfig, Hardware
    from penstock.training.fit import fit
    from penstock.training.module import GatedLightningModule
    from penstock.training.optimizer import OptimizerConfig

__all__ = [
    "Bundle",
    "Client",
    "CompareConfig",
    "Comparison",
    "Cut",
    "Evaluation",
    "FitConfig",
    "Float32",
    "GatedLightningModule",
    "GatedNetwork",
    "Guarantee",
    "Hardware",
    "ImageConfig",
    "Int8",
    "LayerConfig",
    "Listener",
    "Objective",
    "OptimizerConfig",
    "PenstockError",
    "Pipeline",
    "TlsConfig",
    "calibrate",
    "class_counts",
    "compare",
    "cuts",
    "errors",
    "evaluate",
    "export_bundle",
    "fit",
    "gate",
    "grpc_connector",
    "load",
    "save",
    "ungate",
]

# module -> (the extra that installs what it imports, the public names it defines)
_MODULES = {
    "comparison.compare": ("train", "Comparison compare"),
    "comparison.config": ("train", "CompareConfig"),
    "datasets.loading": ("train", "class_counts"),
    "evaluation.calibrate": ("train", "calibrate"),
    "evaluation.evaluate": ("train", "Evaluation evaluate"),
    "export.bundling": ("train", "export_bundle"),
    "export.precision": ("train", "Float32 Int8"),
    "gating.checkpoint": ("train", "load save"),
    "gating.layers.config": ("train", "LayerConfig"),
    "gating.network": ("train", "GatedNetwork"),
    "runtime.bundle.guarantee": ("run", "Guarantee"),
    "gating.objective": ("train", "Objective"),
    "gating.surgery.cuts": ("train", "Cut cuts"),
    "gating.surgery.insert": ("train", "gate ungate"),
    "runtime.bundle.bundle": ("run", "Bundle"),
    "runtime.images.config": ("run", "ImageConfig"),
    "runtime.islands.client": ("links", "Client"),
    "runtime.islands.links.grpc": ("links", "grpc_connector"),
    "runtime.islands.links.tls": ("links", "TlsConfig"),
    "runtime.pipeline": ("run", "Pipeline"),
    "runtime.streaming.listener": ("run", "Listener"),
    "training.config": ("train", "FitConfig Hardware"),
    "training.fit": ("train", "fit"),
    "training.module": ("train", "GatedLightningModule"),
    "training.optimizer": ("train", "OptimizerConfig"),
}
_HOMES = {name: (f"penstock.{module}", extra) for module, (extra, names) in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    module, extra = _HOMES[name]
    return getattr(errors.require(module, extra=extra), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
