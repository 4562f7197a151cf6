"""Further examples of `saved-overwritten`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "An activation in place on a value that a product saved",
        """import torch

w = torch.ones(3, requires_grad=True)
a = w + 1
b = a * a
a.relu_()
try:
    b.sum().backward()
except RuntimeError:
    print("failed")
""",
        (Expected("saved-overwritten", "a", 6),),
    ),
)
