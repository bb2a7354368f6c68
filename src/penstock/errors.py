"""Every exception that Penstock raises on purpose.

    PenstockError
    ├── CutError            a place where the network cannot be cut
    ├── LayerError          a layer configuration with unknown or contradictory options
    ├── ShapeError          a tensor whose shape, dtype or values do not fit
    ├── LabelError          labels outside the classes; no positives, no negatives
    ├── ObjectiveError      weights of the objective that make no sense
    ├── TrainingError       a training that cannot go on (a loss that is not finite)
    ├── CalibrationError    a guarantee that the data cannot carry
    ├── StorageError        a file that is damaged, foreign, newer, or could not be written
    ├── DataError           a data set that is missing or not what it should be
    ├── ExportError         a network that cannot be exported, or whose export computes something else
    ├── BundleError         a bundle that is missing, damaged, changed or newer
    ├── WireError           bytes from a link that are no message, or not for this bundle
    ├── DeliveryError       a buffer that is full, an island that cannot be set up so
    ├── LinkError           a link that is broken, or that nobody answers at
    └── MissingExtraError   a part of Penstock whose dependencies are not installed

Each text says what came, what is allowed and what to do. Catch ``PenstockError`` to catch them all.
"""


class PenstockError(Exception):
    """The root of the tree."""


class CutError(PenstockError):
    """A place where the network cannot be cut."""


class LayerError(PenstockError):
    """A layer configuration with unknown or contradictory options."""


class ShapeError(PenstockError):
    """A tensor whose shape, dtype or values do not fit."""


class LabelError(PenstockError):
    """Labels outside the classes, or data without positives or negatives."""


class ObjectiveError(PenstockError):
    """Weights of the objective that make no sense."""


class TrainingError(PenstockError):
    """A training that cannot go on."""


class CalibrationError(PenstockError):
    """A guarantee that the data cannot carry."""


class StorageError(PenstockError):
    """A file that is damaged, foreign, newer, or could not be written."""


class DataError(PenstockError):
    """A data set that is missing or not what it should be."""


class ExportError(PenstockError):
    """A network that cannot be exported, or whose export computes something else."""


class BundleError(PenstockError):
    """A bundle that is missing, damaged, changed or newer."""


class WireError(PenstockError):
    """Bytes from a link that are no message, or not for this bundle."""


class DeliveryError(PenstockError):
    """A buffer that is full, or an island that cannot be set up so."""


class LinkError(PenstockError):
    """A link that is broken, or that nobody answers at."""


class MissingExtraError(PenstockError, ImportError):
    """A part of Penstock whose dependencies are not installed."""
