"""The paper's section 2: compression, gate, and both in one layer."""

from penstock.gating.layers.compression import Compression, transmission_cost
from penstock.gating.layers.config import LayerConfig
from penstock.gating.layers.gate import ClassGate, Gate
from penstock.gating.layers.gated_compression import GatedCompression
from penstock.gating.layers.mask import binary_mask

__all__ = ["ClassGate", "Compression", "Gate", "GatedCompression", "LayerConfig", "binary_mask", "transmission_cost"]
