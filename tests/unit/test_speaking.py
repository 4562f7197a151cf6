"""Sentences in words: what stands in a piece of code can be pasted."""

from __future__ import annotations

import pytest
from traces import trace

from tether.analysis.history import History
from tether.analysis.speaking import Speaker
from tether.facts import Site
from tether.finding import Code, Segment, say
from tether.source.calls import as_operand, with_method

LONG = "torch.cat([" + ", ".join(f"part_{n}" for n in range(30)) + "])"


def said(text, **parts):
    history = History(trace("w = param net.0.weight"))
    return Speaker(history, history.site(0)).said(say(text, **parts))


def code(expression):
    return Code(Site("p.py", 3, expression=expression))


@pytest.mark.parametrize(
    ("expression", "typed"),
    [
        ("values.cpu().numpy()", "`values.cpu().numpy().clone()`"),
        ("rows[2:4]", "`rows[2:4].clone()`"),
        ("a + b", "`(a + b).clone()`"),
        ("-a", "`(-a).clone()`"),
        ("a if c else b", "`(a if c else b).clone()`"),
        ("f(\n    a,\n    b)", "`f( a, b).clone()`"),
        (LONG, "`(...).clone()`"),
    ],
)
def test_a_call_behind_an_expression(expression, typed):
    assert said("`{code!s}.clone()`", code=code(expression)) == typed


def test_an_argument_needs_no_parentheses():
    assert said("`copy.deepcopy({code!s})`", code=code("a + b")) == "`copy.deepcopy(a + b)`"


def test_a_name_stays_as_it_is():
    name = Segment("net.0.weight", "name")
    assert said("`{x!s} = {x!s}.clone()`", x=name) == "`net.0.weight = net.0.weight.clone()`"


def test_what_has_no_name_is_given_one():
    assert said("`{x!s} = {x!s}.clone()`", x=code("a + b")) == "`x = (a + b).clone()`"


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("Normal(memory.sample(8), 1).sample()", "Normal(memory.sample(8), 1).rsample()"),
        ("é.sample().sample()", "é.sample().rsample()"),
        ("a.sample(n).clamp(0)", ""),
        ("sample()", ""),
        ("a.sample", ""),
    ],
)
def test_only_the_calls_own_method_gets_another_name(text, changed):
    assert with_method(text, "sample", "rsample") == changed


def test_operands():
    assert [as_operand(one) for one in ("x", "a.b", "f(x)[0]", "a * b", "a, b")] == [
        "x", "a.b", "f(x)[0]", "(a * b)", "(a, b)",
    ]  # fmt: skip
