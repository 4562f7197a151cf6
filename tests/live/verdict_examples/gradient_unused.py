"""Further examples of `gradient-unused`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "An evaluation that nothing ends",
        """import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(3, 1)
        self.noise = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.out(x + self.noise * torch.rand(3)) if self.training else self.out(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    for _ in range(2):
        opt.zero_grad()
        net(torch.ones(2, 3)).sum().backward()
        opt.step()
    net.eval()
    print(net(torch.ones(2, 3)).sum().item())
""",
        (Expected("gradient-unused", "net.noise", 22),),
    ),
)
