"""Further examples of `gradient-stale`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "One context of autocast around all steps",
        """import torch

layer = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(layer.parameters(), lr=0.1)
x = torch.ones(3, 4)
with torch.autocast("cpu", dtype=torch.bfloat16):
    for _ in range(3):
        opt.zero_grad()
        loss = layer(x).float().sum()
        loss.backward()
        opt.step()
""",
        (Expected("gradient-stale", "layer.weight", 9),),
    ),
    Example(
        "Two losses of one forward, each with an optimizer of its own",
        """import torch

w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
first, second = torch.optim.SGD([w], lr=0.1), torch.optim.SGD([v], lr=0.1)
for _ in range(3):
    first.zero_grad()
    second.zero_grad()
    a, b = (w + 1).sum(), (v + 2).sum()
    a.backward()
    first.step()
    b.backward()
    second.step()
""",
    ),
)
