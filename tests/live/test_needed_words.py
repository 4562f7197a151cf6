"""What the table of copies calls a copy and its source, where it says why the copy was needed."""

import pytest

from programs import record_program

HEAD = """\
import torch

torch.manual_seed(0)
water = torch.rand(700)
kept = {}
"""
CASES = {
    "put into another": (
        """
        kept["before"] = torch.zeros_like(water)
        kept["before"].copy_(water)
        water.add_(1.0)
        print((water - kept["before"]).sum())
        """,
        "line 9 writes `water` while `kept['before']` lives",
    ),
    "put into another, of a part of an object": (
        """
        basin = torch.nn.Linear(30, 30)
        kept["weight"] = torch.empty(30, 30)
        kept["weight"].copy_(basin.weight.data)
        basin.weight.data.mul_(0.5)
        print(kept["weight"].sum())
        """,
        "line 10 writes `basin.weight.data` while `kept['weight']` lives",
    ),
    "a clone": (
        """
        level = water.clone()
        water.add_(1.0)
        print((water - level).sum())
        """,
        "line 8 writes `water` while `level` lives",
    ),
    "by its own name": (
        """
        first = water
        water = water.clone()
        first.add_(1.0)
        print((water - first).sum())
        """,
        "line 9 writes its source while `water` lives",
    ),
    "filled before it is read": (
        """
        mask = water.clone().fill_(0.5)
        print((mask * water).sum())
        """,
        "line 7 writes `mask` anew before anything reads it, while `water` lives",
    ),
    "written in part": (
        """
        level = water.clone()
        level[3] = 0.0
        print((level - water).sum())
        """,
        "line 8 writes `level` while `water` lives",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_copies_and_sources_have_their_own_names(name, tmp_path):
    body, reason = CASES[name]
    lines = "".join(f"{line.strip()}\n" for line in body.splitlines())
    table = record_program(HEAD + lines, tmp_path).copies
    assert [row.reason for row in table if row.needed == "yes" and row.reason] == [reason]
