"""What a backward or a hook returns is read by PyTorch, which no call shows."""

import pytest

from programs import record_program

START = """\
import torch
torch.manual_seed(0)
field = torch.nn.Parameter(torch.randn(16, 4096))

def swapped(gradient, turns):
    for _ in range(turns):
        low, high = torch.chunk(gradient, 2, dim=1)
        gradient = torch.cat([2 * low, high], dim=1)
    return gradient

def train(loss):
    for _ in range(12):
        field.grad = None
        loss().backward()
"""

RETURNED = {
    "by a backward": """
class Refracted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, turns):
        ctx.turns = turns
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return swapped(gradient, ctx.turns), None

train(lambda: Refracted.apply(field * 1.5, 2).pow(2).sum())
""",
    "by a hook of a tensor": """
def loss():
    bent = field * 1.5
    bent.register_hook(lambda gradient: swapped(gradient, 2))
    return bent.pow(2).sum()

train(loss)
""",
    "by a hook of a module": """
layer = torch.nn.Identity()
layer.register_full_backward_hook(lambda module, taken, given: (swapped(given[0], 2),))
train(lambda: layer(field * 1.5).pow(2).sum())
""",
    "by one that calls another": """
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        half = swapped(gradient, 1)
        return swapped(half, 1)

train(lambda: Scaled.apply(field * 1.5).pow(2).sum())
""",
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_is_returned_is_read(name, tmp_path):
    recording = record_program(START + RETURNED[name], tmp_path)
    assert recording.error is None
    told = [f"{one.slug} {one.site.line} {one.message}" for one in recording.findings]
    assert not [one for one in told if "read" in one or "copied in a slow way" in one]


def test_the_same_outside_of_a_backward_is_told(tmp_path):
    body = """
def looked_at(wave, often):
    wave = swapped(wave, 1)
    if often:
        print(wave.sum())

for turn in range(12):
    looked_at(torch.randn(16, 4096), turn == 11)
"""
    found = record_program(START + body, tmp_path).findings
    assert any("before anything has read it" in one.message for one in found)
