"""Data sets: load them, split them, fetch them.

    from penstock.datasets import image_folder, sound_folder  # a folder of your own, one sub-folder per class
    from penstock.datasets.wrist import wrist                 # the data set of `penstock demo`

A loader never downloads. It reads the folder it is given, the cache, or an installed package, and checks the files;
if it finds nothing, the error explains how to get the data (`penstock data fetch NAME`). In every data set label 0 is
the background and the positives count from 1.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.datasets.image_files import image_folder
    from penstock.datasets.sound_files import sound_folder

__all__ = ["image_folder", "sound_folder"]

_MODULES = {"image_folder": "penstock.datasets.image_files", "sound_folder": "penstock.datasets.sound_files"}


def __getattr__(name: str) -> Any:
    """Import a loader on first use, so that importing the package does not load torch."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
