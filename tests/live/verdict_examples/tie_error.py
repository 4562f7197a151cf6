"""Further examples of `tie-error`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "An array of a tensor that requires grad",
        """import torch

w = torch.ones(3, requires_grad=True)
y = w * 2
try:
    y.numpy()
except RuntimeError as error:
    print(error)
""",
        (Expected("tie-error", "y", 6),),
    ),
    Example(
        "A state carried over two backward passes",
        """import torch

w = torch.ones(3, requires_grad=True)
h = torch.zeros(3)
try:
    for _ in range(2):
        h = torch.tanh(h * w)
        h.sum().backward()
except RuntimeError as error:
    print(error)
""",
        (Expected("tie-error", "h", 8),),
    ),
    Example(
        "A deep copy of a computed tensor",
        """import copy
import torch

w = torch.ones(3, requires_grad=True)
y = w * 2
try:
    copy.deepcopy(y)
except RuntimeError as error:
    print(error)
""",
        (Expected("tie-error", "y", 7),),
    ),
)
