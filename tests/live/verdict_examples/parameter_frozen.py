"""Further examples of `parameter-frozen`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "Frozen, then given to the optimizer",
        """import torch
from torch import nn

net = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1))
net[0].requires_grad_(False)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
""",
        (Expected("parameter-frozen", "net.0.weight", 5),),
    ),
    Example(
        "An iterator that the loop that freezes has used up",
        """import torch

body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
frozen = head.parameters()
for _ in range(4):
    opt.zero_grad()
    head(body(torch.rand(4, 3))).pow(2).mean().backward()
    opt.step()
    for p in frozen:
        p.requires_grad = False
    print(head(body(torch.ones(1, 3))).item())
    for p in frozen:
        p.requires_grad = True
""",
        (Expected("parameter-frozen", "head.weight", 11),),
    ),
)
