"""Further examples of `storage-pinned`, beside the two that its page and its file have."""

from tether.verdicts.base import Example, Expected

EXAMPLES = (
    Example(
        "The first token of a large batch",
        """import torch


def first(n):
    x = torch.randn(n, 64)
    return x[0]


kept = first(4096)
""",
        (Expected("storage-pinned", "kept", 6),),
    ),
)
