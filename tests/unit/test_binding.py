"""What the text calls the value of a call."""

import pytest

from tether.facts import Site
from tether.source.binding import bound_to, is_statement, read_as
from tether.source.syntax import Source


def site(text, call):
    line = next(n for n, one in enumerate(text.splitlines(), 1) if call in one)
    column = text.splitlines()[line - 1].index(call) + 1
    return Site("a.py", line, column, line, column + len(call), "<module>", 1, expression=call)


@pytest.mark.parametrize(
    ("text", "number", "count", "name"),
    [
        ("y = f(x)[0]", 0, 1, "y"),
        ("y = f(x)[1]", 1, 2, "y"),
        ("y = f(x)[1]", 0, 2, ""),
        ("y = f(x)[k]", 0, 1, ""),
        ("y.grad = f(x)[0]", 0, 1, ""),
        ("y = f(x)[0] + 1", 0, 1, ""),
        ("a, b = f(x)", 1, 2, "b"),
        ("a, b = f(x)", 0, 3, ""),
        ("a, self.b = f(x)", 1, 2, ""),
        ("a, *b = f(x)", 1, 2, ""),
        ("print(f(x))", 0, 1, ""),
    ],
)
def test_a_result_is_bound(text, number, count, name):
    assert bound_to(Source(text), site(text, "f(x)"), number, count) == name


@pytest.mark.parametrize(
    ("operation", "text", "name"),
    [
        ("float", "hours.float()", "hours"),
        ("float", "hours.float().mean()", ""),
        ("mean", "hours.float().mean()", ""),
        ("float", "self.hours.float()", ""),
        ("add", "torch.add(x, y)", ""),
        ("add", "n.add(x, y)", ""),
        ("__add__", "x + y", ""),
    ],
)
def test_a_variable_whose_method_is_called(operation, text, name):
    assert read_as(Source("import torch\nimport numpy as n"), operation, text) == name


def test_a_loop_is_a_statement():
    assert is_statement("for i, (x, y) in enumerate(loader):")
    assert not is_statement("x + 1")
    assert not is_statement("")
