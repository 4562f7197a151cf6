"""Buffers that are another attribute of their module as well, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

PROGRAM = """\
import torch
from torch import nn


class Kept(nn.Module):
    def __init__(self, given):
        super().__init__()
{made}

    def moved(self, x):
{moved}

    def apart(self):
        return (self.level.sum() - {read}.sum()).abs()


kept = Kept(torch.arange(3.0))
{then}
print(kept.moved(torch.ones(3)), kept.apart())
"""

LOADED = """kept.load_state_dict({"level": torch.full((3,), 5.0)})"""
ANEW = """\
        self.level = self.level + x
        return self.level.mean()
"""

FOUND = {
    "loaded, and given another later": (
        """\
        self.start = given
        self.register_buffer("level", given)  #! alias-write kept.start
""",
        ANEW,
        "self.start",
    ),
    "by way of the attribute": (
        """\
        self.start = given * 2
        self.register_buffer("level", self.start)  #! alias-write kept.start
""",
        ANEW,
        "self.start",
    ),
    "not saved with the state": (
        """\
        self.register_buffer("level", given)  #! alias-write kept.defaults
        self.defaults = self.level
""",
        ANEW,
        "self.defaults",
    ),
    "written in place alone": (
        """\
        self.start = given
        self.register_buffer("level", given)  #! alias-write kept.start (note)
""",
        """\
        return x.mean()
""",
        "self.start",
    ),
}

RIGHT = {
    "a copy": (
        """\
        self.start = given
        self.register_buffer("level", given.clone())
""",
        ANEW,
        "self.start",
    ),
    "read by one name alone": (
        """\
        self.start = given
        self.register_buffer("level", given)
""",
        ANEW,
        "self.level",
    ),
    "two buffers": (
        """\
        self.register_buffer("level", given)
        self.register_buffer("start", torch.zeros(3), persistent=False)
""",
        ANEW,
        "self.start",
    ),
}


def _program(case, then=LOADED):
    made, moved, read = case
    return PROGRAM.format(made=made.rstrip(), moved=moved.rstrip(), read=read, then=then)


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND)
def test_what_is_loaded_into_a_buffer_that_has_another_name_is_told(case, tmp_path):
    check_program(_program(case), tmp_path)


@pytest.mark.parametrize("case", RIGHT.values(), ids=RIGHT)
def test_two_tensors_and_one_name_are_not(case, tmp_path):
    found = check_program(_program(case), tmp_path).findings
    assert not [one for one in found if one.slug == "alias-write"]


def test_a_tensor_that_nothing_wrote_is_right(tmp_path):
    made, moved, read = FOUND["loaded, and given another later"]
    case = made.replace("#! alias-write kept.start", ""), moved, read
    found = check_program(_program(case, "kept.state_dict()"), tmp_path).findings
    assert not [one for one in found if one.slug == "alias-write"]
