"""The values of the paper's table 1, as published.

Its "Keyword Spotting" is Hey Snips, which is available only on request. The same rows are shown next to our wake word,
which is a different data set (`MEASURED_ON_OTHER_DATA`).
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS = ("Baseline", "BranchyNet", "G only", "C only", "GC, best trade-off", "GC, best accuracy")
"""The methods of table 1, in the order of `paper_experiments.table1`."""

BASELINE, BRANCHYNET, GATE, COMPRESSION, TRADE_OFF, ACCURACY = ROWS


@dataclass(frozen=True)
class PaperRow:
    """One row of the paper's table 1; shares are in [0, 1].

    Attributes:
        method: its name in `ROWS`.
        accuracy, accuracy_std: mean and ± over ten repeats.
        early_stopping: the share of negatives stopped.
        activation_sparsity: the share of values dropped.
    """

    method: str
    accuracy: float
    accuracy_std: float
    early_stopping: float
    activation_sparsity: float


def _rows(*values: tuple[float, float, float, float]) -> tuple[PaperRow, ...]:
    return tuple(PaperRow(method, *row) for method, row in zip(ROWS, values, strict=True))


_KEYWORD_SPOTTING = _rows(
    (0.97695, 0.00218, 0.0, 0.0),
    (0.98462, 0.00509, 0.7973, 0.0),
    (0.98875, 0.00124, 0.9156, 0.0),
    (0.98742, 0.00278, 0.0, 0.9777),
    (0.98988, 0.00133, 0.8736, 0.9384),
    (0.99018, 0.00164, 0.8372, 0.9146),
)

PAPER_TABLE1: dict[str, tuple[PaperRow, ...]] = {
    "fashion-mnist": _rows(
        (0.97183, 0.00145, 0.0, 0.0),
        (0.98051, 0.00623, 0.8703, 0.0),
        (0.98108, 0.00182, 0.9336, 0.0),
        (0.97998, 0.01406, 0.0, 0.9807),
        (0.98255, 0.00160, 0.9235, 0.9802),
        (0.99219, 0.00091, 0.9137, 0.8861),
    ),
    "cifar10": _rows(
        (0.90235, 0.00920, 0.0, 0.0),
        (0.91312, 0.00508, 0.8157, 0.0),
        (0.92254, 0.00216, 0.8750, 0.0),
        (0.93962, 0.00586, 0.0, 0.4210),
        (0.93766, 0.06124, 0.9223, 0.9707),
        (0.94187, 0.00244, 0.8217, 0.4164),
    ),
    "imagenet": _rows(
        (0.82591, 0.01085, 0.0, 0.0),
        (0.83130, 0.00434, 0.8923, 0.0),
        (0.84316, 0.01262, 0.9566, 0.0),
        (0.84095, 0.02134, 0.0, 0.9784),
        (0.88715, 0.02100, 0.9426, 0.9438),
        (0.89221, 0.01844, 0.9617, 0.7303),
    ),
    "speech-commands": _rows(
        (0.92527, 0.00876, 0.0, 0.0),
        (0.92662, 0.00489, 0.8183, 0.0),
        (0.94111, 0.00932, 0.9426, 0.0),
        (0.93164, 0.00394, 0.0, 0.9903),
        (0.93590, 0.00411, 0.8431, 0.9753),
        (0.94879, 0.00181, 0.8503, 0.8036),
    ),
    "wake-word": _KEYWORD_SPOTTING,
    "hey-snips": _KEYWORD_SPOTTING,
}

MEASURED_ON_OTHER_DATA: dict[str, str] = {"wake-word": "Hey Snips"}
"""Tasks for which the paper used a different data set, and its name."""
