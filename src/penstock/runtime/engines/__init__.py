"""Run one stage: arrays in, arrays out. One file an engine."""

from penstock.runtime.engines.engine import Engine, Output, RemoteEngine
from penstock.runtime.engines.onnxruntime import OnnxRuntime

__all__ = ["Engine", "OnnxRuntime", "Output", "RemoteEngine"]
