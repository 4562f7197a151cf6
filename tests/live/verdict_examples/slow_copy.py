"""Further examples of `slow-copy`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "torch.tensor of what are tensors already",
        """import torch

x = torch.randn(100, 16)
rows = []
for row in x:
    rows.append(torch.tensor(row))
x.zero_()
print(torch.stack(rows).sum().item())
""",
        (Expected("slow-copy", "row", 6),),
    ),
    Example(
        "The best weights so far, in new memory each time",
        """import copy
import torch

model = torch.nn.Linear(600, 600)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    model(torch.ones(1, 600)).pow(2).sum().backward()
    optimizer.step()
    best = copy.deepcopy(model.state_dict())
model.load_state_dict(best)
""",
        (Expected("slow-copy", "best", 9),),
    ),
    Example(
        "Each element of an expanded tensor written a thousand times",
        """import torch

row = torch.randn(1000)
table = row.expand(1000, 1000).contiguous()
print(table.sum().item())
""",
        (Expected("slow-copy", "table", 4),),
    ),
    Example(
        "Bytes of an image widened before they are moved",
        """import torch

images = torch.randint(0, 255, (64, 3, 128, 128), dtype=torch.uint8)
batch = images.float().to("cuda")
print(batch.sum().item())
""",
        (Expected("slow-copy", "images", 4),),
        needs="cuda",
    ),
)
