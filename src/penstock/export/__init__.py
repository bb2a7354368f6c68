"""From a gated network to a bundle: one file per stage, verified against PyTorch."""

from penstock.export.bundling import Exported, export_bundle
from penstock.export.precision import Float32, Int8

__all__ = ["Exported", "Float32", "Int8", "export_bundle"]
