"""Where the text fills a place: variables, attributes, containers, by function."""

import pytest

from tether.source.filling import Fillings, mentions
from tether.source.names import container_of, paths_to
from tether.source.syntax import source_of

TEXT = """\
best = None
history = [zero] * 3
for x in data:
    history.append(x)

class Keeper:
    def __init__(self, w):
        self.best = w

    def put(self, key, w):
        self.kept[key] = w

def train(model, first, *, last=None):
    a, (b, c) = first, last
    if (d := a):
        best = d
    def inner():
        e = b
    return inner
"""


def lines(function, name):
    found = Fillings({"/p/m.py": TEXT}).of("/p/m.py", function, name)
    return [(one.site.line, one.how) for one in found]


@pytest.mark.parametrize(
    ("function", "name", "expected"),
    [
        ("<module>", "best", [(1, "assigned")]),
        ("<module>", "history[2]", [(2, "assigned"), (4, "stored")]),
        ("<module>", "x", [(3, "loop")]),
        ("Keeper.__init__", "self.best", [(8, "assigned")]),
        ("<module>", "keeper.best['w']", [(8, "assigned")]),
        ("Keeper.put", "self.kept['a']", [(11, "stored")]),
        ("train", "first", [(13, "parameter")]),
        ("train", "last", [(13, "parameter")]),
        ("train", "c", [(14, "assigned")]),
        ("train", "d", [(15, "assigned")]),
        ("train.<locals>.inner", "e", [(18, "assigned")]),
        ("train", "nothing", []),
        ("elsewhere", "first", []),
    ],
)
def test_what_fills_a_name(function, name, expected):
    assert lines(function, name) == expected


def test_a_form_feed_ends_no_line():
    text = "a = 1\n\x0c\ndef f():\n    kept = [\n        b,\n    ]\n"
    (one,) = Fillings({"/p/m.py": text}).of("/p/m.py", "f", "kept")
    assert source_of("/p/m.py", text).node_at(one.site) is not None


def test_text_that_is_no_python_fills_nothing():
    assert Fillings({"/p/m.py": "x = ("}).of("/p/m.py", "<module>", "x") == []


def test_names_on_the_way():
    assert paths_to("a.b['k.l'][0]") == ["a", "a.b", "a.b['k.l']", "a.b['k.l'][0]"]
    assert container_of("a.b[0]") == "a.b"
    assert container_of("a") == ""


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("x - y", "x", True),
        ("max - y", "x", False),
        ("self.x.sum()", "x", False),
        ("self.x.sum()", "self.x", True),
        ("f(x1)", "x", False),
    ],
)
def test_mentions(text, name, expected):
    assert mentions(text, name) is expected
