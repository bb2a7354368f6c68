"""timm's networks, for tests alone. timm imports torchvision, whose operators may be missing: a shim stands in."""

import importlib.util
import sys
from pathlib import Path

import torch

FOLDER = Path(__file__).parents[2] / ".venv" / "timm"
_libraries = []


def import_timm():
    """Return timm, or None where it is not installed."""
    if "timm" in sys.modules:
        return sys.modules["timm"]
    if importlib.util.find_spec("timm") is None:
        if not FOLDER.exists():
            return None
        sys.path.append(str(FOLDER))
    if not hasattr(torch.ops.torchvision, "nms"):
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _libraries.append(library)  # it lives as long as its operators
    import timm

    return timm
