"""Times of stages: a network that cannot be exported has none, but a reason."""

from math import inf

import torch

import penstock as ps
from helpers.comparison_task import PARTS, network
from penstock.comparison.stage_times import export_or_reason


def test_a_network_that_cannot_be_exported_gives_the_reason(tmp_path):
    x, _ = PARTS[0]
    net = ps.gate(network(), x[:2], at="0", layer=ps.LayerConfig("gate")).eval()
    net.thresholds = [inf]
    reason = export_or_reason(net, x[:2], tmp_path / "bundle")
    assert reason is not None and "lets nothing pass" in reason
    assert not (tmp_path / "bundle").exists()


def test_a_missing_package_is_a_reason_too(tmp_path, monkeypatch):
    def missing(*arguments):
        raise ps.errors.MissingExtraError("onnx is not installed: pip install 'penstock[export]'")

    monkeypatch.setattr("penstock.comparison.stage_times.export_bundle", missing)
    net = ps.gate(network(), torch.zeros(2, 2, 32), at=0)
    assert "penstock[export]" in export_or_reason(net, torch.zeros(2, 2, 32), tmp_path)
