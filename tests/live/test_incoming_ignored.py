"""Backwards of custom Functions that do not use what they are given, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

PROGRAM = """\
import torch


class Own(torch.autograd.Function):
{body}


first, last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
opt = torch.optim.SGD([*first.parameters(), *last.parameters()], 0.01)
for _ in range(8):
    opt.zero_grad()
    {use}
    loss.backward()
    opt.step()
"""

USE = "loss = last(Own.apply(first(torch.randn(5, 4)))).pow(2).mean()"
KEEP = """\
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return {value}
"""

FOUND = {
    "ones": KEEP.format(value="x.round()")
    + """
    @staticmethod  #! gradient-lost Own
    def backward(ctx, g):
        return torch.ones_like(g)
""",
    "a mask that is not multiplied": KEEP.format(value="x.relu()")
    + """
    @staticmethod  #! gradient-lost Own
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return (x > 0).float()
""",
    "a slope that is not multiplied": KEEP.format(value="x.tanh()")
    + """
    @staticmethod  #! gradient-lost Own
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = 1 - x.tanh() ** 2
        return slope.to(g.dtype).view_as(g)
""",
    "a slope that is filled by its shape": KEEP.format(value="x.clamp(-1, 1)")
    + """
    @staticmethod  #! gradient-lost Own
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = x.clone()
        slope[x.abs() > 1] = 0
        return slope
""",
    "a number throughout": KEEP.format(value="x.sign()")
    + """
    @staticmethod  #! gradient-lost Own
    def backward(ctx, g):
        return torch.full(g.shape, 0.5)
""",
}

RIGHT = {
    "what came in": KEEP.format(value="x.round()")
    + """
    @staticmethod
    def backward(ctx, g):
        return g
""",
    "what came in, changed in place": KEEP.format(value="x.clamp(-1, 1)")
    + """
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        back = g.clone()
        back[x.abs() > 1] = 0
        return back
""",
    "written into new memory": KEEP.format(value="x * 2")
    + """
    @staticmethod
    def backward(ctx, g):
        back = torch.empty_like(g)
        torch.mul(g, 2, out=back)
        return back
""",
    "by NumPy": KEEP.format(value="x * 2")
    + """
    @staticmethod
    def backward(ctx, g):
        return torch.from_numpy(g.numpy() * 2)
""",
    "zeros": KEEP.format(value="x.sin()")
    + """
    @staticmethod
    def backward(ctx, g):
        return torch.zeros_like(g)
""",
    "its sign and its length": KEEP.format(value="x.sin()")
    + """
    @staticmethod
    def backward(ctx, g):
        return g.sign() * g.norm().item()
""",
    "by another pass": KEEP.format(value="x.sin()")
    + """
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            again.sin().backward(g)
        return again.grad
""",
}
LOSS = (
    KEEP.format(value="x.pow(2).mean()")
    + """
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return x * 2 / x.numel()
"""
)


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_a_backward_that_ignores_its_gradient_is_told(body, tmp_path):
    check_program(PROGRAM.format(body=body, use=USE), tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_one_that_uses_it_is_not(body, tmp_path):
    found = check_program(PROGRAM.format(body=body, use=USE), tmp_path).findings
    assert [one.slug for one in found if one.slug == "gradient-lost"] == []


def test_a_loss_that_is_given_one_is_not(tmp_path):
    use = "loss = Own.apply(last(first(torch.randn(5, 4))))"
    check_program(PROGRAM.format(body=LOSS, use=use), tmp_path)
