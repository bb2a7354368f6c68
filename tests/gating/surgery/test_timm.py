"""Surgery on other people's networks: timm's."""

import pytest
import torch

import penstock as ps
from helpers.slow import slow_but
from helpers.timm_models import import_timm
from penstock.errors import CutError

NETWORKS = {
    "resnet18": 64,
    "resnext50_32x4d": 64,
    "inception_v3": 128,
    "inception_v4": 128,
    "densenet121": 64,
    "mobilenetv3_small_100": 64,
    "efficientnet_b0": 64,
    "convnext_atto": 64,
    "vit_tiny_patch16_224": 224,
    "mobilevit_xxs": 64,
    "efficientformer_l1": 224,
    "mixer_s16_224": 224,
    "pit_ti_224": 224,
}


@pytest.fixture(scope="module")
def timm():
    found = import_timm()
    if found is None:
        pytest.skip("timm is not installed: make .venv/dev installs it")
    return found


@pytest.mark.parametrize(
    "name", slow_but({"resnet18", "efficientnet_b0", "vit_tiny_patch16_224", "pit_ti_224"}, NETWORKS)
)
def test_cut_train_and_give_back(timm, name):
    size = NETWORKS[name]
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=7, drop_rate=0.1)
    x = torch.randn(2, 3, size, size)
    found = ps.cuts(model, x)
    assert len(found) >= 10
    net = ps.gate(model, x, at=[0.3, 0.6])
    with torch.no_grad():
        assert torch.equal(net.eval()(x).logits, model.eval()(x))
        torch.manual_seed(1)
        expected = model.train()(x)
        torch.manual_seed(1)
        assert torch.equal(net.train()(x).logits, expected)
    trained = ps.ungate(net).state_dict()
    for key, value in model.state_dict().items():  # running statistics and their counters
        assert torch.equal(trained[key], value), key
    out = net(x)
    ps.Objective()(net, out, torch.tensor([0, 3])).total.backward()
    assert [name for name, p in net.named_parameters() if p.grad is None] == []
    plain = ps.ungate(net)
    assert type(plain) is type(model)
    assert plain.state_dict().keys() == model.state_dict().keys()


def test_densenet_has_few_legal_cuts(timm):
    """Within a dense block every layer feeds all later ones: cuts stand between blocks alone."""
    found = ps.cuts(timm.create_model("densenet121"), torch.zeros(1, 3, 64, 64))
    assert not any("denselayer" in cut.name for cut in found)
    assert any("transition1" in cut.name for cut in found)


@pytest.mark.slow
def test_crossvit_has_two_branches_from_end_to_end(timm):
    model, x = timm.create_model("crossvit_tiny_240", num_classes=7), torch.zeros(1, 3, 240, 240)
    assert not ps.cuts(model, x)
    with pytest.raises(CutError, match=r"CrossVit has no legal cut.*branches.*side by side"):
        ps.gate(model, x, at=0.5)
