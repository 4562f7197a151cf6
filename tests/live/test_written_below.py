"""Functions and modules that write what they are handed, read on by who called; and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

BLOCK = """\
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.act, self.line = nn.LeakyReLU(inplace=True), nn.Linear(4, 4)
        self.register_buffer("mean", torch.full((4,), 0.1))

    def scaled(self, x):
        x.sub_(self.mean)
        return self.line(x)

    def forward(self, x):
{body}


print(Block()(torch.randn(3, 4)).sum())
"""

FOUND = {
    "a skip around a branch": """\
        out = self.branch(x)  #! alias-write x (note)
        return out + x
""",
    "joined in one line": """\
        return torch.cat([x, self.branch(x)], 1)  #! alias-write x (note)
""",
    "put aside under another name": """\
        before = x
        x = self.act(x)  #! alias-write before (note)
        x = self.line(x)
        return before - x
""",
    "a method of its own, with a buffer": """\
        y = self.scaled(x)  #! alias-write x (note)
        return x * y
""",
    "a tensor that was computed": """\
        x = self.line(x)
        gate = torch.sigmoid(self.branch(x))  #! alias-write x (note)
        return gate * x
""",
}

RIGHT = {
    "bound to the result": """\
        x = self.act(x)
        return self.line(x) + x
""",
    "read by the name of the result": """\
        y = self.act(x)
        return self.line(y) + y
""",
    "relu of what relu made": """\
        x = torch.relu(x)
        return self.branch(x) + x
""",
    "handed a copy": """\
        return self.branch(x.clone()) + x
""",
    "read before, and never after": """\
        before = x * 2
        return self.branch(x) + before
""",
}

FUNCTIONS = """\
import torch


def filled(buffer):
    buffer.copy_(torch.arange(4.0))
    return buffer.sum()


def counted(total, x):
    total.add_(x.mean(0))
    return total.norm()


def scale_(x):
    x.mul_(2)
    return x.sum()


def advanced(state):
    state.mul_(0.9)
    return state.sum()


def damp(x):
    x.mul_(0.5)


def standardized(x):
    x -= x.mean(0)
    x /= x.std(0)
    return x.pow(2).sum()


data = torch.randn(5, 4)
buffer, total, state = torch.empty(4), torch.randn(4), torch.randn(4)
print(filled(buffer), buffer + 1)
print(counted(total, data), total + 1)
print(scale_(data), data.sum())
for _ in range(3):
    energy = advanced(state)
    print(energy * state)
damp(data)
print(data.sum())
"""


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_what_the_caller_still_reads_is_told(body, tmp_path):
    check_program(BLOCK.format(body=body), tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_what_nobody_reads_by_the_old_name_is_not(body, tmp_path):
    found = check_program(BLOCK.format(body=body), tmp_path).findings
    assert not [one for one in found if one.slug == "alias-write"]


def test_the_line_that_made_the_module_is_named(tmp_path):
    body = next(iter(FOUND.values()))
    (found,) = check_program(BLOCK.format(body=body), tmp_path).findings
    assert [one.site.line for one in found.evidence][:1] == [8]


def test_functions_that_are_called_to_write_are_right(tmp_path):
    found = check_program(FUNCTIONS, tmp_path).findings
    assert not [one for one in found if one.slug == "alias-write"]


def test_a_function_that_is_called_for_a_number_changes_its_argument(tmp_path):
    text = FUNCTIONS + "spread = standardized(data)  #! alias-write data (note)\nprint(data * 2)\n"
    check_program(text, tmp_path)


AGAIN = """\
import torch
from torch import nn

MIDDLE, WIDTH = torch.tensor([0.2, 0.1, 0.3]), torch.tensor([2.0, 1.5, 1.2])


class Places(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.rand(5, 3))

    def forward(self):
        return self.table[:4]


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.line = Places(), nn.Linear(3, 2)

    def forward(self, words):
        WRITTEN
        return self.line(words)


def centred(x):
    HERE
    return x.tanh()


torch.manual_seed(0)
readers = [Reader(), Reader()]
one, two = readers
texts = [torch.randn(4, 3) for _ in range(3)]
whole = torch.randn(4, 3)
LOOP
"""

TWO = """
for _ in range(3):
    for words in texts:
        print((one(words) + two(words)).sum())
"""

DRIFTS = {
    "what a list keeps": ("words += self.places()", "pass", TWO, "words"),
    "what two lines hand in": (
        "words.add_(self.places())", "pass", "a = one(whole)\nb = two(whole)\nprint(a + b)", "whole",
    ),
    "in two steps": (
        "pass", "x.sub_(MIDDLE).div_(WIDTH)",
        "for _ in range(3):\n    for x in texts:\n        print(centred(x).sum())", "x",
    ),
    "what a dictionary keeps": (
        "words.mul_(1.1)", "pass",
        ("kept = dict(enumerate(texts))\nfor _ in range(3):\n"
        "    for key, words in kept.items():\n        print(key, one(words).sum())"), "words",
    ),
    "parts of what was computed": (
        "words += self.places()", "pass", "texts = whole.repeat(3, 1).split(4)" + TWO, "words",
    ),
}  # fmt: skip

SHELF = """
class Shelf:
    def __init__(self):
        self.words = torch.randn(12, 3)

    def parts(self):
        FILL
        for first in range(0, 12, 4):
            yield self.words[first : first + 4]

    def all(self, change):
        return [change(words).sum() for words in self.parts()]

shelf = Shelf()
for _ in range(3):
"""

EACH = "    for words in shelf.parts():\n        print(one(words).sum())"

DRIFTS["what an object hands out in parts"] = (
    "words += self.places()", "pass", SHELF.replace("FILL", "pass") + EACH, "words",
)  # fmt: skip

STAYS = {
    "a new tensor": ("words = words + self.places()", "pass", TWO),
    "handed in once": (
        "words += self.places()", "pass", "for words in texts:\n    print(one(words).sum())",
    ),
    "filled anew": (
        "pass", "x.sub_(MIDDLE)",
        ("for _ in range(3):\n    for x in texts:\n        x.copy_(whole)\n"
        "        print(centred(x).sum())"),
    ),
    "a state that began blank": (
        "words.add_(1.0)", "pass", "texts = [torch.zeros(4, 3) for _ in range(3)]" + TWO,
    ),
    "called for what it writes": (
        "pass", "x.sub_(MIDDLE)", "for _ in range(3):\n    for x in texts:\n        centred(x)",
    ),
    "kept within bounds": ("words.clamp_(-1, 1)", "pass", TWO),
    "parts that are filled anew": (
        "words += self.places()", "pass", SHELF.replace("FILL", "self.words.normal_()") + EACH,
    ),
    "parts of its own that an object has changed": (
        "pass", "x.sub_(MIDDLE)", SHELF.replace("FILL", "pass") + "    print(shelf.all(centred))",
    ),
    "parts that the caller took": (
        "words += self.places()", "pass",
        "for _ in range(3):\n    words = whole[:2]\n    print(one(words).sum())",
    ),
}  # fmt: skip


def _again(written, here, loop):
    return AGAIN.replace("WRITTEN", written).replace("HERE", here).replace("LOOP", loop)


@pytest.mark.parametrize(("written", "here", "loop", "name"), DRIFTS.values(), ids=DRIFTS)
def test_what_is_written_each_time_it_is_handed_in(written, here, loop, name, tmp_path):
    mark = f"  #! alias-write {name} (note)"
    written, here = (one if one == "pass" else one + mark for one in (written, here))
    check_program(_again(written, here, loop), tmp_path)


@pytest.mark.parametrize(("written", "here", "loop"), STAYS.values(), ids=STAYS)
def test_what_keeps_its_values_does_not_drift(written, here, loop, tmp_path):
    found = check_program(_again(written, here, loop), tmp_path).findings
    assert not [one for one in found if one.slug == "alias-write"]
