"""The paper's section 2: compression, gate, and both in one layer."""

from penstock.layers.compression import (
    Compression,
    Granularity,
    PerChannel,
    PerElement,
    PerFeature,
    binary_mask,
    transmission_cost,
)
from penstock.layers.gate import Gate
from penstock.layers.gated_compression import Both, CompressionOnly, GatedCompression, GateOnly, Halves

__all__ = [
    "Both",
    "Compression",
    "CompressionOnly",
    "Gate",
    "GateOnly",
    "GatedCompression",
    "Granularity",
    "Halves",
    "PerChannel",
    "PerElement",
    "PerFeature",
    "binary_mask",
    "transmission_cost",
]
