"""Small networks of every kind that users bring, each with an example batch."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import penstock as ps
from penstock.models.resnet import resnet8, resnet8_1d


class Conv1d(nn.Module):
    """A net for series, with functional dropout and activations, as many people write them."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(6, 8, 5, padding=2), nn.Conv1d(8, 12, 5, padding=2)
        self.norm = nn.BatchNorm1d(8)
        self.fc = nn.Linear(12, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool1d(F.relu(self.norm(self.conv1(x))), 2)
        x = F.dropout(x, 0.5, training=self.training)
        x = F.relu(self.conv2(x)).mean(-1)
        return self.fc(F.dropout(x, 0.3, self.training))


class Recurrent(nn.Module):
    """A GRU behind an LSTM; the class is read off the last step."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 10, batch_first=True), nn.GRU(10, 8, batch_first=True)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.lstm(x)
        out, _ = self.gru(out)
        return self.fc(out[:, -1])


class Encoder(nn.Module):
    """nn.TransformerEncoder over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.1)
        self.encoder = nn.TransformerEncoder(layer, 3, norm=nn.LayerNorm(16))
        self.fc = nn.Linear(16, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc(self.encoder(self.embed(tokens)).mean(1))


class Shared(nn.Module):
    """One layer used three times, a tied weight, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.again = nn.Linear(6, 6), nn.Linear(6, 6)
        self.tied = nn.Linear(6, 6)
        self.tied.weight = self.first.weight
        self.register_buffer("shift", torch.randn(6))
        self.fc = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.again(self.first(x)))
        x = torch.tanh(self.again(x) + self.shift)
        return self.fc(self.tied(self.again(x)) + self.shift)


class Sized(nn.Module):
    """Reads sizes early and uses them late, as many vision transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.mlp1, self.mlp2 = nn.Linear(8, 8), nn.Linear(8, 8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(batch, -1, -1), x], 1)
        x = x + self.mlp1(x)
        x = (x + self.mlp2(x)).reshape(batch, height * width // 16 + 1, 8)
        return self.fc(x[:, 0])


class Branching(nn.Module):
    """A submodule that looks at its data: it cannot be traced, and stays in one piece."""

    class Inner(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x) if x.sum() > 0 else -self.fc(x)

    def __init__(self) -> None:
        super().__init__()
        self.before, self.inner, self.after = nn.Linear(6, 6), Branching.Inner(), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(torch.relu(self.inner(torch.relu(self.before(x)))))


class InPlace(nn.Module):
    """In-place operations in every form: as statements, behind views, and on a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)
        self.relu = nn.ReLU(inplace=True)
        self.register_buffer("mean", torch.zeros(6))

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        h.add_(0.3)
        F.relu(h, inplace=True)
        self.mean.add_(h.detach().mean(0))
        h = self.b(h)
        self.relu(h)
        h += 0.1
        h = self.c(h)
        h.view(-1).clamp_(max=0.5)
        return self.d(h.flatten(1).relu_())


class Constants(nn.Module):
    """Tensors that forward makes from nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 6)
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.a(x * torch.tensor(2.0)) + self.embed(torch.arange(6)).mean(0)
        return self.b(x * torch.linspace(0.5, 1, 6))


class LateSize(nn.Module):
    """Reads the batch size off the input when that is long gone, as very many people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Conv1d(6, 4, 3), nn.Conv1d(4, 4, 3), nn.Linear(4 * 20, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.b(torch.relu(self.a(x)))
        h = h.view(x.size(0), -1)
        return self.c(h)


def convolutions() -> nn.Sequential:
    """A small net for images: a cut with rows, columns and channels, and what channels can be folded into."""
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU()),
        nn.Sequential(nn.Conv2d(6, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU()),
        nn.Sequential(nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        nn.Linear(8, 4),
    )


def sequential() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(6, 12),
        nn.BatchNorm1d(12),
        nn.ReLU(inplace=True),
        nn.Dropout(0.2),
        nn.Linear(12, 8),
        nn.Tanh(),
        nn.Linear(8, 4),
    )


# name: (network, shape of one sample, dtype)
ZOO: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], torch.dtype]] = {
    "sequential": (sequential, (6,), torch.float32),
    "convolutions": (convolutions, (1, 12, 12), torch.float32),
    "conv1d": (Conv1d, (6, 24), torch.float32),
    "recurrent": (Recurrent, (9, 6), torch.float32),
    "encoder": (Encoder, (7,), torch.int64),
    "shared": (Shared, (6,), torch.float32),
    "sized": (Sized, (3, 16, 16), torch.float32),
    "branching": (Branching, (6,), torch.float32),
    "inplace": (InPlace, (6,), torch.float32),
    "constants": (Constants, (6,), torch.float32),
    "latesize": (LateSize, (6, 24), torch.float32),
    "resnet8": (lambda: resnet8(classes=4, width=4), (1, 28, 28), torch.float32),
    "resnet8_1d": (lambda: resnet8_1d(6, classes=4, width=4), (6, 50), torch.float32),
}


def build(name: str) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """Return a network of the zoo, and a function that draws a batch for it."""
    make, shape, dtype = ZOO[name]
    network = make()

    def draw(n: int) -> Tensor:
        return torch.randint(0, 20, (n, *shape)) if dtype == torch.int64 else torch.randn(n, *shape, dtype=dtype)

    with torch.no_grad():  # move running statistics and norms off their start
        network.train()
        network(draw(8))
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return network, draw


def export_three_stages(folder):
    """Write a bundle of three stages of a small network, with gates that let some pass."""
    torch.manual_seed(0)
    model, draw = build("conv1d")
    x = draw(64)
    net = ps.gate(model, x[:2], at=2).eval()
    with torch.no_grad():
        net.thresholds = [float(said.double().quantile(0.3)) for said in net(x).gates]
    ps.export_bundle(net, x[:2], folder)
