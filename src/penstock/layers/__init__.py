"""The paper's section 2: compression, gate, and both in one layer."""

from penstock.layers.binarisation import Binarisation, Drawn, Thresholded, binary_mask
from penstock.layers.compression import (
    Compression,
    Granularity,
    PerChannel,
    PerElement,
    PerFeature,
    transmission_cost,
)
from penstock.layers.gate import ClassGate, Gate
from penstock.layers.gated_compression import Both, CompressionOnly, GatedCompression, GateOnly, Halves

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
