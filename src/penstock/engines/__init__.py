"""Run one stage: arrays in, arrays out. One file an engine."""

from penstock.engines.engine import Engine, Output
from penstock.engines.onnxruntime import OnnxRuntime

__all__ = ["Engine", "OnnxRuntime", "Output"]
