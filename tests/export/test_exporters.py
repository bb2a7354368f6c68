"""The table of exporters: another file format is one line in it, and an engine that runs the files one in its own."""

import sys
from types import ModuleType

import numpy as np
import pytest
import torch

import penstock as ps
from helpers.zoo import build
from penstock.errors import ExportError
from penstock.export import Float32, export_bundle
from penstock.export.exporters import EXPORTERS
from penstock.export.onnx.stages import export_onnx
from penstock.runtime import engines
from penstock.runtime.bundle.bundle import Bundle
from penstock.runtime.engines.onnxruntime import OnnxRuntime
from penstock.runtime.pipeline import Pipeline


@pytest.fixture
def reversed_format(monkeypatch) -> str:
    """A format of its own: ONNX files with their bytes in reverse."""

    def export_reversed(net, example, precision):
        return [file._replace(content=file.content[::-1]) for file in export_onnx(net, example, precision)]

    class ReversedEngine:
        @classmethod
        def from_stage(cls, stage, graph, *, threads):
            return OnnxRuntime.from_stage(stage, graph[::-1], threads=threads)

    module = ModuleType("reversed_format")
    module.export_reversed, module.ReversedEngine = export_reversed, ReversedEngine
    monkeypatch.setitem(sys.modules, "reversed_format", module)
    monkeypatch.setitem(EXPORTERS, "reversed", "reversed_format:export_reversed")
    monkeypatch.setitem(engines.ENGINES, "reversed", "reversed_format:ReversedEngine")
    monkeypatch.setitem(engines.DEFAULT_ENGINES, ".reversed", "reversed")
    return "reversed"


def test_a_bundle_of_another_format_is_verified_read_and_run(reversed_format, tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("conv1d")
    net, x = ps.gate(model, draw(2), at=0.5), draw(12)
    y = torch.arange(12) % 3
    exported = export_bundle(net, x[:4], tmp_path, precision=Float32(format=reversed_format), check_on=(x, y))
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".reversed", ".reversed"]
    assert exported.before == exported.after
    result, expected = Pipeline(Bundle.read(tmp_path)).predict(x.numpy()), net.predict(x)
    assert result.exit_stage.tolist() == expected.exit_stage.tolist()
    np.testing.assert_allclose(result.logits, expected.logits.numpy(), atol=1e-4)


def test_a_format_without_exporter_or_engine_is_refused(reversed_format, tmp_path, monkeypatch) -> None:
    model, draw = build("conv1d")
    net = ps.gate(model, draw(2), at=0.5)
    with pytest.raises(ExportError, match=r"onnx.*reversed, got 'tflite'"):
        export_bundle(net, draw(2), tmp_path, precision=Float32(format="tflite"))
    monkeypatch.delitem(engines.DEFAULT_ENGINES, ".reversed")
    with pytest.raises(ExportError, match=r"no engine.*\.reversed"):
        export_bundle(net, draw(2), tmp_path, precision=Float32(format=reversed_format))
    assert not list(tmp_path.iterdir())
