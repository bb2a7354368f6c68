"""Training a wake word: without gates, with a network that learned nothing, with a wrong configuration."""

import warnings

import pytest

from helpers.wakeword import CLIPS
from penstock.errors import CalibrationError, DataError
from penstock.training.module import CollapseWarning
from penstock.wakeword.training import WakeWordConfig, train_wakeword


def test_a_network_without_gates_can_be_trained():
    config = WakeWordConfig(
        width=4, gate_blocks=(), windows=1000, epochs=2, rounds=0, validation_hours=0.1, max_false_alarms_per_hour=60.0
    )
    found = train_wakeword(CLIPS, "tick", config, progress=False)
    assert len(found.net.stages) == 1
    assert found.reached == (1.0,)


def test_a_network_that_detects_nothing_is_not_calibrated():
    config = WakeWordConfig(width=4, windows=300, epochs=1, rounds=0, validation_hours=0.1, alarm_confidence=None)
    warnings.simplefilter("ignore", CollapseWarning)
    with pytest.raises(CalibrationError, match=r"none of \d+ windows"):
        train_wakeword(CLIPS, "tick", config, progress=False)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"gate_blocks": (5, 2)}, r"gate_blocks .* \(5, 2\)"),
        ({"gate_blocks": (1, 2, 3)}, "gate_blocks"),
        ({"epochs": 0}, "epochs .* 0"),
        ({"mining_hours": 0.0}, "mining_hours"),
        ({"max_positive_loss": 5.0}, "max_positive_loss .* 5"),
        ({"max_miss_rate": 1.0}, "max_miss_rate .* 1"),
        ({"alarm_confidence": 1.0}, "confidence .* 1.0"),
        (
            {"alarm_confidence": 0.95, "max_false_alarms_per_hour": 0.25, "validation_hours": 6.0},
            "0.25 false alarms per hour .* 12.0 h .* 6 h",
        ),
    ],
)
def test_a_wrong_configuration_is_an_error(fields, text):
    with pytest.raises(DataError, match=text):
        WakeWordConfig(**fields)
