"""Learning rates of new and pretrained networks, weight decay, warm-up, clipping; and a loss that rises."""

import copy

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn

import penstock as ps
from helpers.small_task import network, pretrained, quiet, task
from helpers.timm_models import import_timm
from penstock.training.epoch_metrics import MEAN_OF, LossRise
from penstock.training.module import CollapseWarning
from penstock.training.optimizer import OWN_TEACHER_RATE, OptimizerConfig, is_pretrained


def groups(net, **options):
    optimizer, _ = OptimizerConfig(**options).build(net, 100)
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    return {
        names[id(parameter)]: (group["max_lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def gated():
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4))
    return ps.gate(model, torch.zeros(2, 6), at="2")


def test_a_new_network_learns_at_the_rate_of_its_gates_and_a_pretrained_one_at_a_tenth() -> None:
    net = gated()
    fresh = groups(net)
    assert {rate for name, (rate, _) in fresh.items() if name.startswith("stages")} == {0.01}
    net.stages[0].get_submodule("1").bias.data[0] = 0.1
    trained = groups(net)
    assert {rate for name, (rate, _) in trained.items() if name.startswith("stages")} == {0.001}
    assert {name: value for name, value in trained.items() if not name.startswith("stages")} == {
        name: value for name, value in fresh.items() if not name.startswith("stages")
    }
    assert groups(net, network_rate=0.5)["stages.0.0.weight"][0] == 0.005


def test_a_network_that_is_what_its_teacher_is_learns_slowest() -> None:
    net = gated()
    teacher = ps.ungate(net)
    assert OptimizerConfig().for_network(net, teacher).network_rate == OWN_TEACHER_RATE
    assert ps.GatedLightningModule(net, teacher=teacher).optimizer.network_rate == OWN_TEACHER_RATE
    assert OptimizerConfig(network_rate=0.5).for_network(net, teacher).network_rate == 0.5
    with torch.no_grad():
        next(teacher.parameters()).add_(0.1)
    for other in (teacher, nn.Linear(6, 4)):
        assert OptimizerConfig().for_network(net, other).network_rate == 1.0


def test_weight_decay_is_for_matrices_and_kernels_but_not_for_masks() -> None:
    decays = {name: decay for name, (_, decay) in groups(gated(), weight_decay=0.1).items()}
    assert {name for name, decay in decays.items() if decay} == {
        name for name, value in gated().named_parameters() if value.ndim > 1 and "phi" not in name
    }


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_rate_warms_up(schedule) -> None:
    optimizer, scheduler = OptimizerConfig(0.1, schedule, warm_up=0.1).build(gated(), 100)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert rates[:11] == sorted(rates[:11]) and rates[0] < 0.02 and rates[10] == pytest.approx(0.1)
    assert rates[-1] < 0.01 if schedule == "cosine" else rates[-1] == pytest.approx(0.1)


@pytest.mark.parametrize(
    "wrong", [{"network_rate": 0.0}, {"weight_decay": -1.0}, {"warm_up": 1.0}, {"clip": 0.0}, {"rate": float("nan")}]
)
def test_wrong_numbers_are_refused(wrong) -> None:
    (name,) = wrong
    with pytest.raises(ps.errors.TrainingError, match=name):
        OptimizerConfig(**wrong)


@pytest.mark.parametrize(
    "name", ["resnet18", "efficientnet_lite0", "mobilenetv3_small_050", "convnext_atto", "vit_tiny_patch16_224"]
)
def test_freshly_built_networks_look_fresh_and_a_step_makes_them_look_trained(name) -> None:
    timm = import_timm()
    if timm is None:
        pytest.skip("timm is not installed")
    model = timm.create_model(name, num_classes=4)
    assert not is_pretrained(model)
    trained = copy.deepcopy(model)
    optimizer = torch.optim.SGD(trained.parameters(), 0.1)
    size = 224 if name.startswith("vit") else 32
    trained(torch.randn(2, 3, size, size)).sum().backward()
    optimizer.step()
    assert is_pretrained(trained)


class GradientNorms(L.Callback):
    """Keeps the norm of all gradients together, after clipping."""

    def __init__(self):
        self.norms = []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        grads = [value.grad.norm() for value in module.net.parameters() if value.grad is not None]
        self.norms.append(torch.stack(grads).norm().item())


def test_gradients_are_clipped() -> None:
    """Lightning calls its callbacks before it clips, so the steps are compared: SGD's are the gradients."""
    steps = {}
    for clip in (None, 1e-3):
        net = network()
        ps.fit(net, task(256), config=quiet(epochs=1, optimizer=OptimizerConfig(0.1, "constant", clip=clip)))
        steps[clip] = torch.cat([value.detach().flatten() for value in net.parameters()])
    assert not torch.equal(steps[None], steps[1e-3])


def test_callbacks_and_loggers_of_ones_own_are_called(tmp_path) -> None:
    norms, logger = GradientNorms(), CSVLogger(tmp_path, name="mine")
    ps.fit(network(), task(512), config=quiet(epochs=2, batch_size=128, callbacks=(norms,), loggers=(logger,)))
    assert len(norms.norms) == 2 * 512 // 128
    assert "train/loss" in next(tmp_path.rglob("metrics.csv")).read_text()


def test_a_sudden_rise_of_the_loss_is_noticed_once_it_lasts() -> None:
    watch = LossRise()
    assert all(watch.add(1.0) is None for _ in range(MEAN_OF))
    assert watch.add(1.9) is None, "one bad batch is no rise"
    found = [watch.add(8.0) for _ in range(5)]
    assert found[-1] is not None and "network_rate" in found[-1]
    falling = LossRise()
    assert all(falling.add(2.0 * 0.99**i) is None for i in range(300))


def test_a_rate_that_tears_a_pretrained_network_down_is_reported() -> None:
    net = ps.gate(pretrained(), torch.zeros(2, 6), at="2")
    high = OptimizerConfig(0.01, "constant", network_rate=300.0)
    with pytest.warns(CollapseWarning, match=r"prediction loss.*network_rate"):
        ps.fit(net, task(512), config=quiet(epochs=3, batch_size=16, optimizer=high))


def test_by_default_a_pretrained_network_is_not_torn_down() -> None:
    model = pretrained()
    x, y = task(2000, seed=5)
    before = (model(x).argmax(1) == y).double().mean().item()
    net = ps.gate(model, torch.zeros(2, 6), at="2")
    history = ps.fit(net, task(512), task(512, seed=1), objective=ps.Objective(beta=0.0), config=quiet(epochs=1))
    assert not [warning for warning in history.warnings if "prediction loss" in warning]
    assert ps.evaluate(net, (x, y)).accuracy_open > before - 0.02
