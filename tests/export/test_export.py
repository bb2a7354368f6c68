"""What leaves the notebook is the network: the same outputs, the same decisions, and nothing that it dropped."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import penstock as ps
from helpers.zoo import ZOO, build
from penstock.errors import BundleError, ExportError, ShapeError
from penstock.export import Float32, Int8, bundling, export_bundle
from penstock.runtime.bundle.bundle import Bundle, read_manifest
from penstock.runtime.pipeline import Pipeline

CUT = [name for name in ZOO if name != "branching"]  # its inner part looks at its data


def thinned(net, low=0.2, high=0.8, seed=0):
    """Give the masks of a network some holes."""
    draw = torch.Generator().manual_seed(seed)
    for layer in net.layers:
        if layer.compression is not None:
            layer.compression.phi.data.uniform_(low, high, generator=draw)
    return net


def middling(net, x):
    """Set thresholds at which some samples pass each gate."""
    with torch.no_grad():
        said = net.eval()(x).gates
    net.thresholds = [
        None if out is None else float(layer.gate.gate_logit(out).double().quantile(0.3))
        for layer, out in zip(net.layers, said, strict=True)
    ]
    return net


def same(chain, net, x) -> None:
    """The chain says what the network says, in one batch and sample by sample."""
    wanted = net.predict(x)
    for parts in ([slice(None)], [slice(i, i + 1) for i in range(len(x))]):
        for part in parts:
            said = chain.predict(x[part].numpy())
            assert said.label.tolist() == wanted.label[part].tolist()
            assert said.exit_stage.tolist() == wanted.exit_stage[part].tolist()
            assert said.stopped.tolist() == wanted.stopped[part].tolist()
            np.testing.assert_allclose(said.scores, wanted.scores[part].numpy(), atol=1e-5)
            np.testing.assert_allclose(said.logits, wanted.logits[part].numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CUT)
def test_a_chain_of_exported_stages_is_the_network(name, tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build(name)
    x = draw(12)
    net = middling(thinned(ps.gate(model, x[:2], at=0.5)), x)
    exported = export_bundle(net, x[:3], tmp_path / "bundle")
    assert max(exported.errors) < 1e-5
    same(Pipeline(Bundle.read(tmp_path / "bundle")), net, x)


@pytest.mark.parametrize("granularity", ["element", "channel"])
@pytest.mark.parametrize(
    "options",
    [{}, {"parts": "gate"}, {"parts": "compression"}, {"gate_input": "all"}, {"class_loss_weight": 0.3}],
    ids=str,
)
def test_all_kinds_of_layers_and_several_of_them(granularity, options, tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("convolutions")
    x = draw(10)
    config = ps.LayerConfig(granularity=granularity, **options)
    net = middling(thinned(ps.gate(model, x[:2], at=[0.2, 0.5], layer=config)), x)
    bundle = export_bundle(net, x[:2], tmp_path, precision=Float32("float32")).bundle
    same(Pipeline(bundle), net, x)
    for layer, stage in zip(net.layers, bundle.manifest.stages, strict=False):
        assert stage.output.shape == (layer.transmitted_values,)
        assert (stage.gate is None) == (layer.gate is None)


def test_features_of_tokens(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("encoder")
    x = draw(8)
    net = middling(thinned(ps.gate(model, x[:2], at=0.5, layer=ps.LayerConfig(granularity="feature"))), x)
    same(Pipeline(export_bundle(net, x[:2], tmp_path).bundle), net, x)


def test_the_network_is_left_as_it_was(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("resnet8")
    net = thinned(ps.gate(model, draw(2), at=0.4)).train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    export_bundle(net, draw(2), tmp_path)
    assert net.training and all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_a_graph_names_no_file_of_the_exporting_machine(tmp_path) -> None:
    model, draw = build("resnet8")
    bundle = export_bundle(ps.gate(model, draw(2), at=0.4), draw(2), tmp_path).bundle
    for graph in bundle.graphs:
        assert b".py" not in graph and str(Path(__file__).parents[2]).encode() not in graph


def test_a_gate_that_was_opened_for_good_is_left_out(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("resnet8")
    x = draw(8)
    net = middling(ps.gate(model, x[:2], at=[0.2, 0.5]), x)
    net.thresholds = [-np.inf, net.thresholds[1]]
    bundle = export_bundle(net, x[:2], tmp_path).bundle
    assert [stage.gate is None for stage in bundle.manifest.stages] == [True, False, True]
    said, wanted = Pipeline(bundle).predict(x.numpy()), net.predict(x)
    assert said.exit_stage.tolist() == wanted.exit_stage.tolist() and np.isnan(said.scores[:, 0]).all()


def test_half_floats_halve_what_crosses(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("resnet8")
    x = draw(8)
    net = middling(thinned(ps.gate(model, x[:2], at=0.4)), x)
    whole, half = (
        export_bundle(net, x[:2], tmp_path / kind, precision=Float32(kind)).bundle for kind in ("float32", "float16")
    )
    sizes = [bundle.manifest.stages[0].output.payload_bytes for bundle in (whole, half)]
    assert sizes[0] == 2 * sizes[1] == 4 * net.layers[0].transmitted_values
    said, wanted = Pipeline(half).predict(x.numpy()), net.predict(x)
    assert said.exit_stage.tolist() == wanted.exit_stage.tolist()
    np.testing.assert_allclose(said.logits, wanted.logits.numpy(), atol=2e-2)


def test_the_promise_goes_with_floats(tmp_path) -> None:
    net, data = trained()
    ps.calibrate(net, data, max_positive_loss=0.05)
    manifest = export_bundle(
        net, data[0][:4], tmp_path, check_on=data, labels=["none", "left", "right"]
    ).bundle.manifest
    assert manifest.guarantee is not None and manifest.guarantee.bound == net.guarantee.bound
    assert manifest.stages[0].gate.threshold == net.thresholds[0]
    assert manifest.labels == ("none", "left", "right")
    assert read_manifest(tmp_path) == manifest


def test_what_it_decides_is_compared(tmp_path) -> None:
    net, data = trained()
    exported = export_bundle(net, data[0][:4], tmp_path, check_on=data)
    evaluation = ps.evaluate(net, data)
    for said in (exported.before, exported.after):
        assert said.accuracy == pytest.approx(evaluation.accuracy)
        assert said.early_stopping == pytest.approx(evaluation.early_stopping)
        assert said.positive_lost_rate == pytest.approx(evaluation.positive_lost_rate)


def test_macs_are_counted_on_what_is_left(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("resnet8")
    full = ps.gate(model, draw(2), at=0.4, layer=ps.LayerConfig(granularity="channel"))
    counts = [stage.macs for stage in export_bundle(full, draw(2), tmp_path / "full").bundle.manifest.stages]
    assert counts == [full.spec.macs[0] + full.layers[0].gate_macs, full.spec.macs[1]]
    few = thinned(ps.gate(model, draw(2), at=0.4, layer=ps.LayerConfig(granularity="channel")))
    less = [stage.macs for stage in export_bundle(few, draw(2), tmp_path / "few").bundle.manifest.stages]
    assert less[0] < counts[0] and less[1] < counts[1], "dropped channels are neither computed nor read"


def trained(n=600):
    """A small network that has learnt something, and its data."""
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(0, 3, (n,), generator=draw) * (torch.rand(n, generator=draw) < 0.6)
    x = 0.3 * torch.randn(n, 2, 16, generator=draw)
    x[y == 1, 0] += torch.linspace(0, 2, 16)
    x[y == 2, 1] += torch.linspace(2, 0, 16)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv1d(2, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 8, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)),
    )
    net = ps.gate(model, x[:2], at="2")
    ps.fit(
        net,
        (x, y),
        config=ps.FitConfig(epochs=8, batch_size=64, progress=False, hardware=ps.Hardware(precision="float32")),
    )
    return net, (x, y)


def test_8_bits_cross_and_8_bits_are_reckoned_with(tmp_path) -> None:
    net, data = trained()
    exported = export_bundle(net, data[0][:4], tmp_path, precision=Int8(data), check_on=data)
    first, last = exported.bundle.manifest.stages
    assert first.output.dtype == last.input.dtype == "int8" and first.output.scale > 0
    assert first.output.payload_bytes == net.layers[0].transmitted_values
    assert exported.after.accuracy >= exported.before.accuracy - 0.005
    assert all(b"QuantizeLinear" in graph for graph in exported.bundle.graphs)
    said = Pipeline(exported.bundle).predict(data[0].numpy())
    assert (said.label == net.predict(data[0]).label.numpy()).mean() > 0.98
    assert read_manifest(tmp_path).precision == "int8"


@pytest.mark.parametrize("n", [1, 7, 512, 513, 1023, 1024, 5000])
def test_ranges_are_taken_from_samples_spread_over_the_data(n) -> None:
    some = bundling._some((torch.arange(n, dtype=torch.float32).unsqueeze(1), torch.zeros(n, dtype=torch.long)))
    found = some[:, 0]
    assert len(found) == min(n, 512) and found[0] == 0 and (np.diff(found) > 0).all()
    assert n - found[-1] <= 2 * n / 512 + 1 and np.diff(found).max(initial=0) <= max(1, 4 * n / 512)


def test_a_graph_that_is_not_the_manifests_is_refused(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("conv1d")
    bundle = export_bundle(ps.gate(model, draw(2), at=0.5), draw(2), tmp_path).bundle
    first, second = bundle.manifest.stages

    def refused(*stages, text):
        changed = Bundle(replace(bundle.manifest, stages=stages), bundle.graphs)
        with pytest.raises(BundleError, match=text):
            Pipeline(changed)

    length = first.input.shape[-1]
    short = replace(first, input=replace(first.input, shape=(*first.input.shape[:-1], length - 1)))
    refused(short, second, text=rf"stage-1.onnx.*input.*{length}\]")
    refused(
        replace(first, output=replace(first.output, dtype="float16")), second, text=r"output.*float16.*tensor\(float\)"
    )
    refused(
        first,
        replace(second, gate=first.gate),
        text="'gate'",
    )


def test_what_only_the_gate_needs_stays_in_floats(tmp_path) -> None:
    import onnx

    net, data = trained()
    bundle = export_bundle(net, data[0][:4], tmp_path, precision=Int8(data)).bundle
    graph = onnx.load_from_string(bundle.graphs[0]).graph
    makers = {name: node for node in graph.node for name in node.output}
    floats = {weights.name for weights in graph.initializer if weights.data_type == onnx.TensorProto.FLOAT}
    waiting, heads = ["gate"], {}
    while waiting:
        node = makers.get(waiting.pop())
        if node is not None and node.op_type != "DequantizeLinear":  # up to the features that both read
            heads |= {node.name: node} if node.op_type == "Gemm" else {}
            waiting += node.input
    assert len(heads) == 2 and all(head.input[1] in floats for head in heads.values())
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert convolutions and not any(node.input[1] in floats for node in convolutions)


def test_in_8_bits_the_promise_is_made_anew_or_not_at_all(tmp_path) -> None:
    net, data = trained()
    ps.calibrate(net, data, max_positive_loss=0.05)
    assert export_bundle(net, data[0][:4], tmp_path / "a", precision=Int8(data)).bundle.manifest.guarantee is None
    manifest = export_bundle(net, data[0][:4], tmp_path / "b", precision=Int8(data, held_out=data)).bundle.manifest
    assert manifest.guarantee is not None and manifest.guarantee.bound <= 0.05
    said = Pipeline(Bundle.read(tmp_path / "b")).predict(data[0].numpy())
    assert said.stopped[data[1].numpy() > 0].sum() == manifest.guarantee.lost


def test_an_export_that_decides_worse_is_refused_and_not_written(tmp_path) -> None:
    net, data = trained()
    text = r"costs -?[\d.]+ points of .* on the data given, and -50 are allowed \(accuracy .* or export in float32"
    with pytest.raises(ExportError, match=text):
        export_bundle(net, data[0][:4], tmp_path / "bundle", precision=Int8(data, allowed=-0.5), check_on=data)
    assert not (tmp_path / "bundle").exists()


def test_refusals_say_what_to_do(tmp_path) -> None:
    model, draw = build("resnet8")
    net = ps.gate(model, draw(2), at=0.4)
    with pytest.raises(ShapeError, match=r"an example of shape \(2, 1, 20, 28\) came; this network was gated for"):
        export_bundle(net, torch.zeros(2, 1, 20, 28), tmp_path)
    with pytest.raises(ExportError, match="3 labels came, and the network has 4 classes: name each of them"):
        export_bundle(net, draw(2), tmp_path, labels=["a", "b", "c"])
    net.thresholds = [np.inf]
    with pytest.raises(
        ExportError, match="behind stage 1 has a threshold of infinity and lets nothing pass: calibrate"
    ):
        export_bundle(net, draw(2), tmp_path)
    net.thresholds = [0.0]
    net.layers[0].compression.phi.data.fill_(0)
    with pytest.raises(ExportError, match=r"the mask behind stage 1 keeps nothing of 1568 values.*a lower beta"):
        export_bundle(net, draw(2), tmp_path)
    model, draw = build("branching")
    with pytest.raises(ExportError, match=r"stage \d cannot be exported: .*A stage must be a static graph"):
        export_bundle(ps.gate(model, draw(2), at=0.4), draw(2), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_graph_that_computes_something_else_is_refused(tmp_path, monkeypatch) -> None:
    model, draw = build("resnet8")
    net = ps.gate(model, draw(2), at=0.4)
    monkeypatch.setattr("penstock.export.verification.TOLERANCE", 1e-12)
    with pytest.raises(ExportError, match=r"stage 1 computes something else in the exported graph: it differs by"):
        export_bundle(net, draw(2), tmp_path)


def test_the_same_network_gives_the_same_bundle(tmp_path) -> None:
    model, draw = build("resnet8")
    net = thinned(ps.gate(model, draw(2), at=0.4))
    first, second = (export_bundle(net, torch.ones(2, 1, 28, 28), tmp_path / name).bundle for name in ("a", "b"))
    assert first == second and first.manifest.id == second.manifest.id
    assert replace(first.manifest, background=1).id != first.manifest.id
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["id"] == first.manifest.id
