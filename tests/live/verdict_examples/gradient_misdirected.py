"""Further examples of `gradient-misdirected`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "A state loaded by an optimizer that has its groups in another order",
        """import torch
from torch import nn


def optimizer_of(*parts):
    return torch.optim.Adam([{"params": one.parameters()} for one in parts], lr=0.1)


def step(opt):
    opt.zero_grad()
    (left(torch.rand(4, 3)) - 2 * right(torch.rand(4, 3))).pow(2).mean().backward()
    opt.step()


left, right = nn.Linear(3, 1, bias=False), nn.Linear(3, 1, bias=False)
opt = optimizer_of(left, right)
step(opt)
saved = opt.state_dict()
opt = optimizer_of(right, left)
opt.load_state_dict(saved)
step(opt)
""",
        (Expected("gradient-misdirected", "right.weight", 20),),
    ),
)
