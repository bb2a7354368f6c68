"""The paper's section 2: compression, gate, and both in one layer."""

from penstock.gating.layers.compression import (
    Compression,
    Granularity,
    PerChannel,
    PerElement,
    PerFeature,
    transmission_cost,
)
from penstock.gating.layers.gate import ClassGate, Gate
from penstock.gating.layers.gated_compression import Both, CompressionOnly, GatedCompression, GateOnly, Halves
from penstock.gating.layers.mask import Binarisation, Drawn, Thresholded, binary_mask

__all__ = [
    "Binarisation",
    "Both",
    "ClassGate",
    "Compression",
    "CompressionOnly",
    "Drawn",
    "Gate",
    "GateOnly",
    "GatedCompression",
    "Granularity",
    "Halves",
    "PerChannel",
    "PerElement",
    "PerFeature",
    "Thresholded",
    "binary_mask",
    "transmission_cost",
]
