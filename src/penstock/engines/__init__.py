"""Run one stage: arrays in, arrays out. One file an engine."""

from penstock.engines.engine import Elsewhere, Engine, Output
from penstock.engines.onnxruntime import OnnxRuntime

__all__ = ["Elsewhere", "Engine", "OnnxRuntime", "Output"]
