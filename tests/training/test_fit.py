"""fit: it learns, reproduces, resumes after a kill, runs in several processes, and reports bad data."""

import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import penstock as ps
from helpers.small_task import network, quiet, task, weights
from helpers.zoo import build
from penstock.errors import DataError, LabelError, ShapeError, TrainingError
from penstock.training.module import CollapseWarning

pytestmark = pytest.mark.filterwarnings(  # many trainings here are short
    "ignore::penstock.training.module.CollapseWarning"
)


def test_it_learns_to_classify_to_stop_and_to_compress():
    net = network()
    history = ps.fit(
        net, task(2048), task(512, seed=1), objective=ps.Objective(0.5, 0.3), config=quiet(epochs=12, batch_size=64)
    )
    e = ps.evaluate(net, task(1000, seed=2))
    assert e.accuracy > 0.85
    assert e.early_stopping > 0.9
    assert e.gates[0].auc > 0.98
    assert e.activation_sparsity > 0.2
    assert len(history.epochs) == 12
    assert history.warnings == []
    last = history.epochs[-1]
    assert last["val/accuracy"] > 0.85
    terms = {"loss", "prediction", "gate", "transmission", "penalty", "auc/0", "early_stopping", "positive_lost_rate"}
    assert {f"train/{term}" for term in terms} <= last.keys()
    assert last["density/0"] == pytest.approx(1 - e.activation_sparsity)


def test_fit_is_the_hand_written_loop():
    """The same steps by hand, without Lightning: the same weights."""
    loader = DataLoader(TensorDataset(*task(128)), batch_size=32)
    net, mine = network(), network()
    net.origin[3].p = mine.origin[3].p = 0.0  # no dropout, which `fit` seeds itself
    ps.fit(mine, loader, config=quiet(optimizer=ps.OptimizerConfig(0.01, "constant"), epochs=3))
    phi = net.layers[0].compression.phi
    rest = [p for p in net.parameters() if p is not phi]
    optimizer = torch.optim.Adam([{"params": rest}, {"params": [phi], "lr": 0.003}], lr=0.01)
    net.train()
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            ps.Objective()(net, net(x), y).total.backward()
            optimizer.step()
    torch.testing.assert_close(weights(mine), weights(net))


def test_the_same_seed_gives_the_same_network():
    nets = []
    for seed in (1, 1, 2):
        net = network()
        ps.fit(net, task(), config=quiet(epochs=2, batch_size=64, seed=seed))
        nets.append(weights(net))
    assert torch.equal(nets[0], nets[1])
    assert not torch.equal(nets[0], nets[2])


SCRIPT = """
import sys, torch, penstock as ps
sys.path.insert(0, {tests!r})
from helpers.small_task import network, task, weights, quiet
torch.set_num_threads(1)
net = network(layer=ps.LayerConfig(mask="drawn"))
history = ps.fit(net, task(1024), task(seed=1), config=quiet(epochs=5, batch_size=16, folder=sys.argv[1]))
torch.save((weights(net), [row["train/loss"] for row in history.epochs]), sys.argv[2])
"""


def script(folder, out):
    code = SCRIPT.format(tests=str(Path(__file__).parents[1]))
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), str(out)], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def test_a_killed_training_ends_like_an_uninterrupted_one(tmp_path):
    """Shuffling, dropout and drawn masks are in play, and the kill is a real one."""
    assert script(tmp_path / "whole", tmp_path / "whole.pt").wait() == 0
    broken = script(tmp_path / "broken", tmp_path / "broken.pt")
    metrics = tmp_path / "broken" / "csv" / "metrics.csv"
    while not (metrics.exists() and len(metrics.read_text().splitlines()) >= 3):  # a header and two epochs
        assert broken.poll() is None, "it ended before the kill"
        time.sleep(0.01)
    time.sleep(0.1)
    broken.send_signal(signal.SIGKILL)
    broken.wait()
    assert not (tmp_path / "broken.pt").exists()
    assert script(tmp_path / "broken", tmp_path / "broken.pt").wait() == 0
    assert (tmp_path / "broken" / "csv" / "metrics.csv").read_text() == (
        tmp_path / "whole" / "csv" / "metrics.csv"
    ).read_text(), "the log must have the epochs before the kill too"
    expected, losses = torch.load(tmp_path / "whole.pt")
    found, found_losses = torch.load(tmp_path / "broken.pt")
    assert found_losses == losses
    assert torch.equal(found, expected)


def test_data_of_another_float_type_is_refused_and_double_networks_work():
    net, (x, y) = network(), task()
    for use in (
        lambda: ps.fit(net, (x.double(), y), config=quiet(epochs=1)),
        lambda: ps.evaluate(net, (x.double(), y)),
        lambda: net.eval().predict(x.double()),
    ):
        with pytest.raises(ShapeError, match=r"torch.float32.*torch.float64"):
            use()
    assert net.double().eval().predict(x.double()).label.shape == y.shape


def test_labels_of_any_whole_type_train_alike():
    nets = []
    for kind in (torch.int64, torch.int32, torch.uint8):
        net, (x, y) = network(), task()
        ps.fit(net, (x, y.to(kind)), config=quiet(epochs=1))
        nets.append(weights(net))
    assert torch.equal(nets[0], nets[1]) and torch.equal(nets[0], nets[2])


def test_the_best_epoch_can_be_kept(tmp_path):
    net = network()
    history = ps.fit(net, task(), task(seed=1), config=quiet(epochs=6, batch_size=32, folder=tmp_path, keep="best"))
    best = min(history.epochs, key=lambda row: row["val/loss"])
    assert ps.evaluate(net, task(seed=1)).accuracy_open == pytest.approx(best["val/accuracy_open"])
    with pytest.raises(TrainingError, match="folder"):
        ps.fit(network(), task(), config=quiet(epochs=1, keep="best"))
    with pytest.raises(TrainingError, match="val"):
        ps.fit(network(), task(), config=quiet(epochs=1, folder=tmp_path, keep="best"))


def test_an_interrupt_raises_keyboard_interrupt(tmp_path):
    class Interrupting(TensorDataset):
        def __getitem__(self, i):
            if i == 300:
                raise KeyboardInterrupt
            return super().__getitem__(i)

    with pytest.raises(KeyboardInterrupt):
        ps.fit(network(), Interrupting(*task()), config=quiet(epochs=1))


DDP = """
import os, sys, torch, penstock as ps
sys.path.insert(0, {tests!r})
from helpers.small_task import plain_layers, task, weights
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
devices, batch = int(sys.argv[1]), int(sys.argv[2])
net = plain_layers()
data = TensorDataset(*task(256))
history = ps.fit(
    net, DataLoader(data, batch_size=batch, shuffle=True), task(256, seed=1),
    config=ps.FitConfig(
        optimizer=ps.OptimizerConfig(0.01, "constant"),
        epochs=2, batch_size=batch, progress=False, hardware=ps.Hardware(devices=devices, precision="float32")
    ),
)
if os.environ.get("LOCAL_RANK", "0") == "0":
    torch.save((weights(net), history.epochs), sys.argv[3])
"""


@pytest.mark.slow
def test_two_processes_train_like_one_with_a_batch_twice_as_large(tmp_path):
    code = DDP.format(tests=str(Path(__file__).parents[1]))
    (tmp_path / "ddp.py").write_text(code)
    env = os.environ | {"OMP_NUM_THREADS": "1", "PL_TORCH_DISTRIBUTED_BACKEND": "gloo"}
    for devices, batch, out in ((1, 64, "one.pt"), (2, 32, "two.pt")):
        command = [sys.executable, str(tmp_path / "ddp.py"), str(devices), str(batch), str(tmp_path / out)]
        subprocess.run(command, check=True, env=env, cwd=tmp_path, timeout=200)
    one, one_epochs = torch.load(tmp_path / "one.pt")
    two, two_epochs = torch.load(tmp_path / "two.pt")
    torch.testing.assert_close(two, one, atol=1e-5, rtol=1e-4)
    for mine, theirs in zip(two_epochs, one_epochs, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)  # the metrics count every sample of both processes once


def test_data_that_other_processes_read_trains_the_same():
    nets = [network(), network()]
    for net, workers in zip(nets, (0, 2), strict=True):
        ps.fit(
            net,
            task(128),
            config=ps.FitConfig(
                epochs=2, batch_size=32, progress=False, hardware=ps.Hardware(precision="float32", workers=workers)
            ),
        )
    assert torch.equal(*map(weights, nets))
    assert ps.Hardware().device == torch.device("cpu")


def norms(net):
    return [part for part in net.modules() if isinstance(part, nn.BatchNorm1d)]


def with_norms():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4)
    )


def test_a_network_in_evaluation_mode_is_trained_all_the_same():
    """After a first training, or because a pretrained model is in evaluation mode."""
    steps = 4
    net = ps.gate(with_norms().eval(), torch.zeros(2, 6), at=0.5)
    for times in (1, 2):
        ps.fit(net, task(128), config=quiet(epochs=1, batch_size=32))
        assert [norm.num_batches_tracked.item() for norm in norms(net)] == [times * steps] * 2
        assert not any(part.training for part in net.modules())


def test_what_was_frozen_in_a_network_that_trains_stays_frozen():
    net = ps.gate(with_norms(), torch.zeros(2, 6), at=0.5)
    norms(net)[0].eval()
    ps.fit(net, task(128), config=quiet(epochs=1, batch_size=32))
    assert [norm.num_batches_tracked.item() for norm in norms(net)] == [0, 4]


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_images_train_channels_last(precision):
    model, draw = build("resnet8")
    net = ps.gate(model, draw(2), at=0.4)
    x, y = draw(64), torch.arange(64) % 4
    ps.fit(
        net,
        (x, y),
        config=ps.FitConfig(epochs=1, batch_size=32, hardware=ps.Hardware(precision=precision), progress=False),
    )
    kernel = next(p for p in net.parameters() if p.ndim == 4 and p.shape[1] > 1 and p.shape[2] > 1)
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert kernel.dtype == torch.float32
    assert net(x).logits.dtype == torch.float32


def test_a_plain_network_trains_too():
    net = network(at=0)
    ps.fit(net, task(), task(seed=1), config=quiet(epochs=1))
    assert net(torch.zeros(1, 6)).gates == ()


@pytest.mark.parametrize(
    "layer",
    [
        ps.LayerConfig("gate"),
        ps.LayerConfig("compression"),
        ps.LayerConfig(granularity="channel"),
        ps.LayerConfig(class_loss_weight=0.3),
    ],
    ids=str,
)
def test_every_kind_of_layer_trains(layer):
    net = network(layer=layer, at=[0.3, 0.7])
    before = weights(net)
    history = ps.fit(net, task(), task(seed=1), config=quiet(epochs=1))
    assert len(history.epochs) == 1 and weights(net).isfinite().all()
    assert not torch.equal(weights(net), before)
    assert [made.gate is None for made in net.layers] == [layer.parts == "compression"] * 2


def test_rare_positives_are_all_stopped_unless_weighted():
    """1:99, where a probability of ½ is a bad threshold."""
    draw = torch.Generator().manual_seed(0)
    y = (torch.arange(6000) % 100 == 0).long()
    x = torch.randn(6000, 6, generator=draw) + 0.9 * y[:, None]
    lost = []
    for counts in (None, ps.class_counts((x, y), 4)):
        net = network()
        objective = ps.Objective(0.5, 0.0, class_counts=counts)
        with pytest.warns(CollapseWarning) if counts is None else _nothing():
            ps.fit(net, (x, y), objective=objective, config=quiet(epochs=2, batch_size=128))
        lost.append(ps.evaluate(net, (x, y)).positive_lost_rate)
    assert lost[0] > 0.9
    assert lost[1] < 0.4


class _nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        return False


def test_bad_data():
    x, y = task()
    with pytest.raises(LabelError, match=r"no positives.* 512"):
        ps.fit(network(), (x, y * 0), config=quiet(epochs=1))
    with pytest.raises(LabelError, match="no negatives"):
        ps.fit(network(), (x, y * 0 + 1), config=quiet(epochs=1))
    with pytest.raises(LabelError, match=r"labels .*\[4, 5\]"):
        ps.fit(network(), (x, y + 2), config=quiet(epochs=1))
    with pytest.raises(DataError, match="empty"):
        ps.fit(network(), (x[:0], y[:0]), config=quiet(epochs=1))
    with pytest.raises(DataError, match="got 3 parts"):
        ps.fit(network(), TensorDataset(x, y, y), config=quiet(epochs=1))
    with pytest.raises(TrainingError, match=r"epochs .* 0"):
        ps.fit(network(), (x, y), config=quiet(epochs=0))


def test_a_data_set_without_positives_is_noticed_when_its_labels_are_not_at_hand():
    class Lazy(torch.utils.data.Dataset):
        def __len__(self):
            return 100

        def __getitem__(self, i):
            return torch.randn(6), 0

    with pytest.raises(LabelError, match="no positives"):
        ps.fit(network(), Lazy(), config=quiet(epochs=3))


def test_a_last_batch_of_one_sample_is_left_out():
    """Batch norm cannot learn from one sample."""
    net = network()
    ps.fit(net, task(257), config=quiet(epochs=1, batch_size=256))
    norms = [module for module in net.modules() if isinstance(module, nn.BatchNorm1d)]
    assert norms and all(norm.num_batches_tracked == 1 for norm in norms)


def test_batches_without_positives_just_work():
    x, y = task(256)
    order = y.sort().indices
    net = network()
    before = weights(net)
    history = ps.fit(net, DataLoader(TensorDataset(x[order], y[order]), batch_size=16), config=quiet(epochs=1))
    assert math.isfinite(history.epochs[0]["train/loss"])
    assert weights(net).isfinite().all() and not torch.equal(weights(net), before)
