"""Two gates with interests of their own: the first passes any speech, the second the keyword alone.

Run it: python examples/cascade.py
"""

import torch
from torch import nn

import penstock as ps

torch.manual_seed(0)
SILENCE, CHATTER, KEYWORD = 0, 1, 2


def draw(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Loudness in the first feature, the word in the second: 80 % silence, 15 % chatter, 5 % keyword."""
    y = torch.multinomial(torch.tensor([0.80, 0.15, 0.05]), n, replacement=True)
    x = torch.randn(n, 8)
    x[:, 0] += 4.0 * (y != SILENCE)
    x[:, 1] += 4.0 * (y == KEYWORD)
    return x, y


model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3))
train, held_out, test = draw(6000), draw(8000), draw(4000)

net = ps.gate(model, train[0][:2], at=[0.3, 0.7], positives=[{CHATTER, KEYWORD}, {KEYWORD}])
objective = ps.Objective(alpha=0.5, beta=0.1, class_counts=ps.class_counts(train, 3))
ps.fit(net, train, objective=objective, config=ps.FitConfig(epochs=4, progress=False))
print(ps.calibrate(net, held_out, max_positive_loss=0.03))
print(net)
print(ps.evaluate(net, test, class_names=["silence", "chatter", "keyword"]))
