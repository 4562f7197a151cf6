"""Further examples of `alias-write`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "One table under two embeddings",
        """import torch
from torch import nn

table = torch.randn(5, 3)
left = nn.Embedding.from_pretrained(table, freeze=False)
right = nn.Embedding.from_pretrained(table, freeze=False)
opt = torch.optim.SGD(left.parameters(), lr=0.1)
ids = torch.tensor([0, 1])
for _ in range(2):
    opt.zero_grad()
    (left(ids) * right(ids)).sum().backward()
    opt.step()
""",
        (Expected("alias-write", "right.weight", 6),),
    ),
)
