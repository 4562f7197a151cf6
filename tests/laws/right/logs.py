"""Values kept for plots: numbers, and tensors without their graphs."""

from collections import defaultdict

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 3))
opt = torch.optim.SGD(model.parameters(), lr=0.1)


class Log:
    def __init__(self):
        self.values = defaultdict(list)
        self.last = None

    def add(self, **values):
        for name, value in values.items():
            self.values[name].append(value)


def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean()


log, running, outputs = Log(), 0.0, []
for _ in range(6):
    x, y = torch.randn(10, 3), torch.randint(0, 3, (10,))
    logits = model(x)
    loss = nn.functional.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    log.add(loss=loss.item(), accuracy=accuracy(logits, y).item())
    log.last = logits.detach()
    running = 0.9 * running + 0.1 * loss.item()
    outputs.append(logits.softmax(1).detach())
with torch.no_grad():
    scores = [model(torch.randn(4, 3)).mean() for _ in range(4)]
print(
    dict(log.values), running, torch.cat(outputs).mean().item(), torch.stack(scores).mean().item()
)
