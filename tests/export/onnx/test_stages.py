"""The ONNX exporter: its graphs are checked, counted, and hold nothing of the exporting machine."""

from pathlib import Path

import numpy as np
import pytest
import torch

import penstock as ps
from helpers.zoo import build
from penstock.errors import ExportError
from penstock.export import export_bundle
from penstock.export.onnx.stages import sample_inputs


@pytest.mark.parametrize("n", [1, 7, 512, 513, 1023, 1024, 5000])
def test_ranges_are_measured_on_samples_spread_over_the_data(n) -> None:
    inputs = sample_inputs((torch.arange(n, dtype=torch.float32).unsqueeze(1), torch.zeros(n, dtype=torch.long)))
    found = inputs[:, 0]
    assert len(found) == min(n, 512) and found[0] == 0 and (np.diff(found) > 0).all()
    assert n - found[-1] <= 2 * n / 512 + 1 and np.diff(found).max(initial=0) <= max(1, 4 * n / 512)


def test_a_graph_names_no_file_of_the_exporting_machine(tmp_path) -> None:
    model, draw = build("resnet8")
    bundle = export_bundle(ps.gate(model, draw(2), at=0.4), draw(2), tmp_path).bundle
    for graph in bundle.graphs:
        assert b".py" not in graph and str(Path(__file__).parents[2]).encode() not in graph


def test_macs_are_counted_without_dropped_channels(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("resnet8")
    layer = ps.LayerConfig(granularity="channel", head="linear")  # the other heads read all channels
    full = ps.gate(model, draw(2), at=0.4, layer=layer)
    counts = [stage.macs for stage in export_bundle(full, draw(2), tmp_path / "full").bundle.manifest.stages]
    assert counts == [full.spec.macs[0] + full.layers[0].gate_macs, full.spec.macs[1]]
    few = ps.gate(model, draw(2), at=0.4, layer=layer)
    few.layers[0].compression.phi.data[::2] = 0
    less = [stage.macs for stage in export_bundle(few, draw(2), tmp_path / "few").bundle.manifest.stages]
    assert less[0] < counts[0] and less[1] < counts[1], "dropped channels are neither computed nor read"


def test_a_graph_with_other_outputs_is_refused(tmp_path, monkeypatch) -> None:
    model, draw = build("resnet8")
    net = ps.gate(model, draw(2), at=0.4)
    monkeypatch.setattr("penstock.export.verification.TOLERANCE", -1.0)  # less than any error
    with pytest.raises(ExportError, match=r"stage 1 .*-1"):
        export_bundle(net, draw(2), tmp_path)
    assert not list(tmp_path.iterdir())
