"""From a gated network to a bundle: one static graph a stage, checked against PyTorch."""

from penstock.exporting.bundling import Exported, Float32, Int8, export

__all__ = ["Exported", "Float32", "Int8", "export"]
