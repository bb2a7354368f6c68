"""Every exception that Penstock raises on purpose: what was expected, what was found, what to do."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class PenstockError(Exception):
    """Base class: catch it to catch all errors of Penstock."""


class CutError(PenstockError):
    """A place where the network cannot be cut."""


class LayerError(PenstockError):
    """A layer configuration with unknown or contradictory options."""


class ShapeError(PenstockError):
    """A tensor whose shape, dtype or values do not fit."""


class LabelError(PenstockError):
    """Labels outside the classes, or data without positives or negatives."""


class ObjectiveError(PenstockError):
    """Invalid weights of the objective."""


class TrainingError(PenstockError):
    """A training that cannot continue, such as one whose loss is not finite."""


class CalibrationError(PenstockError):
    """A guarantee that needs more data than there is."""


class StorageError(PenstockError):
    """A file that is damaged, of another or a newer format, or cannot be written."""


class DataError(PenstockError):
    """A data set that is missing or not what it should be."""


class ExportError(PenstockError):
    """A network that cannot be exported, or whose export computes something else."""


class BundleError(PenstockError):
    """A bundle that is missing, damaged, modified, or of a newer format."""


class WireError(PenstockError):
    """Bytes that are not a message, or a message for another bundle."""


class DeliveryError(PenstockError):
    """A full buffer, or an island with an invalid configuration."""


class LinkError(PenstockError):
    """A broken link, or an address at which no server answers."""


class MissingExtraError(PenstockError, ImportError):
    """A part of Penstock whose dependencies are not installed."""


def require(module: str, *, extra: str) -> ModuleType:
    """Import a module that is installed only with an optional extra.

    Args:
        module: its full name. A module of Penstock works too: the error names the dependency that it lacks.
        extra: the extra of Penstock, or several separated by commas, that installs it.

    Raises:
        MissingExtraError: when the module, or the system library that it loads, is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing.startswith("penstock"):
            raise
        raise MissingExtraError(f"{missing} is not installed: pip install 'penstock[{extra}]'") from error
    except (ImportError, OSError) as error:  # the Python package is installed, the system library it loads is not
        if module.startswith("penstock."):
            raise
        raise MissingExtraError(
            f"{module} could not load its system library ({error}). {_SYSTEM_LIBRARIES.get(module, 'Install it')}, or "
            f"try pip install --force-reinstall 'penstock[{extra}]'"
        ) from error


_SYSTEM_LIBRARIES = {
    "sounddevice": "Install PortAudio (on Debian: libportaudio2)",
    "soundfile": "Install libsndfile (on Debian: libsndfile1)",
}
