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
