"""Backwards of custom Functions that do not use what they are given, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

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
    "a number that was computed of it": KEEP.format(value="x.sin()")
    + """
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return x.cos() * g.norm().item()
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


SAVED = """\
    @staticmethod
    def forward(ctx, x, *others):
        ctx.save_for_backward(x)
        ctx.others = others
        return x.logsumexp(-1){reduced}

    @staticmethod{mark}
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = x.softmax(-1)
        return {value}, *(None for _ in ctx.others)
"""

TWO = """out = first(torch.randn(5, 4))
    loss = last(out).pow(2).mean() + {loss}"""

WEIGHED = {
    "one is taken from the other": "(Own.apply(out) - Own.apply(out[:, :2])).mean()",
    "one loss is taken from the other": "Own.apply(out).sum() - Own.apply(last(out)).sum()",
    "a weight": "Own.apply(out).mean() + 0.1 * Own.apply(out + 1).mean()",
    "to be made larger and smaller": "(-1) ** step * Own.apply(out).mean()",
}

OF_ONE_NUMBER = {
    "a mean": "Own.apply(out).mean()",
    "a mean over batches of two sizes": "Own.apply(out[: 3 + step % 2]).mean()",
    "means over parts of two sizes": "Own.apply(out[:2]).mean() + Own.apply(out[2:]).mean()",
    "two terms that weigh the same": "(Own.apply(out) + Own.apply(out + 1)).mean()",
    "a part of a step's losses": "Own.apply(out).mean() / 4",
}

USED = {
    "what came in": "g.unsqueeze(-1) * slope",
    "a number of what came in": "slope * g.reshape(-1)[0].item()",
    "a number by float": "slope * float(g.flatten()[0])",
    "only where it is not one": "slope if torch.equal(g, torch.ones_like(g)) else g[..., None] * slope",
    "by its sign": "slope if bool((g > 0).all()) else -slope",
    "in place": "slope.mul_(g.unsqueeze(-1))",
    "by a sum of products": "torch.einsum('...,...k->...k', g, slope)",
    "zeros": "torch.zeros_like(slope)",
    "nothing": "None",
}


def _saved(value, loss, mark="", reduced=""):
    body = SAVED.format(value=value, mark=mark, reduced=reduced)
    text = PROGRAM.format(body=body, use=TWO.format(loss=loss))
    return text.replace("for _ in range(8)", "for step in range(8)")


@pytest.mark.parametrize("loss", WEIGHED.values(), ids=WEIGHED)
def test_numbers_for_which_no_one_result_is_right_are_told(loss, tmp_path):
    check_program(_saved("slope", loss, "  #! gradient-lost Own"), tmp_path)


def test_a_loss_that_is_one_number_and_is_weighed_is_told(tmp_path):
    loss = "Own.apply(out) + 0.5 * Own.apply(out + 1)"
    check_program(_saved("slope", loss, "  #! gradient-lost Own", ".sum()"), tmp_path)


@pytest.mark.parametrize("loss", OF_ONE_NUMBER.values(), ids=OF_ONE_NUMBER)
def test_a_number_that_what_is_returned_may_be_made_for_is_not(loss, tmp_path):
    check_program(_saved("slope / 5", loss), tmp_path)


@pytest.mark.parametrize("value", USED.values(), ids=USED)
@pytest.mark.parametrize("loss", ["one is taken from the other", "a weight"])
def test_numbers_that_are_used_are_not(value, loss, tmp_path):
    found = record_program(_saved(value, WEIGHED[loss]), tmp_path).findings
    assert [one.slug for one in found if one.slug == "gradient-lost"] == []
