"""Custom Functions that keep values outside of their ctx, and look-alikes that are right.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import record_program

USE = """

first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
x = torch.randn(4, 3)
for _ in range(2):
    loss = ({name}.apply(first(x)) + {name}.apply(second(x))).sum()
    loss.backward()
"""

CHAIN = """

w = torch.randn(3, requires_grad=True)
{name}.apply({name}.apply(w * 2)).sum().backward()
"""

WRONG = {
    "an attribute of the class": """\
import torch


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        Exponential.y = torch.exp(x)
        return Exponential.y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * Exponential.y
""",
    "a table of the module": """\
import torch

kept = {}


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        kept["x"] = x
        return torch.exp(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.exp(kept["x"])
""",
}

RIGHT = {
    "a stack": """\
import torch

stack = []


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        stack.append(torch.exp(x))
        return stack[-1]

    @staticmethod
    def backward(ctx, gradient):
        return gradient * stack.pop()
""",
    "both what it is given and what it gives": """\
import torch


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, y = ctx.saved_tensors
        return gradient * (y + 0 * (x * y))
""",
    "a value that is made once for all": """\
import torch


class Exponential(torch.autograd.Function):
    base = None

    @staticmethod
    def forward(ctx, x):
        if Exponential.base is None:
            Exponential.base = torch.ones(3)
        ctx.save_for_backward(torch.exp(x))
        return torch.exp(x)

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        scaled = gradient * Exponential.base
        for _ in range(2):
            scaled = scaled * 1.0
        return scaled * y
""",
}


SCALE = """\
import torch


class Scale(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x, factor):
        {kept}.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * {kept}.factor, None


w = torch.randn(3, requires_grad=True)
for rate in (0.5, 0.25):
    loss = (Scale.apply(w, rate) + {second}).sum()
    loss.backward()
"""


BOTH = """\
import torch


class Scale(torch.autograd.Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = Scale.factor = factor  # the class shows the last one
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


w = torch.randn(3, requires_grad=True)
(Scale.apply(w, 0.5) + Scale.apply(w * 2, 1.0)).sum().backward()
"""


def told(text, folder):
    found = record_program(text, folder).findings
    return [one.site.line for one in found if one.slug == "untracked-write"]


@pytest.mark.parametrize("use", [USE, CHAIN], ids=["beside", "behind"])
@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_what_another_call_replaced_is_told(text, use, tmp_path):
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "return gradient" in one)
    assert told(text + use.format(name="Exponential"), tmp_path) == [line]


@pytest.mark.parametrize("use", [USE, CHAIN], ids=["beside", "behind"])
@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_each_call_keeps_is_not(text, use, tmp_path):
    assert told(text + use.format(name="Exponential"), tmp_path) == []


@pytest.mark.parametrize(
    ("kept", "second", "lines"),
    [
        ("Scale", "Scale.apply(w * 2, 1.0)", [19]),
        ("Scale", "Scale.apply(w * 2, rate)", []),
        ("ctx", "Scale.apply(w * 2, 1.0)", []),
        ("Scale", "w * 2", []),
    ],
)
def test_a_number_that_another_call_replaced_is_told(kept, second, lines, tmp_path):
    assert told(SCALE.format(kept=kept, second=second), tmp_path) == lines


def test_a_number_on_ctx_that_the_class_shows_too_is_not(tmp_path):
    assert told(BOTH, tmp_path) == []


POOLED = """\
import torch

pool = {}


def taken(like):
    if like.shape not in pool:
        pool[like.shape] = torch.zeros_like(like)
    return pool[like.shape]


class Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.y = FORWARD
        return ctx.y.clone()

    @staticmethod
    def backward(ctx, gradient):
        return BACKWARD
"""

FILLED = {
    "by out=": ("torch.exp(x, out=taken(x))", "gradient * ctx.y", True),
    "by copy_": ("taken(x).copy_(torch.exp(x))", "gradient * ctx.y", True),
    "and changed further": ("taken(x).copy_(x).exp_()", "gradient * ctx.y", True),
    "of each call's own": ("torch.exp(x, out=torch.empty_like(x))", "gradient * ctx.y", False),
    "as scratch of the backward": (
        "torch.exp(x)", "torch.mul(gradient, ctx.y, out=taken(gradient)).clone()", False,
    ),
    "anew before it is read": (
        "taken(x).copy_(torch.exp(x))", "taken(gradient).copy_(gradient) * 1", False,
    ),
    "adding up over the calls": ("taken(x).add_(x.abs())", "gradient / ctx.y", False),
}  # fmt: skip


@pytest.mark.parametrize("use", [USE, CHAIN], ids=["beside", "behind"])
@pytest.mark.parametrize("name", FILLED)
def test_memory_that_each_call_fills(name, use, tmp_path):
    forward, backward, wrong = FILLED[name]
    text = POOLED.replace("FORWARD", forward).replace("BACKWARD", backward)
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "ctx.y = " in one)
    expected = [line] if wrong else []
    assert told(text + use.format(name="Exponential"), tmp_path) == expected


def test_one_call_in_each_pass_has_the_memory_for_itself(tmp_path):
    forward, backward, _ = FILLED["by out="]
    text = POOLED.replace("FORWARD", forward).replace("BACKWARD", backward)
    use = """
w = torch.randn(3, requires_grad=True)
for _ in range(3):
    Exponential.apply(w * 2).sum().backward()
"""
    assert told(text + use, tmp_path) == []
