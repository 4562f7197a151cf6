"""Further examples of `needless-copy`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "A copy of what an index list has just made",
        """import torch

data = torch.randn(90, 4)
rows = torch.tensor([3, 1, 4])
batch = data[rows].clone()
batch.add_(1)
""",
        (Expected("needless-copy", "batch", 5),),
    ),
    Example(
        "Copies of weights that train on, which nothing reads",
        """import copy
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.ones(4, 2)).pow(2).sum().backward()
    optimizer.step()
    best = copy.deepcopy(model.state_dict())
""",
        (Expected("needless-copy", "best", 9),),
    ),
    Example(
        "The same, and the best weights are loaded in the end",
        """import copy
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best, least = None, float("inf")
for _ in range(3):
    loss = model(torch.ones(4, 2)).pow(2).sum()
    if loss.item() < least:
        best, least = copy.deepcopy(model.state_dict()), loss.item()
    loss.backward()
    optimizer.step()
model.load_state_dict(best)
""",
    ),
    Example(
        "An index that takes everything in order",
        """import torch

data = torch.randn(90, 4)
rows = data[torch.arange(90)]
print(rows.sum().item(), data.sum().item())
""",
        (Expected("needless-copy", "rows", 4),),
    ),
    Example(
        "A layout that a view relies on",
        """import torch

x = torch.randn(6, 4)
flat = x.t().contiguous()
print(flat.view(-1).sum().item())
""",
    ),
)
