"""LayerConfig: every field is checked, and options without effect are refused."""

import pytest

import penstock as ps
from penstock.errors import LayerError


@pytest.mark.parametrize("name", ["parts", "granularity", "mask", "gate_input"])
def test_an_unknown_choice_is_refused(name):
    with pytest.raises(LayerError, match=f"{name}.*'none'"):
        ps.LayerConfig(**{name: "none"})


@pytest.mark.parametrize("width", [0, -1, 2.0, True])
def test_the_width_is_a_count(width):
    with pytest.raises(LayerError, match="gate_width"):
        ps.LayerConfig(gate_width=width)


@pytest.mark.parametrize("weight", [-0.3, float("inf"), float("nan")])
def test_the_class_loss_weight_is_a_weight(weight):
    with pytest.raises(LayerError, match="class_loss_weight"):
        ps.LayerConfig(class_loss_weight=weight)


@pytest.mark.parametrize(
    ("parts", "option"),
    [
        ("gate", {"mask": "drawn"}),
        ("compression", {"gate_width": 8}),
        ("compression", {"gate_input": "all"}),
        ("compression", {"class_loss_weight": 0.3}),
    ],
    ids=str,
)
def test_an_option_without_effect_is_refused(parts, option):
    with pytest.raises(LayerError, match=next(iter(option))):
        ps.LayerConfig(parts, **option)
