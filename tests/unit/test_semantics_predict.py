"""Predicting a program from its text: what is known, and that the unknown is said."""

import pytest

from predictor.layout import (
    Layout,
    LayoutError,
    broadcast,
    elementwise,
    expanded,
    fresh,
    overlaps_itself,
    overlaps_partly,
    permuted,
    preserved,
    reshaped,
    sliced,
)
from predictor.predict import predict


def told(program):
    """Say who a program's results share memory with, and which require grad.

    ``y~x`` when the storage is one, ``y`` when it is y's own, ``+`` when y requires grad.
    """
    trace = predict(program)
    assert not trace.gaps, trace.gaps
    owner = {}
    said = []
    for number, event in enumerate(trace.events):
        for result in event.results:
            first = owner.setdefault(result.storage, number)
            said.append(f"{number}{'' if first == number else f'~{first}'}"
                        f"{'+' if result.requires_grad else ''}")  # fmt: skip
    return " ".join(said)


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("x = torch.ones(3)\ny = x.detach()\nz = y.clone()", "0 1~0 2"),
        ("x = torch.ones(3, requires_grad=True)\ny = x * 2\nz = y.detach()", "0+ 1+ 2~1"),
        ("x = torch.ones(2, 3)\ny = x.t()\nz = y.reshape(-1)", "0 1~0 2"),
        ("x = torch.ones(2, 3)\ny = x.view(3, 2)\nz = y.contiguous()", "0 1~0 2~0"),
        ("x = torch.ones(3)\np = torch.nn.Parameter(x)", "0 1~0+"),
        ("x = torch.ones(3)\ny = x.float()\nz = x.double()", "0 1~0 2"),
    ],
)
def test_ties(program, expected):
    assert told(program) == expected


def test_an_uncaught_error_ends_the_program():
    trace = predict("x = torch.ones(3, requires_grad=True)\nx.add_(1)\ny = x.clone()")
    assert trace.outcome == "raised"
    assert trace.raised[0].fatal
    assert "a leaf Variable" in trace.raised[0].message
    assert [event.operation for event in trace.events] == ["ones", "add_"]


def test_backward_names_the_leaves_it_reaches():
    trace = predict(
        "x = torch.ones(3, requires_grad=True)\n"
        "w = torch.ones(3, requires_grad=True)\n"
        "y = x.detach() * w\n"
        "y.sum().backward()\n"
    )
    (gradients,) = trace.gradients
    assert gradients.status == {0: "none", 1: "unchecked"}


@pytest.mark.parametrize(
    "line",
    ["y = mystery(x)", "y = x.no_such_call()", "for i in range(3): y = x", "y = x[[0, 1]]",
     "y = x if x else x", "y = x.to(device)", "y = x + unheard_of"],
)  # fmt: skip
def test_what_is_not_known_is_a_gap_and_stays_unknown(line):
    trace = predict(f"x = torch.ones(3)\n{line}\nz = y.clone()\nw = x.clone()\n")
    assert len(trace.gaps) == 2, "the line, and the use of what it made"
    assert all(gap.detail for gap in trace.gaps)
    assert [event.operation for event in trace.events] == ["ones", "clone"]


def test_sites_point_at_the_call():
    trace = predict("x = torch.ones(3)\ny = x.detach().clone()\n")
    sites = [trace.sites[event.site] for event in trace.events]
    assert [site.expression for site in sites] == ["torch.ones(3)", "x.detach()",
                                                   "x.detach().clone()"]  # fmt: skip
    assert [site.line for site in sites] == [1, 2, 2]


def test_no_python_is_a_syntax_error():
    with pytest.raises(SyntaxError):
        predict("x = = 1")


# -- layouts -------------------------------------------------------------------------------------

ROWS = fresh((2, 3))
COLUMNS = permuted(ROWS, (1, 0))


def test_views_are_placed():
    assert ROWS.contiguous
    assert not COLUMNS.contiguous
    assert COLUMNS.dense
    assert sliced(ROWS, 1, slice(1, None)) == Layout((2, 2), (3, 1), 1)
    assert expanded(fresh((3,)), (2, -1)) == Layout((2, 3), (0, 1))


def test_a_reshape_is_a_view_or_not():
    assert reshaped(ROWS, (6,)) == Layout((6,), (1,))
    assert reshaped(COLUMNS, (6,)) is None
    with pytest.raises(LayoutError):
        reshaped(ROWS, (5,))


def test_copies_keep_the_order_of_dimensions():
    assert preserved(COLUMNS) == COLUMNS
    assert preserved(sliced(COLUMNS, 0, slice(1, None))) == Layout((2, 2), (1, 2))
    assert elementwise([COLUMNS, COLUMNS]) == COLUMNS
    assert elementwise([ROWS, fresh((3,))]) == ROWS


def test_shapes_that_do_not_fit():
    assert broadcast((2, 1), (3,)) == (2, 3)
    with pytest.raises(LayoutError):
        broadcast((2,), (3,))


def test_overlaps():
    assert overlaps_itself(expanded(fresh((3,)), (2, 3)))
    assert not overlaps_itself(ROWS)
    line = fresh((4,))
    assert overlaps_partly(sliced(line, 0, slice(1, None)), sliced(line, 0, slice(0, 3)))
    assert not overlaps_partly(sliced(line, 0, slice(2, None)), sliced(line, 0, slice(0, 2)))
    assert not overlaps_partly(line, line)
