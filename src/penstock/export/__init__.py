"""From a gated network to a bundle: one static graph a stage, checked against PyTorch."""

from penstock.export.bundling import Exported, Float32, Int8, export_bundle

__all__ = ["Exported", "Float32", "Int8", "export_bundle"]
