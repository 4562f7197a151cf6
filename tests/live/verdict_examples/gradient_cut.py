"""Further examples of `gradient-cut`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "Computed under no_grad",
        """import torch

w = torch.ones(3, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
with torch.no_grad():
    scaled = w * 2
loss = (scaled + b).sum()
loss.backward()
opt.step()
""",
        (Expected("gradient-cut", "w", 6),),
    ),
    Example(
        "Through a Python number",
        """import torch

w = torch.tensor(2.0, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
scale = w.item()
loss = (torch.tensor(scale) * 3 + b).sum()
loss.backward()
opt.step()
""",
        (Expected("gradient-cut", "w", 6),),
    ),
)
