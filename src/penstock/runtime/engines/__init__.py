"""Run one stage: arrays in, arrays out. One file an engine."""

from penstock.runtime.engines.engine import Elsewhere, Engine, Output
from penstock.runtime.engines.onnxruntime import OnnxRuntime

__all__ = ["Elsewhere", "Engine", "OnnxRuntime", "Output"]
