"""Further examples of `graph-retained`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "Losses kept for a plot",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
losses = []
for _ in range(5):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    losses.append(loss)
""",
        (Expected("graph-retained", "losses", 11),),
    ),
    Example(
        "A running total",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
total = 0
for _ in range(5):
    opt.zero_grad()
    loss = (w * w).sum()
    loss.backward()
    opt.step()
    total = total + loss
""",
        (Expected("graph-retained", "total", 11),),
    ),
    Example(
        "Numbers kept, and the parts of one step's loss",
        """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
losses = []
for _ in range(5):
    opt.zero_grad()
    parts = [(w * k).sum() for k in range(4)]
    loss = torch.stack(parts).sum()
    loss.backward()
    opt.step()
    losses.append(loss.item())
""",
    ),
)
