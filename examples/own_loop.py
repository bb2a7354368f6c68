"""Gate a network and train it in a loop of your own: no Lightning, no fit.

Run it: python examples/own_loop.py
"""

import torch
from torch import nn

import penstock as ps

torch.manual_seed(0)


def draw(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Background is a point left of a plane; the classes 1 and 2 lie right of it."""
    x = torch.randn(n, 8)
    return x, torch.where(x[:, 0] < 0, 0, 1 + (x[:, 1] > 0).long())


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
x, y = draw(2000)

net = ps.gate(model, x[:2], at=0.3)
objective = ps.Objective(alpha=0.5, beta=0.1)
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

net.train()
for epoch in range(5):
    for batch_x, batch_y in zip(x.split(64), y.split(64), strict=True):
        loss = objective(net, net(batch_x), batch_y)
        optimizer.zero_grad()
        loss.total.backward()
        optimizer.step()
    print(
        f"epoch {epoch + 1}: prediction {loss.prediction:.3f}, gate {loss.gate:.3f}, kept {net.layers[0].density:.0%}"
    )
net.eval()

ps.calibrate(net, draw(2000), max_positive_loss=0.01)
print(ps.evaluate(net, draw(2000)))
