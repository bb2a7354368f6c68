"""Engines: run one stage, arrays in, arrays out. One file per engine."""

from __future__ import annotations

from pathlib import PurePath

from penstock.errors import BundleError, require
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines.engine import Engine, Output, RemoteEngine

# Engines by name, imported when they are first used. Each has ``from_stage(stage, graph, *, threads)``.
ENGINES = {"onnxruntime": "penstock.runtime.engines.onnxruntime:OnnxRuntime"}

DEFAULT_ENGINES = {".onnx": "onnxruntime"}
"""The engine that runs a stage's file, by its suffix."""

__all__ = ["ENGINES", "Engine", "Output", "RemoteEngine", "load_engine", "load_engines"]


def load_engine(bundle: Bundle, stage: int, *, threads: int = 1) -> Engine:
    """Return an engine that runs one stage of a bundle.

    Args:
        stage: counted from 1.
        threads: per run; 0 for all cores.

    Raises:
        BundleError: when no engine runs such files, or it cannot run the graph.
    """
    spec = bundle.manifest.stages[stage - 1]
    name = DEFAULT_ENGINES.get(PurePath(spec.file).suffix)
    if name is None:
        raise BundleError(f"no engine runs {spec.file}; there are engines for {', '.join(DEFAULT_ENGINES)}")
    module, attribute = ENGINES[name].split(":")
    engine = getattr(require(module, extra="run"), attribute)
    return engine.from_stage(spec, bundle.graphs[stage - 1], threads=threads)  # type: ignore[no-any-return]


def load_engines(bundle: Bundle, *, threads: int = 1) -> list[Engine]:
    """Return an engine for each stage of a bundle; see `load_engine`."""
    return [load_engine(bundle, i, threads=threads) for i in range(1, len(bundle.manifest.stages) + 1)]
