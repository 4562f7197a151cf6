"""What is true of every operation of a kind, so that a new one's row is not left half said."""

from __future__ import annotations

import pytest

from tether.operations.rows import ROWS, SAME_AS
from tether.operations.table import operation, schema

LEAVING = {  # by what a tensor's values become: what else the row must say
    "number": {"memory": "owns", "waits": True},
    "numbers": {"memory": "owns", "waits": True},
    "truth": {"memory": "owns", "waits": True},
    "array": {"memory": "shares", "waits": True, "compact": True},
    "capsule": {"memory": "shares"},
    "address": {"carries": False},
}


@pytest.mark.parametrize("name", [name for name in ROWS if operation(name).leaves in LEAVING])
def test_what_leaves_the_tensors_says_what_goes_with_it(name):
    found = operation(name)
    wanted = LEAVING[found.leaves]
    assert {column: getattr(found, column) for column in wanted} == wanted


def test_each_way_to_leave_is_met():
    assert {operation(name).leaves for name in ROWS} >= LEAVING.keys()


def test_another_name_is_of_a_call_that_there_is():
    assert {name for name in SAME_AS.values() if name not in schema()["operations"]} == set()
