"""Which names a line can use."""

import pytest

from tether.facts import Site
from tether.source.syntax import Source
from tether.source.visible import is_visible

TEXT = """\
import numpy as np
from torch import nn as layers
weights = [1]
class Pool:
    def forward(self, centre, *more):
        size = 3
        for row in more:
            size += row
        def inner(x):
            return x + size
        return inner(centre)
def outside(cloud):
    return Pool().forward(cloud)
"""


def site(function, first, line):
    return Site(
        "a.py", line, 1, line, 2, function, first, expression="x"
    )  # fmt: skip


@pytest.mark.parametrize("name", [
    "centre", "self.rows[2]", "more[0]", "size", "row", "inner", "np.x", "layers", "weights[0]",
    "Pool", "outside", "len",
])  # fmt: skip
def test_a_method_sees_its_own_and_the_module(name):
    assert is_visible(Source(TEXT), site("Pool.forward", 5, 6), name)


@pytest.mark.parametrize("name", ["cloud", "cloud.centre", "x", "points['a']", "forward"])
def test_it_does_not_see_what_others_have(name):
    assert not is_visible(Source(TEXT), site("Pool.forward", 5, 6), name)


def test_a_function_sees_what_the_one_around_it_has():
    assert is_visible(Source(TEXT), site("Pool.forward.<locals>.inner", 9, 10), "size")
    assert is_visible(Source(TEXT), site("Pool.forward.<locals>.inner", 9, 10), "x")


def test_of_a_text_that_is_not_known_it_is_taken_for_granted():
    assert is_visible(Source(""), site("other", 5, 6), "cloud")
