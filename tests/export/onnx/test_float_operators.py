"""Operators that an int8 stage leaves in float32."""

import torch
from torch import nn

import penstock as ps
from penstock.export import Int8
from penstock.export.onnx.float_operators import float_operators


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


def exported(between, tmp_path, target="arm"):
    """Export, in int8, convolutions with something between them, and a mask."""
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Sequential(nn.Conv2d(3, 8, 3), between), nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU())),
        *(nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8 * 6 * 6, 3)),
    )
    x, y = torch.randn(32, 3, 12, 12), torch.arange(32) % 3
    net = ps.gate(model.eval(), x[:2], at="1", layer=ps.LayerConfig("compression"))
    return ps.export_bundle(net, x[:4], tmp_path, precision=Int8((x, y), target=target))


def test_what_has_no_kernel_of_8_bits_is_listed_with_its_stage(tmp_path):
    made = exported(Sine(), tmp_path)
    assert made.floats[0]["Sin"] == 1
    assert "Conv" not in made.floats[0] and "Sin" not in made.floats[1]
    assert "left in float32, stage 1: Sin" in str(made)
    assert made.to_json()["floats"] == [dict(floats) for floats in made.floats]


def test_convolutions_and_what_fuses_with_them_are_not_listed(tmp_path):
    made = exported(nn.ReLU6(), tmp_path)
    assert made.floats == ({}, {})
    assert "left in float32" not in str(made)


def test_a_float_graph_is_float_throughout(tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), Sine(), nn.Linear(8, 3))
    made = ps.export_bundle(ps.gate(model, torch.zeros(2, 4), at=0), torch.randn(4, 4), tmp_path)
    (graph,) = made.bundle.graphs
    assert float_operators(graph) == {"Gemm": 2, "Sin": 1}
    assert made.floats == ({},)


def test_a_pictures_first_convolution_stays_in_float_on_x86(tmp_path):
    floats = exported(nn.ReLU(), tmp_path, target="x86").floats
    assert floats[0]["Conv"] == 1 and "Conv" not in floats[1]
