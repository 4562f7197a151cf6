"""Second derivatives through Functions that keep what forward computed, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

PROGRAM = """\
import torch
from torch.autograd.function import once_differentiable


class Own(torch.autograd.Function):
{body}


x = torch.randn(4, requires_grad=True)
w = torch.randn(4, requires_grad=True)
for _ in range(2):
    y = Own.apply(x * w).pow(2).sum()
    {first}
    {second}
print(x.grad, w.grad)
"""

FIRST = "(slope,) = torch.autograd.grad(y, x, create_graph=True)"
SECOND = "slope.pow(2).sum().backward()"

FOUND = {
    "saved": """\
    @staticmethod
    def forward(ctx, x):
        slope = torch.cos(x)
        ctx.save_for_backward(slope)  #! gradient-lost slope
        return torch.sin(x)

    @staticmethod
    def backward(ctx, g):
        (slope,) = ctx.saved_tensors
        return g * slope
""",
    "on the ctx": """\
    @staticmethod
    def forward(ctx, x):
        ctx.slope = torch.exp(x)  #! gradient-lost ctx.slope
        return ctx.slope * 1.0

    @staticmethod
    def backward(ctx, g):
        return g * ctx.slope
""",
    "by several calls in backward": """\
    @staticmethod
    def forward(ctx, x):
        t = torch.tanh(x)
        ctx.save_for_backward(t)  #! gradient-lost t
        return t * 2

    @staticmethod
    def backward(ctx, g):
        (t,) = ctx.saved_tensors
        square = t**2
        return 2 * g * (1 - square)
""",
    "a part of two": """\
    @staticmethod
    def forward(ctx, x):
        size = x.norm()
        ctx.save_for_backward(x, size)  #! gradient-lost size
        return x / size

    @staticmethod
    def backward(ctx, g):
        x, size = ctx.saved_tensors
        return g / size - x * (g * x).sum() / size**3
""",
    "written in place": """\
    @staticmethod
    def forward(ctx, x):
        gate = torch.empty_like(x)
        gate.copy_(x).sigmoid_()
        ctx.save_for_backward(x, gate)  #! gradient-lost gate
        return x * gate.clone()

    @staticmethod
    def backward(ctx, g):
        x, gate = ctx.saved_tensors
        return g * (gate + x * gate * (1 - gate))
""",
}

RIGHT = {
    "the input": """\
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.cos(x)
""",
    "the result": """\
    @staticmethod
    def forward(ctx, x):
        y = torch.exp(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y
""",
    "a mask": """\
    @staticmethod
    def forward(ctx, x):
        mask = (x > 0).float()
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask
""",
    "a sign in backward": """\
    @staticmethod
    def forward(ctx, x):
        apart = x - 1
        ctx.save_for_backward(apart)
        return apart.abs()

    @staticmethod
    def backward(ctx, g):
        (apart,) = ctx.saved_tensors
        return g * apart.sign()
""",
    "a rounded scale": """\
    @staticmethod
    def forward(ctx, x):
        levels = torch.round(x * 4)
        ctx.save_for_backward(levels)
        return x * 1.0

    @staticmethod
    def backward(ctx, g):
        (levels,) = ctx.saved_tensors
        return g * (levels + 1)
""",
    "a constant of its shape": """\
    @staticmethod
    def forward(ctx, x):
        weight = torch.ones_like(x) / x.numel()
        ctx.save_for_backward(weight)
        return x * weight

    @staticmethod
    def backward(ctx, g):
        (weight,) = ctx.saved_tensors
        return g * weight
""",
    "detached on purpose": """\
    @staticmethod
    def forward(ctx, x):
        scale = x.detach().abs().mean()
        ctx.save_for_backward(scale)
        return x * scale

    @staticmethod
    def backward(ctx, g):
        (scale,) = ctx.saved_tensors
        return g * scale
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_what_forward_computed_is_a_constant_in_the_second_derivative(body, tmp_path):
    check_program(PROGRAM.format(body=body, first=FIRST, second=SECOND), tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_has_its_derivative_or_none_is_not_told(body, tmp_path):
    check_program(PROGRAM.format(body=body, first=FIRST, second=SECOND), tmp_path)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("y.backward()", "pass"),
        (FIRST, "print(slope)"),
        (FIRST, "(slope.detach() * w).sum().backward()"),
    ],
    ids=["first order", "never differentiated", "detached"],
)
def test_without_a_second_pass_nothing_is_missing(first, second, tmp_path):
    body = FOUND["saved"].replace("  #! gradient-lost slope", "")
    check_program(PROGRAM.format(body=body, first=first, second=second), tmp_path)


TERM = """\
import torch
from torch import nn


def derivative(y, x):
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


net = nn.Sequential(nn.Linear(2, 8), {middle}, nn.Linear(8, 8), {middle}, nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), 0.01)
for _ in range(8):
    x = torch.randn(6, 2, requires_grad=True)
    u = net(x)
    slope = derivative(u, x)
    {term}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
BENT = "bent = derivative(slope[:, 0], x)[:, 0]"

LOSS = "\n    loss = (bent - 1).pow(2).mean() + u.pow(2).mean()"

PIECES = ["nn.ReLU()", "nn.LeakyReLU(0.1)", "nn.Hardtanh()", "nn.PReLU()", "nn.ReLU6()"]
BEND = {
    "a smooth network": ("nn.Tanh()", BENT),
    "the first derivative of a network of ReLUs": ("nn.ReLU()", "bent = slope[:, 0]"),
    "a product with the input": ("nn.ReLU()", "bent = derivative((slope * x).pow(2), x)[:, 0]"),
    "one that is only looked at": ("nn.ReLU()", f"{BENT}.detach(); print(bent); bent = slope"),
    "squares of ReLUs": ("nn.ReLU()", "bent = derivative(derivative(u**2, x)[:, 0], x)[:, 0]"),
}


@pytest.mark.parametrize("middle", PIECES)
def test_a_second_derivative_that_is_always_zero_is_told(middle, tmp_path):
    found = record_program(TERM.format(middle=middle, term=BENT + LOSS), tmp_path).findings
    assert [(one.slug, one.severity, one.site.line) for one in found] == [
        ("gradient-zero", "warning", 15)
    ]


@pytest.mark.parametrize(("middle", "term"), BEND.values(), ids=BEND)
def test_one_that_is_not_or_is_no_part_of_a_loss_is_not(middle, term, tmp_path):
    found = record_program(TERM.format(middle=middle, term=term + LOSS), tmp_path).findings
    assert [one.slug for one in found if one.slug == "gradient-zero"] == []


CONSTANT = """\
import torch
from torch import nn
from torch.autograd import grad

torch.manual_seed(0)
net, scale = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), nn.Parameter(torch.ones(1))
opt = torch.optim.SGD([*net.parameters(), scale], 0.01)
for _ in range(4):
    x = torch.rand(6, 1, requires_grad=True)
    u = net(x)
    slope = grad(u.sum(), x, create_graph=True)[0]
    {bend}
    loss = {loss}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
TAKEN_FOR_CONSTANT = {
    "times what trains": ("bend = grad(slope.sum(), x)[0]", "(u + scale * bend).pow(2).mean()"),
    "of what is computed of the first": (
        "bend = grad((slope * x).sum(), x, retain_graph=True)[0]", "(slope - bend).abs().mean()"
    ),
    "through a sum": (
        "bend = grad(slope.sum(), x, retain_graph=True)[0] + 1", "(slope * bend).pow(2).mean()"
    ),
    "along a direction, by a function that takes it off the graph": (
        "bend = torch.autograd.functional.jvp(net, x, torch.ones_like(x))[1]",
        "(u.pow(2) + bend).mean()",
    ),
}  # fmt: skip
MEANT = {
    "with a graph": (
        "bend = grad(slope.sum(), x, create_graph=True)[0]", "(u + scale * bend).pow(2).mean()"
    ),
    "taken off the graph": (
        "bend = grad(slope.sum(), x, retain_graph=True)[0].detach()", "(u * bend).pow(2).mean()"
    ),
    "along a direction, with a graph": (
        "bend = torch.autograd.functional.jvp(net, x, torch.ones_like(x), create_graph=True)[1]",
        "(u.pow(2) + bend).mean()",
    ),
    "looked at": (
        "print(grad(slope.sum(), x, retain_graph=True)[0].sum())", "(u * slope).pow(2).mean()"
    ),
    "a weight from first derivatives": (
        "bend = grad(u.sum(), x, retain_graph=True)[0]", "(u * bend).pow(2).mean()"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("bend", "loss"), TAKEN_FOR_CONSTANT.values(), ids=TAKEN_FOR_CONSTANT)
def test_a_last_derivative_without_a_graph_is_told(bend, loss, tmp_path):
    found = record_program(CONSTANT.format(bend=bend, loss=loss), tmp_path).findings
    assert ("gradient-lost", "note", 12) in {(o.slug, o.severity, o.site.line) for o in found}


@pytest.mark.parametrize(("bend", "loss"), MEANT.values(), ids=MEANT)
def test_one_that_has_a_graph_or_is_meant_is_not(bend, loss, tmp_path):
    found = record_program(CONSTANT.format(bend=bend, loss=loss), tmp_path).findings
    assert [one.slug for one in found if one.slug == "gradient-lost"] == []


FIRST_ONE = """\
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
other = nn.Linear(2, 2)
opt = torch.optim.Adam([*net.parameters(), *other.parameters()], lr=0.01)
target = torch.randn(32, 1)
for step in range(8):
    x = torch.randn(32, 2).requires_grad_(True)
    u = net(x)
    {term}
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

ASKED = "slope = torch.autograd.grad(u.sum(), x, {how})[0]"
BY_INPUT = {
    "a linear residual": "loss = (slope[:, :1] + 2.0 * u - target).pow(2).mean()",
    "a product, and the slope": "loss = (slope[:, :1] + u * slope[:, 1:] - target).pow(2).mean()",
    "a penalty beside the output's own loss": "loss = (u - target).pow(2).mean() + slope.norm()",
}
OF_ANOTHER_USE = {
    "a weight of the output": "loss = (u * slope[:, :1] - target).pow(2).mean()",
    "a new input, moved along the slope": (
        "moved = (x + 0.1 * slope.sign()).detach()\n    loss = (net(moved) - target).pow(2).mean()"
    ),
    "a new input, and the old one": (
        "loss = (net(x.detach() + 0.1 * slope) - target).pow(2).mean() + other(x.detach()).mean()"
    ),
    "what another network is to say": "loss = (other(x.detach()) - slope).pow(2).mean()",
    "a weight that the line takes off the graph": (
        "weight = slope[:, :1].abs().detach()\n    loss = (weight * (u - target)).pow(2).mean()"
    ),
}


@pytest.mark.parametrize("name", BY_INPUT)
def test_a_first_derivative_without_a_graph_is_told_where_it_meets_its_output(name, tmp_path):
    for how, count in (("retain_graph=True", 1), ("create_graph=True", 0)):
        term = f"{ASKED.format(how=how)}\n    {BY_INPUT[name]}"
        found = record_program(FIRST_ONE.format(term=term), tmp_path).findings
        lost = [one for one in found if one.slug == "gradient-lost"]
        assert {12 in [each.site.line for each in one.evidence] for one in lost} == {True} - {
            not count
        }
        assert len(lost) >= count


@pytest.mark.parametrize("name", OF_ANOTHER_USE)
def test_a_first_derivative_that_goes_elsewhere_is_not(name, tmp_path):
    term = f"{ASKED.format(how='retain_graph=True')}\n    {OF_ANOTHER_USE[name]}"
    found = record_program(FIRST_ONE.format(term=term), tmp_path).findings
    assert "gradient-lost" not in {one.slug for one in found}


ADAPTED = """\
import torch
import torch.nn.functional as F

net = torch.nn.Linear(3, 1)
alpha = torch.ones(1, requires_grad=True)
opt = torch.optim.Adam({held}, 0.01)
inner = torch.optim.SGD(net.parameters(), 0.1)


def adapted(x, y):
    names, start = zip(*net.named_parameters())
    loss = F.mse_loss(alpha * net(x), y)
    slopes = torch.autograd.grad(loss, start, create_graph={graph})
    return {change}


for _ in range(3):
    fast = adapted(torch.randn(4, 3), torch.randn(4, 1))
    outer = F.mse_loss(torch.func.functional_call(net, fast, (torch.randn(4, 3),)), torch.randn(4, 1))
    opt.zero_grad()
    outer.backward()
    opt.step()
    {after}
"""

OF_ALL = "[alpha, *net.parameters()]"
CHANGED = "{n: p.data - 0.1 * s for n, p, s in zip(names, start, slopes)}"
TRAINED = "inner.zero_grad(); net(torch.ones(2, 3)).sum().backward(); inner.step()"


@pytest.mark.parametrize(
    ("held", "graph", "change", "after", "told"),
    [
        (OF_ALL, True, CHANGED, "pass", True),
        (OF_ALL, True, CHANGED.replace("p.data", "p.detach()"), "pass", True),
        (OF_ALL, True, CHANGED.replace("p.data - 0.1 * s", "torch.sub(p.data, s, alpha=0.1)"),
         "pass", True),
        (OF_ALL, True, CHANGED.replace("p.data", "p"), "pass", False),
        # Another parameter's gradient is what it is for: these have their own training.
        ("[alpha]", True, CHANGED, TRAINED, False),
    ],
)  # fmt: skip
def test_an_update_that_starts_without_what_it_updates(held, graph, change, after, told, tmp_path):
    text = ADAPTED.format(held=held, graph=graph, change=change, after=after)
    found = record_program(text, tmp_path).findings
    lines = [one.site.line for one in found if one.slug == "gradient-lost"]
    assert lines == ([14] if told else [])
