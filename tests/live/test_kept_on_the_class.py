"""Plain values that a Function keeps on its class, and what its backward does with them."""

import pytest

from programs import record_program
from tether.source.slicing import returns_depend
from tether.source.syntax import Source

START = """\
import torch

total = 0


class Scaled(torch.autograd.Function):
    calls, seen = 0, []

    @staticmethod
    def forward(ctx, x, factor):
        Scaled.calls += 1
        Scaled.factor = ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        {}


w = torch.ones(3, requires_grad=True)
for _ in range(2):
    (Scaled.apply(w, 2.0) + Scaled.apply(w, 3.0)).sum().backward()
"""

USED = {
    "a factor": "return gradient * Scaled.factor, None",
    "a factor by another name": """\
by = Scaled.factor
        result = gradient * by
        return result, None""",
    "in place": """\
result = gradient.clone()
        result.mul_(Scaled.factor)
        return result, None""",
    "what decides": """\
if Scaled.calls > 3:
            gradient = gradient / 2
        return gradient * ctx.factor, None""",
    "as an item": """\
result = torch.empty_like(gradient)
        result[:] = gradient * Scaled.factor
        return result, None""",
}

READ = {
    "printed": """\
print(Scaled.calls)
        return gradient * ctx.factor, None""",
    "kept in a list": """\
Scaled.seen.append(Scaled.calls)
        return gradient * ctx.factor, None""",
    "counted on": """\
Scaled.total = Scaled.calls + 1
        return gradient * ctx.factor, None""",
    "checked": """\
assert Scaled.calls > 0
        return gradient * ctx.factor, None""",
    "printed at times": """\
if Scaled.calls % 2:
            print("odd")
        return gradient * ctx.factor, None""",
}


def told(text, folder):
    found = record_program(START.replace("{}", text), folder).findings
    return [one.severity for one in found if one.slug == "untracked-write"]


@pytest.mark.parametrize("text", USED.values(), ids=USED)
def test_what_the_gradient_is_computed_by_is_a_warning(text, tmp_path):
    assert told(text, tmp_path) == ["warning"]


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_what_is_merely_read_is_a_note(text, tmp_path):
    assert told(text, tmp_path) == ["note"]


def test_an_attribute_of_ctx_is_the_call_s_own():
    text = START.replace("{}", "return gradient * ctx.factor, None")
    assert not returns_depend(Source(text), "Scaled", "backward", "factor")
