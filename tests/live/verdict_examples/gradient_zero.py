"""Further examples of `gradient-zero`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "An item that has the number of the padding",
        """import torch
from torch import nn

items = nn.Embedding(5, 3, padding_idx=0)
opt = torch.optim.SGD(items.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (items(torch.tensor([3, 0, 1, 4, 0])) - 1).pow(2).mean().backward()
    opt.step()
""",
        (Expected("gradient-zero", "items.weight", 8),),
    ),
    Example(
        "An item that has the number of the padding, in weights that a second layer uses",
        """import torch
from torch import nn

items = nn.Embedding(5, 3, padding_idx=0)
out = nn.Linear(3, 5)
out.weight = items.weight
opt = torch.optim.SGD(out.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    ids = torch.tensor([3, 0, 1, 4, 0])
    nn.functional.cross_entropy(out(items(ids)), ids.flip(0)).backward()
    opt.step()
""",
        (Expected("gradient-zero", "items.weight", 11),),
    ),
    Example(
        "An item that has the number of the padding, in rows of which some are masked",
        """import torch
from torch import nn

items = nn.Embedding(5, 3)
opt = torch.optim.SGD(items.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    masked = items.weight * torch.ones(5, 1)
    ids = torch.tensor([3, 0, 1, 4, 0])
    (nn.functional.embedding(ids, masked, padding_idx=0) - 1).pow(2).mean().backward()
    opt.step()
""",
        (Expected("gradient-zero", "items.weight", 10),),
    ),
    Example(
        "The number of the padding asked for in an evaluation alone",
        """import torch
from torch import nn

items = nn.Embedding(5, 3, padding_idx=0)
opt = torch.optim.SGD(items.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (items(torch.tensor([3, 1, 4])) - 1).pow(2).mean().backward()
    opt.step()
print(items(torch.tensor([3, 0, 1, 4, 0])).sum().item())
""",
    ),
    Example(
        "Padding at the ends of rows",
        """import torch
from torch import nn

words = nn.Embedding(5, 3, padding_idx=0)
opt = torch.optim.SGD(words.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (words(torch.tensor([[3, 1, 0, 0], [0, 2, 4, 1]])).sum(1) - 1).pow(2).mean().backward()
    opt.step()
""",
    ),
    Example(
        "Rounding without a straight-through estimator",
        """import torch

w = torch.tensor([1.3, 2.6], requires_grad=True)
b = torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = (torch.round(w) + b).pow(2).sum()
    loss.backward()
    opt.step()
""",
        (Expected("gradient-zero", "w", 8),),
    ),
    Example(
        "A straight-through estimator",
        """import torch

w = torch.tensor([1.3, 2.6], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    loss = (w + (torch.round(w) - w).detach()).pow(2).sum()
    loss.backward()
    opt.step()
""",
    ),
)
