"""evaluate against a plain walk through predict, sample by sample."""

import json
from math import prod

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import penstock as ps
from helpers.zoo import build
from penstock.errors import DataError, LabelError, ShapeError, StorageError


@pytest.fixture
def net():
    model, draw = build("resnet8_1d")
    net = ps.gate(model, draw(2), at=[0.3, 0.6], positives=[{1, 2, 3}, {1, 2}]).eval()
    x = draw(200)
    with torch.no_grad():
        for layer in net.layers:
            layer.compression.phi.copy_((torch.rand_like(layer.compression.phi) > 0.6).float())
    net.thresholds = [gate.quantile(0.3).item() - 1e-5 for gate in net(x).gates]
    return net


@pytest.fixture
def data():
    return torch.randn(120, 6, 50), torch.arange(120) % 4


def by_hand(net, x, y):
    """Everything of the cascade, from predict on one sample at a time."""
    rows = []
    for one, label in zip(x, y.tolist(), strict=True):
        prediction = net.predict(one[None])
        open_label = net(one[None]).logits.argmax().item()
        exit_stage = prediction.exit_stage.item()
        macs = sum(net.spec.macs[:exit_stage])
        payload = 0
        for i, layer in enumerate(net.layers):
            kept = len(layer.compression.kept)
            if exit_stage > i:
                macs += layer.gate.macs(kept)
            if exit_stage > i + 1:
                payload += 4 * kept
        rows.append(
            (
                label in (1, 2),
                prediction.stopped.item(),
                prediction.label.item() == label,
                open_label == label,
                macs,
                payload,
            )
        )
    return rows


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def test_against_predict_one_by_one(net, data):
    e, rows = ps.evaluate(net, data, ratios=(9, 99)), by_hand(net, *data)
    pos, neg = [r for r in rows if r[0]], [r for r in rows if not r[0]]
    assert e.samples == 120
    assert e.positives == len(pos)
    assert e.accuracy == pytest.approx(mean(r[2] for r in rows))
    assert e.accuracy_open == pytest.approx(mean(r[3] for r in rows))
    assert e.early_stopping == pytest.approx(mean(r[1] for r in neg))
    assert e.positive_lost_rate == pytest.approx(mean(r[1] for r in pos))
    assert e.stop_rate == pytest.approx(mean(r[1] for r in rows))
    assert e.negative_pass_through_rate == pytest.approx(1 - e.early_stopping)
    assert e.negative_correction_rate == pytest.approx(mean(r[1] and not r[3] for r in neg))
    kept, values = sum(len(la.compression.kept) for la in net.layers), sum(prod(la.feature) for la in net.layers)
    assert e.activation_sparsity == pytest.approx(1 - kept / values)
    own, nine, hundred = e.costs
    assert own.macs == pytest.approx(mean(r[4] for r in rows))
    assert own.payload_bytes == pytest.approx(mean(r[5] for r in rows))
    assert nine.macs == pytest.approx(0.1 * mean(r[4] for r in pos) + 0.9 * mean(r[4] for r in neg))
    assert hundred.payload_bytes == pytest.approx(0.01 * mean(r[5] for r in pos) + 0.99 * mean(r[5] for r in neg))
    assert own.plain_payload_bytes == 4 * values
    assert own.plain_macs == sum(net.spec.macs)


def test_each_gate_alone(net, data):
    x, y = data
    e = ps.evaluate(net, data)
    for i, (gate, wanted) in enumerate(zip(e.gates, ({1, 2, 3}, {1, 2}), strict=True)):
        alone = net.predict(x, active={i}).stopped
        positive = torch.tensor([label in wanted for label in y.tolist()])
        assert gate.stop_rate == pytest.approx(alone.double().mean().item())
        assert gate.positive_lost_rate == pytest.approx(alone[positive].double().mean().item())
        assert gate.negative_pass_through_rate == pytest.approx((~alone[~positive]).double().mean().item())
        assert sum(gate.histogram[0]) == int((~positive).sum())
        assert sum(gate.histogram[1]) == int(positive.sum())
        assert gate.kept == len(net.layers[i].compression.kept)
    at = net.predict(x).exit_stage
    assert [gate.stopped for gate in e.gates] == pytest.approx(
        [(at == stage).double().mean().item() for stage in (1, 2)]
    )
    assert e.gates[1].reached == pytest.approx((at > 1).double().mean().item())


def test_classes(net, data):
    x, y = data
    e = ps.evaluate(net, data, class_names=["none", "one", "two", "three"])
    label = net.predict(x).label
    assert [row.name for row in e.classes] == ["none", "one", "two", "three"]
    for row in e.classes:
        assert row.recall == pytest.approx((label[y == row.label] == row.label).double().mean().item())
        assert row.samples == 30


def test_what_is_positive_depends_on_the_gates_that_are_on(net, data):
    assert ps.evaluate(net, data).positives == 60  # 1 and 2: of interest to both gates
    assert ps.evaluate(net, data, active={0}).positives == 90  # 1, 2 and 3: of interest to the first


def test_gates_can_be_switched(net, data):
    open_ = ps.evaluate(net, data, active=())
    assert open_.early_stopping == 0
    assert open_.accuracy == open_.accuracy_open
    one, both = ps.evaluate(net, data, active={0}), ps.evaluate(net, data)
    assert one.early_stopping <= both.early_stopping
    with pytest.raises(ps.errors.CutError, match=r"\[0, 1\].*\[5\]"):
        ps.evaluate(net, data, active={5})


@pytest.mark.parametrize("layer", [ps.LayerConfig("gate"), ps.LayerConfig("compression")], ids=str)
def test_half_a_layer(data, layer):
    model, draw = build("resnet8_1d")
    e = ps.evaluate(ps.gate(model, draw(2), at=0.4, layer=layer), data)
    assert (e.gates[0].auc is None) == (layer.parts == "compression")
    assert str(e)


def test_every_way_to_give_data(net, data):
    class Own(Dataset):
        def __len__(self):
            return 120

        def __getitem__(self, i):
            return data[0][i], int(data[1][i])

    expected = ps.evaluate(net, data)
    for given in (TensorDataset(*data), Own(), DataLoader(Own(), batch_size=50), list(data)):
        assert ps.evaluate(net, given, batch_size=120).accuracy == expected.accuracy


def test_json_round_trip(net, data, tmp_path):
    e = ps.evaluate(net, data)
    e.save(tmp_path / "deep" / "e.json")
    assert ps.Evaluation.load(tmp_path / "deep" / "e.json") == e
    json.loads((tmp_path / "deep" / "e.json").read_text(), parse_constant=pytest.fail)  # no NaN, no Infinity
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(StorageError, match="not an evaluation"):
        ps.Evaluation.load(tmp_path / "other.json")


def test_an_open_gate_has_no_threshold_in_json(net, data, tmp_path):
    net.thresholds = [float("-inf"), 0.0]
    e = ps.evaluate(net, data)
    assert e.gates[0].stopped == 0
    e.save(tmp_path / "e.json")
    json.loads((tmp_path / "e.json").read_text(), parse_constant=pytest.fail)


def test_the_tables_fit_a_terminal(net, data):
    text = str(ps.evaluate(net, data))
    assert "early stopping" in text
    assert max(map(len, text.splitlines())) <= 100


def test_plots_are_pictures(net, data, tmp_path):
    written = ps.evaluate(net, data).plot(tmp_path, net)
    assert [path.name for path in written] == ["roc.png", "gate-scores.png", "mask.png"]
    for path in written:
        assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_bad_data(net, data):
    x, y = data
    with pytest.raises(LabelError, match=r"no positives.*30 samples"):
        ps.evaluate(net, (x[y == 0], y[y == 0]))
    with pytest.raises(LabelError, match=r"no negatives.*60 samples"):
        ps.evaluate(net, (x[(y == 1) | (y == 2)], y[(y == 1) | (y == 2)]))
    with pytest.raises(LabelError, match=r"labels .*\[4\]"):
        ps.evaluate(net, (x, y + 1))
    with pytest.raises(ShapeError, match=r"NaN or infinity in samples \[0, 1, 2"):
        ps.evaluate(net, (x * float("nan"), y))
    with pytest.raises(DataError, match=r"119 labels for 120 samples"):
        ps.evaluate(net, (x, y[1:]))
    with pytest.raises(DataError, match=r"got 3 parts"):
        ps.evaluate(net, TensorDataset(x, y, y))
    with pytest.raises(DataError, match=r"ratios.*\[-1\]"):
        ps.evaluate(net, data, ratios=[-1])
    with pytest.raises(DataError, match=r"batch_size .*got 0"):
        ps.evaluate(net, data, batch_size=0)
    with pytest.raises(DataError, match=r"got str"):
        ps.evaluate(net, "data")


def test_predict_refuses_what_it_cannot_judge(net, data):
    x, _ = data
    x = x[:5].clone()
    x[3, 0, 0] = float("nan")
    with pytest.raises(ShapeError, match=r"samples \[3\] of 5"):
        net.predict(x)
    x[3, 0, 0] = float("inf")
    with pytest.raises(ShapeError, match=r"NaN or infinity in samples \[3\]"):
        net.predict(x)
    x[1, 0, 0] = -float("inf")
    with pytest.raises(ShapeError, match=r"NaN or infinity in samples \[1, 3\]"):
        net.predict(x)
    huge = torch.full_like(x, torch.finfo(x.dtype).max)  # finite, and their sum is not
    assert len(net.predict(huge).label) == 5
    with pytest.raises(ShapeError, match=r"\(batch, 6, 50\).* \(6, 50\)"):
        net.predict(x[0])
    with pytest.raises(ShapeError, match=r"\(5, 6, 49\)"):
        net.predict(x[:, :, 1:])
    with pytest.raises(ShapeError, match=r"\(batch, 6, 50\), float32.* torch.int64"):
        net.predict(x.long())
    with pytest.raises(ps.errors.CutError, match="NaN"):
        net.thresholds = [0.0, float("nan")]


def test_predict_stops_for_good(net, data):
    """Later stages see only the survivors, and nothing at all when there are none."""
    seen = []
    for stage in net.stages:
        stage.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    prediction = net.predict(data[0])
    passed = [int((prediction.exit_stage > 1).sum()), int((~prediction.stopped).sum())]
    assert seen == [120, *passed]
    net.thresholds = [1e9, 0.0]
    seen.clear()
    assert (net.predict(data[0]).label == net.background).all()
    assert seen == [120]


def test_predict_leaves_the_mode_alone(net, data):
    net.train()
    net.predict(data[0])
    assert net.training
    assert net.stages[0].training
