"""Further examples of `parameter-stale`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "Layers in a plain list",
        """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(3, 3, bias=False)]
        self.out = nn.Linear(3, 1)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
        (Expected("parameter-stale", "net.layers.0.weight", 8),),
    ),
)
