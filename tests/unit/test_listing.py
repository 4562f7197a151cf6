"""What prints the facts of a recording, and the row of an operation."""

from __future__ import annotations

import pytest
from traces import trace

from tether.operations.row import lines as row
from tether.store.file import save
from tether.store.listing import lines, main

TRACE = trace("w = param net.w", "no_grad", "d = detach w", "add_ d w", "grad", "step w=some")


def test_events_are_listed_with_their_lines_and_operands():
    listed = list(lines(TRACE))
    at = listed.index("2 main.py:3 detach gradients off")
    reads, results, following = listed[at + 1 : at + 4]
    assert reads == (
        "    reads tensor 0 net.w, storage 0 version 0, float32 (4,) leaf requires_grad"
    )
    assert results == "    results tensor 1, storage 0 version 0, float32 (4,) leaf"
    assert following == "3 main.py:4 add_ gradients off"
    assert [one.split()[0] for one in listed[at + 4 : at + 8]] == [
        "reads", "reads", "results", "writes",
    ]  # fmt: skip
    assert listed[-1] == "tables: sites (6), names (1), optimizers (1), gradients (1)"


def test_a_call_that_a_library_made_is_listed_with_both_lines():
    made = trace("x = data", "y = mul x x")
    made.events[1] = made.events[1]._replace(inner=0, detail="Net")
    assert "1 main.py:2 mul Net (made at main.py:1)" in lines(made)


def test_tables_are_listed_by_their_names():
    (name, optimizer) = lines(TRACE, "names", "optimizers")
    assert name.startswith("names 0: Name(tensor=0, name='net.w'")
    assert optimizer.startswith("optimizers 0: OptimizerFact(kind='SGD'")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("run.tether",), ""),
        (("run.tether", "nothing"), "there is no table nothing; there are sites, "),
        (("other.tether",), "cannot open other.tether"),
    ],
)
def test_what_the_listing_prints(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    save(TRACE, "run.tether")
    assert main(*arguments).startswith(said)
    printed = capsys.readouterr().out.splitlines()
    assert printed == ([] if said else list(lines(TRACE)))


def test_a_row_has_the_columns_that_say_something():
    assert list(row("item")) == [
        "item",
        "  leaves = 'number'",
        "  memory = 'owns'",
        "  any_strides = True",
        "  waits = True",
    ]
    same, *columns = row("__iadd__")
    assert same == "__iadd__ (the same as add_)"
    assert "  writes = 'values'" in columns
    assert list(row("no_such_call")) == ["no_such_call: nothing is known of it"]
