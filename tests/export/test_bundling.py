"""An exported bundle is the network: the same outputs, the same decisions, without what its masks drop."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from torch import nn

import penstock as ps
from helpers.slow import slow_but
from helpers.zoo import ZOO, build
from penstock.errors import BundleError, ExportError, ShapeError
from penstock.export import Float32, Int8, export_bundle
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
        gates = net.eval()(x).gates
    net.thresholds = [None if logit is None else float(logit.double().quantile(0.3)) for logit in gates]
    return net


def same(pipeline, net, x) -> None:
    """The pipeline decides as the network does, in one batch and sample by sample."""
    expected = net.predict(x)
    for parts in ([slice(None)], [slice(i, i + 1) for i in range(len(x))]):
        for part in parts:
            got = pipeline.predict(x[part].numpy())
            assert got.label.tolist() == expected.label[part].tolist()
            assert got.exit_stage.tolist() == expected.exit_stage[part].tolist()
            assert got.stopped.tolist() == expected.stopped[part].tolist()
            np.testing.assert_allclose(got.scores, expected.scores[part].numpy(), atol=1e-5)
            np.testing.assert_allclose(got.logits, expected.logits[part].numpy(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", slow_but({"convolutions", "encoder", "recurrent", "resnet8_1d"}, CUT))
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


def test_a_gate_that_was_opened_for_good_is_left_out(tmp_path) -> None:
    torch.manual_seed(0)
    model, draw = build("resnet8")
    x = draw(8)
    net = middling(ps.gate(model, x[:2], at=[0.2, 0.5]), x)
    net.thresholds = [-np.inf, net.thresholds[1]]
    bundle = export_bundle(net, x[:2], tmp_path).bundle
    assert [stage.gate is None for stage in bundle.manifest.stages] == [True, False, True]
    got, wanted = Pipeline(bundle).predict(x.numpy()), net.predict(x)
    assert got.exit_stage.tolist() == wanted.exit_stage.tolist() and np.isnan(got.scores[:, 0]).all()


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
    got, wanted = Pipeline(half).predict(x.numpy()), net.predict(x)
    assert got.exit_stage.tolist() == wanted.exit_stage.tolist()
    np.testing.assert_allclose(got.logits, wanted.logits.numpy(), atol=2e-2)


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
    for got in (exported.before, exported.after):
        assert got.accuracy == pytest.approx(evaluation.accuracy)
        assert got.early_stopping == pytest.approx(evaluation.early_stopping)
        assert got.positive_lost_rate == pytest.approx(evaluation.positive_lost_rate)


def trained(n=600, **layer):
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
    net = ps.gate(model, x[:2], at="2", layer=ps.LayerConfig(**layer))
    ps.fit(
        net,
        (x, y),
        config=ps.FitConfig(epochs=8, batch_size=64, progress=False, hardware=ps.Hardware(precision="float32")),
    )
    return net, (x, y)


@pytest.mark.parametrize(("target", "dtype"), [("x86", "uint8"), ("arm", "int8")])
def test_int8_stages_compute_in_8_bits_and_send_8_bits(target, dtype, tmp_path) -> None:
    net, data = trained()
    exported = export_bundle(net, data[0][:4], tmp_path, precision=Int8(data, target=target), check_on=data)
    first, last = exported.bundle.manifest.stages
    assert first.output.dtype == last.input.dtype == dtype and first.output.scale > 0
    assert first.output.payload_bytes == net.layers[0].transmitted_values
    assert exported.after.accuracy >= exported.before.accuracy - 0.005
    assert all(b"QuantizeLinear" in graph for graph in exported.bundle.graphs)
    got = Pipeline(exported.bundle).predict(data[0].numpy())
    assert (got.label == net.predict(data[0]).label.numpy()).mean() > 0.98
    assert read_manifest(tmp_path).precision == "int8"


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


@pytest.mark.parametrize(("head", "linear_layers"), [("linear", 2), ("conv2", 1)])
def test_the_gates_last_layers_stay_in_floats(tmp_path, head, linear_layers) -> None:
    net, data = trained(head=head)
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
    assert len(heads) == linear_layers and all(head.input[1] in floats for head in heads.values())
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert convolutions and not any(node.input[1] in floats for node in convolutions)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize(
    ("keep", "granularity"), [(37, "element"), pytest.param(0.5, "channel", marks=pytest.mark.slow)]
)
def test_values_of_few_bits_cross_as_the_network_was_trained(tmp_path, bits, keep, granularity) -> None:
    net, (x, y) = trained(bits=bits, keep=keep, granularity=granularity)
    net = middling(net, x)
    bundle = export_bundle(net, x[:4], tmp_path / "float32").bundle
    for stage in bundle.manifest.stages[:-1]:
        assert stage.output.payload_bytes == net.layers[0].transmitted_bytes
    assert Bundle.read(tmp_path / "float32") == bundle
    same(Pipeline(bundle), net, x[:100])
    bundle = export_bundle(
        net, x[:4], tmp_path / "int8", precision=Int8((x, y), tolerance=0.03), check_on=(x, y)
    ).bundle
    assert bundle.manifest.stages[0].output.payload_bytes == net.layers[0].transmitted_bytes


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_coefficients_cross_where_the_mask_has_a_transform(tmp_path, precision) -> None:
    torch.manual_seed(0)
    y = torch.arange(400) % 3
    x = (
        0.3 * torch.randn(400, 1, 12, 12)
        + torch.stack([torch.eye(12), torch.eye(12).flip(0), torch.zeros(12, 12)])[y, None]
    )
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)),
    )
    net = ps.gate(model, x[:2], at="2", layer=ps.LayerConfig(keep=60, transform="cosine"), background=2)
    config = ps.FitConfig(epochs=8, batch_size=50, progress=False, hardware=ps.Hardware(precision="float32"))
    ps.fit(net, (x, y), config=config)
    assert net.layers[0].compression.transform.fitted
    net = middling(net, x)
    if precision == "float32":
        same(Pipeline(export_bundle(net, x[:4], tmp_path).bundle), net, x[:50])
        return
    exported = export_bundle(net, x[:4], tmp_path, precision=Int8((x, y), tolerance=0.02), check_on=(x, y))
    assert exported.bundle.manifest.stages[0].output.payload_bytes == 60
    for graph in exported.bundle.graphs:  # sums of many values need more than 8 bits
        onnx_graph = onnx.load_from_string(graph).graph
        makers = {name: node for node in onnx_graph.node for name in node.output}
        products = [node for node in onnx_graph.node if node.op_type == "MatMul"]
        floats = {weights.name for weights in onnx_graph.initializer if weights.data_type == onnx.TensorProto.FLOAT}
        assert len(products) == 3
        assert all(any(name in floats for name in node.input) for node in products)
        assert (
            sum(
                makers[name].op_type == "DequantizeLinear" for node in products for name in node.input if name in makers
            )
            <= 1
        )


def test_values_whose_range_is_not_known_are_refused(tmp_path) -> None:
    model, draw = build("resnet8")
    net = ps.gate(model, draw(2), at=0.4, layer=ps.LayerConfig(bits=4))
    with pytest.raises(ExportError, match="4 bits"):
        export_bundle(net, draw(2), tmp_path)


def test_an_example_with_other_strides_is_exported(tmp_path) -> None:
    net, (x, _) = trained()
    strided = x[:4].transpose(1, 2).contiguous().transpose(1, 2)
    assert not strided.is_contiguous()
    export_bundle(net, strided, tmp_path)


def test_a_target_that_is_not_known_is_refused() -> None:
    with pytest.raises(ExportError, match=r"x86, arm, got 'riscv'"):
        Int8((torch.zeros(2, 2), torch.zeros(2, dtype=torch.long)), target="riscv")


def test_an_int8_bundle_has_a_guarantee_of_its_own_or_none(tmp_path) -> None:
    net, data = trained()
    ps.calibrate(net, data, max_positive_loss=0.05)
    assert export_bundle(net, data[0][:4], tmp_path / "a", precision=Int8(data)).bundle.manifest.guarantee is None
    manifest = export_bundle(net, data[0][:4], tmp_path / "b", precision=Int8(data, held_out=data)).bundle.manifest
    assert manifest.guarantee is not None and manifest.guarantee.bound <= 0.05
    got = Pipeline(Bundle.read(tmp_path / "b")).predict(data[0].numpy())
    assert got.stopped[data[1].numpy() > 0].sum() == manifest.guarantee.lost


def test_an_export_that_decides_worse_is_refused_and_not_written(tmp_path) -> None:
    net, data = trained()
    with pytest.raises(ExportError, match=r"points of .*-50.*accuracy.*float32"):
        export_bundle(net, data[0][:4], tmp_path / "bundle", precision=Int8(data, tolerance=-0.5), check_on=data)
    assert not (tmp_path / "bundle").exists()


def refused(tmp_path, precision, check_on, net) -> str:
    with pytest.raises(ExportError) as error:
        export_bundle(net, check_on[0][:4], tmp_path / "bundle", precision=precision, check_on=check_on)
    assert not (tmp_path / "bundle").exists()
    return str(error.value)


def test_a_refusal_blames_what_is_to_blame(tmp_path) -> None:
    """Ranges of quiet samples clip others; thresholds from the clearest 60 positives lose the rest; else, 8 bits."""
    net, (x, y) = trained()
    ps.calibrate(net, (x, y), max_positive_loss=0.05)
    quiet = (0.02 * x, y)
    assert "ranges" in refused(tmp_path, Int8(quiet, tolerance=0.02), (x, y), net)
    with torch.no_grad():
        clearest = net.eval()(x).gates[0].argsort(descending=True)
    positives = clearest[y[clearest] > 0]
    mislabelled = torch.where(torch.arange(len(positives)) < 60, y[positives], 0)
    said = refused(tmp_path, Int8((x, y), held_out=(x[positives], mislabelled), tolerance=0.02), (x, y), net)
    assert "recalibrated" in said and "60 positives" in said
    assert "8 bits" in refused(tmp_path, Int8((x, y), tolerance=-0.5), (x, y), net)


def test_refusals_say_what_to_do(tmp_path) -> None:
    model, draw = build("resnet8")
    net = ps.gate(model, draw(2), at=0.4)
    with pytest.raises(ShapeError, match=r"1, 28, 28.*\(2, 1, 20, 28\)"):
        export_bundle(net, torch.zeros(2, 1, 20, 28), tmp_path)
    with pytest.raises(ExportError, match=r"4 labels.*got 3"):
        export_bundle(net, draw(2), tmp_path, labels=["a", "b", "c"])
    net.thresholds = [np.inf]
    with pytest.raises(ExportError, match=r"stage 1.*threshold.*Calibrate"):
        export_bundle(net, draw(2), tmp_path)
    net.thresholds = [0.0]
    net.layers[0].compression.phi.data.fill_(0)
    with pytest.raises(ExportError, match=r"mask after stage 1.*1568.*beta"):
        export_bundle(net, draw(2), tmp_path)
    model, draw = build("branching")
    with pytest.raises(ExportError, match=r"stage \d.*static graph"):
        export_bundle(ps.gate(model, draw(2), at=0.4), draw(2), tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_same_network_gives_the_same_bundle(tmp_path) -> None:
    model, draw = build("resnet8")
    net = thinned(ps.gate(model, draw(2), at=0.4))
    first, second = (export_bundle(net, torch.ones(2, 1, 28, 28), tmp_path / name).bundle for name in ("a", "b"))
    assert first == second and first.manifest.id == second.manifest.id
    assert replace(first.manifest, background=1).id != first.manifest.id
    assert json.loads((tmp_path / "a" / "manifest.json").read_text())["id"] == first.manifest.id
