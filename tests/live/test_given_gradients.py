"""Gradients that a backward or a hook is given and writes in place, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest
import torch

import warm
from programs import expected_in, found_in, record_program, says

PROGRAM = """\
import functools

import torch
from torch import nn


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, given):
{body}


{more}
torch.manual_seed(0)
one, two, last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)
bias = nn.Parameter(torch.zeros(6, 4))
opt = torch.optim.SGD([*one.parameters(), *two.parameters(), *last.parameters(), bias], 0.1)
for _ in range(5):
    x = torch.randn(6, 4)
    opt.zero_grad()
{use}
    opt.step()
"""

SCALED = "return given.mul_(0.1)  #! alias-write Own"
QUIETLY = "return given.mul_(0.1)"
SUM = "h = one(x) + Own.apply(two(x))\nlast(h.tanh()).pow(2).mean().backward()"
LOSS = "last(h.tanh()).pow(2).mean().backward()"


def program(body, use, more=""):
    def indented(text, by):
        return "\n".join(" " * by + line for line in text.splitlines())

    return PROGRAM.format(body=indented(body, 8), use=indented(use, 4), more=more)


needed = pytest.mark.skipif(
    not hasattr(torch.Tensor, "_use_count"), reason="nobody can say who holds a tensor"
)

HOOK = """\
def weaken(grad):
    grad.mul_(0.1)  #! alias-write weaken
"""
HOOKED = "a, b = one(x), two(x)\nb.register_hook({hook})\nh = a + b\n" + LOSS

FOUND = {
    "scaled": (SCALED, SUM),
    "turned around": ("return given.neg_()  #! alias-write Own", SUM),
    "clipped": (
        "given.clamp_(-1e-6, 1e-6)  #! alias-write Own\nreturn given",
        SUM,
    ),
    "some set to zero": (
        "mask = torch.arange(4) > 1\ngiven[:, mask] = 0  #! alias-write Own\nreturn given",
        SUM,
    ),
    "set to zero, and zeros are returned": ("return given.zero_()  #! alias-write Own", SUM),
    "through out=": (
        "torch.mul(given, 0.5, out=given)  #! alias-write Own\nreturn given",
        SUM,
    ),
    "through a view": ("given.view(-1)[2:].mul_(3)  #! alias-write Own\nreturn given", SUM),
    "through .data": ("given.data.mul_(3)  #! alias-write Own\nreturn given", SUM),
    "and a new one is returned": (
        "given += 1  #! alias-write Own\nreturn given * 2",
        SUM,
    ),
    "a residual": (SCALED, "y = one(x)\nh = y + Own.apply(two(y))\n" + LOSS),
    "the other way around, of older nodes": (
        SCALED,
        "a = one(x)\nh = Own.apply(two(x)) + a\n" + LOSS,
    ),
    "three summands": (SCALED, "h = one(x) + two(x) + Own.apply(two(x * 2))\n" + LOSS),
    "two of the Function's": (SCALED, "h = Own.apply(one(x)) + Own.apply(two(x))\n" + LOSS),
    "both flattened": (
        SCALED,
        (
            "h = one(x).flatten() + Own.apply(two(x)).flatten()\n"
            "last(h.tanh().view(6, 4)).pow(2).mean().backward()"
        ),
    ),
    "two losses": (
        SCALED,
        (
            "first = one(x).pow(2).mean()\nsecond = Own.apply(two(x).pow(2).mean())\n"
            "(first + second).backward()"
        ),
    ),
    "a difference that goes into a sum": (
        SCALED,
        "a = one(x)\nh = a + (Own.apply(two(x)) - a.detach())\n" + LOSS,
    ),
    "a gradient that is asked for": (
        SCALED,
        (
            "y = Own.apply(two(x))\nloss = last(y.tanh()).mean()\n"
            "parts = torch.autograd.grad(loss, [y, two.weight])\ntwo.weight.grad = parts[1]"
        ),
    ),
    "a graph that is gone through twice": (
        SCALED,
        (
            "h = one(x) + Own.apply(two(x))\nloss = last(h.tanh()).pow(2).mean()\n"
            "loss.backward(retain_graph=True)\nloss.backward()"
        ),
    ),
    "beside a hook on a tensor": (
        SCALED,
        "y = two(x)\ny.register_hook(lambda grad: None)\nh = one(x) + Own.apply(y)\n" + LOSS,
    ),
    "a gradient of the caller's own": (
        SCALED,
        "h = one(x) + Own.apply(two(x))\nh.backward(torch.rand(6, 4))",
    ),
}

MORE_FOUND = {
    "in a function of its own": (
        "return scaled(given)",
        SUM,
        "def scaled(grad):\n    return grad.mul_(0.1)  #! alias-write Own",
    ),
    "a hook": (QUIETLY, HOOKED.format(hook="weaken"), HOOK),
    "a hook that looks first": (
        QUIETLY,
        HOOKED.format(hook="clip"),
        (
            "def clip(grad):\n    size = grad.norm()\n    if size > 1e-6:\n"
            "        grad.mul_(1e-6 / size)  #! alias-write clip\n"
        ),
    ),
    "a part of a function": (
        QUIETLY,
        HOOKED.format(hook="functools.partial(weaken, 0.1)"),
        "def weaken(by, grad):\n    grad.mul_(by)  #! alias-write weaken\n",
    ),
    "a method": (
        QUIETLY,
        HOOKED.format(hook="Weak().weaken"),
        "class Weak:\n    def weaken(self, grad):\n        grad *= 0.5  #! alias-write Weak.weaken\n",
    ),
    "a hook on a parameter": (
        QUIETLY,
        "handle = bias.register_hook(weaken)\nh = one(x) + bias\n" + LOSS + "\nhandle.remove()",
        HOOK,
    ),
}

RIGHT = {
    "a new one": ("return given * 0.1", SUM),
    "a copy": ("given = given.clone()\nreturn given.mul_(0.1)", SUM),
    "alone": (QUIETLY, "h = Own.apply(two(one(x)))\n" + LOSS),
    "a product": (QUIETLY, "h = one(x) * Own.apply(two(x))\n" + LOSS),
    "what is subtracted": (QUIETLY, "h = one(x) - Own.apply(two(x))\n" + LOSS),
    "what something else is subtracted from": (
        QUIETLY,
        "a = one(x)\nh = Own.apply(two(x)) - a\n" + LOSS,
    ),
    "a summand that has had its turn": (QUIETLY, "h = Own.apply(two(x)) + one(x).exp()\n" + LOSS),
    "a parameter that has had its turn": (QUIETLY, "h = bias + Own.apply(two(x))\n" + LOSS),
    "a summand without a graph": (QUIETLY, "h = one(x).detach() + Own.apply(two(x))\n" + LOSS),
    "a summand of another shape": (QUIETLY, "h = one(x)[:1] + Own.apply(two(x))\n" + LOSS),
    "stacked": (
        QUIETLY,
        "h = torch.stack([one(x), Own.apply(two(x))]).tanh()\nlast(h).pow(2).mean().backward()",
    ),
    "joined": (
        QUIETLY,
        "h = torch.cat([one(x), Own.apply(two(x))]).tanh()\nlast(h).pow(2).mean().backward()",
    ),
    "used twice": (
        QUIETLY,
        "y = Own.apply(two(x))\nh = y.tanh() + y.exp()\n" + LOSS,
    ),
    "one that changes nothing": ("return given.mul_(1.0)", SUM),
    "one that bounds what is within": ("return given.clamp_(-100, 100)", SUM),
    "flattened alone": (
        QUIETLY,
        "h = Own.apply(two(x)).flatten()\nlast(h.tanh().view(6, 4)).pow(2).mean().backward()",
    ),
    "one loss": (QUIETLY, "loss = Own.apply(two(x).pow(2).mean())\nloss.backward()"),
    "a gradient of the caller's own": (
        QUIETLY,
        "given = torch.rand(6, 4)\nOwn.apply(two(x)).backward(given)",
    ),
    "a gradient that the caller keeps elsewhere": (
        QUIETLY,
        "bias.grad = torch.rand(6, 4)\nOwn.apply(two(x)).backward(bias.grad)",
    ),
    "two losses, each by itself": (
        QUIETLY,
        "torch.autograd.backward([one(x).mean(), Own.apply(two(x).mean())])",
    ),
    "a tensor that keeps its gradient": (
        QUIETLY,
        "y = Own.apply(two(x))\ny.retain_grad()\nh = y.tanh()\n" + LOSS,
    ),
    "a hook on the node": (
        QUIETLY,
        "y = Own.apply(two(x))\ny.grad_fn.register_hook(lambda *_: None)\nh = y.tanh()\n" + LOSS,
    ),
    "a hook on the node before": (
        QUIETLY,
        "y = Own.apply(two(x))\ny.grad_fn.register_prehook(lambda *_: None)\nh = y.tanh()\n" + LOSS,
    ),
    "a graph that is gone through twice": (
        QUIETLY,
        (
            "loss = last(Own.apply(two(x)).tanh()).pow(2).mean()\n"
            "loss.backward(retain_graph=True)\nloss.backward()"
        ),
    ),
    "a graph that is gone through in part, and then whole": (
        QUIETLY,
        (
            "y = Own.apply(two(x)).tanh()\nloss = last(y).pow(2).mean()\n"
            "torch.autograd.grad(loss, [y], retain_graph=True)\nloss.backward()"
        ),
    ),
    "a pass that makes a graph": (
        "return given.mul(0.1).mul_(2)",
        (
            "h = one(x) + Own.apply(two(x))\nloss = last(h.tanh()).pow(2).mean()\n"
            "parts = torch.autograd.grad(loss, [two.weight], create_graph=True)\n"
            "parts[0].pow(2).sum().backward()"
        ),
    ),
    "a checkpoint": (
        QUIETLY,
        "from torch.utils.checkpoint import checkpoint\n"
        "h = checkpoint(lambda x: Own.apply(two(x)).tanh(), one(x), use_reentrant=True)\n" + LOSS,
    ),
    "a pass within a pass": (
        QUIETLY,
        (
            "from torch.utils.checkpoint import checkpoint\n"
            "h = one(x) + checkpoint(lambda x: Own.apply(two(x)), one(x), use_reentrant=True)\n"
            "last(h.tanh() * 2).pow(2).mean().backward()"
        ),
    ),
    "given by a hook": (
        QUIETLY,
        "y = Own.apply(two(x))\ny.register_hook(lambda grad: grad * 2)\nh = one(x) + y\n" + LOSS,
    ),
    "hooks of a module": (
        QUIETLY,
        "handle = two.register_full_backward_hook(lambda *_: None)\n"
        "h = Own.apply(two(x)).tanh()\n" + LOSS + "\nhandle.remove()",
    ),
}

MORE_RIGHT = {
    "a hook, alone": (
        QUIETLY,
        "b = two(x)\nb.register_hook(weaken)\nh = b.tanh()\n" + LOSS,
        HOOK.replace("#!", "#"),
    ),
    "a hook that looks through a view, alone": (
        QUIETLY,
        "b = two(x)\nb.register_hook(weaken)\nh = b.tanh()\n" + LOSS,
        "def weaken(grad):\n    rows = grad.view(-1)\n    grad.mul_(rows.norm())\n",
    ),
    "a hook that writes a copy": (
        QUIETLY,
        HOOKED.format(hook="weaken"),
        "def weaken(grad):\n    grad = grad.clone()\n    return grad.mul_(0.1)\n",
    ),
    "a hook that writes something else": (
        QUIETLY,
        HOOKED.format(hook="count"),
        "seen = torch.zeros(())\n\n\ndef count(grad):\n    seen.add_(grad.norm())\n",
    ),
    "a hook on a parameter, alone": (
        QUIETLY,
        "handle = one.weight.register_hook(weaken)\nh = one(x)\n" + LOSS + "\nhandle.remove()",
        HOOK.replace("#!", "#"),
    ),
    "a hook after a parameter got its gradient": (
        QUIETLY,
        "handle = one.weight.register_post_accumulate_grad_hook(after)\nh = one(x)\n"
        + LOSS
        + "\nhandle.remove()",
        "def after(parameter):\n    parameter.grad.mul_(0.5)\n",
    ),
    "a hook that keeps what it is given": (
        QUIETLY,
        "b = two(x)\nb.register_hook(keep)\nh = b.tanh()\n" + LOSS,
        "kept = []\n\n\ndef keep(grad):\n    kept.append(grad)\n    grad.mul_(0.5)\n",
    ),
    "two results that are given one tensor": (
        QUIETLY,
        "y, z = Both.apply(two(x))\nh = y + z\n" + LOSS,
        ("class Both(torch.autograd.Function):\n"
        "    @staticmethod\n    def forward(ctx, x):\n        return x.clone(), x.clone()\n\n"
        "    @staticmethod\n    def backward(ctx, first, second):\n        return first.mul_(2)\n"),
    ),
}  # fmt: skip


@needed
@pytest.mark.parametrize("name", [*FOUND, *MORE_FOUND])
def test_a_gradient_that_others_hold(name, tmp_path):
    text = program(*{**FOUND, **MORE_FOUND}[name])
    recording = record_program(text, tmp_path)
    assert recording.error is None
    found = [line for line in found_in(recording, []) if " alias-write " in line]
    assert found == expected_in(text)
    assert says(recording, "writes in place the gradient that")


@pytest.mark.parametrize("name", [*RIGHT, *MORE_RIGHT])
def test_a_gradient_that_nobody_else_holds(name, tmp_path):
    recording = record_program(program(*{**RIGHT, **MORE_RIGHT}[name]), tmp_path)
    assert recording.error is None
    assert not recording.trace.given_written
    assert not says(recording, "writes in place the gradient that")


@needed
def test_the_story(tmp_path):
    recording = record_program(program(SCALED, SUM), tmp_path)
    [found] = [one for one in recording.findings if one.slug == "alias-write"]
    told = [(one.role, one.site.line, str(one.text)) for one in found.evidence]
    assert ("made", 25, "Own is applied") in told
    assert ("used", 25, "add uses its result beside `one(x)`") in told


@needed
def test_a_write_that_is_not_recorded(tmp_path):
    body = "array = given.numpy()\narray *= 0.5\nreturn given"
    recording = record_program(program(body, SUM), tmp_path)
    found = [one for one in recording.findings if one.slug == "alias-write"]
    assert [(one.subject, one.site.line) for one in found] == [("Own", 12)]
    assert says(recording, "Code that was not recorded writes in place the gradient")


def test_the_program_goes_on_as_it_would(tmp_path):
    """What is asked of PyTorch to learn its counts is asked where the program does not see it."""
    use = SUM + "\nprint(h.grad_fn._sequence_nr(), _thread._count(), torch.is_grad_enabled())"
    use += "\nprint(threading.enumerate(), torch.rand(1).item())"
    text = "import _thread, threading\n" + program(SCALED, use)
    (tmp_path / "program.py").write_text(text)
    plain = warm.python("program.py", folder=tmp_path)
    recorded = warm.tether("run", "program.py", folder=tmp_path)
    assert "alias-write" in recorded.stderr or not hasattr(torch.Tensor, "_use_count")
    assert recorded.stdout == plain.stdout
