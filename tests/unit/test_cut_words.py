"""What is said of a call that cuts gradients, and what to write instead: a case for each kind.

A kind is seen in the facts (`analysis.gradients.cuts`, `analysis.gradients.graph`); which of them a call is, and its words,
is `analysis.gradients.cut_words`. In programs: tests/live/test_cuts.py, and the examples of gradient-cut.
"""

from __future__ import annotations

import pytest
from traces import trace

from tether.analysis.gradients.cut_words import described
from tether.analysis.history import History
from tether.analysis.speaking import Speaker

START = ("w = param net.w", "h = mul w w")
SAID = {  # the last line cuts
    ("d = detach h",): (
        "`d = detach h` shares the values but not the graph",
        "Drop the detach at line 3 if gradients are to flow through it",
    ),
    ("d = data.__get__ h",): ("`d = data.__get__ h` is outside the graph", "Drop .data at line 3"),
    ("s = item h",): (
        "`s = item h` turns the tensor into a Python number",
        "Keep the tensor: do without .item() at line 3",
    ),
    ("a = numpy h",): (
        "`a = numpy h` hands the values to NumPy, which keeps no graph",
        "Compute with torch functions instead of NumPy from line 3 on",
    ),
    ("t = tensor h",): (
        "`t = tensor h` makes a new leaf of the values",
        "Use the computed tensor itself at line 3",
    ),
    ("no_grad", "y = mul h h"): (
        "`y = mul h h` ran with gradients switched off by `no_grad`",
        "Move `y = mul h h` out of the block that begins at line 3",
    ),
    ("k = argmax h int64",): (
        "`k = argmax h int64` gives indices, which have no gradient",
        "Use the values instead of the indices, or a soft selection (softmax weights)",
    ),
    ("m = gt h w bool",): (
        "`m = gt h w bool` is a comparison, which has no gradient",
        "Use a smooth stand-in for the comparison (a sigmoid of the difference)",
    ),
    ("i = mul h w int64",): (
        "`i = mul h w int64` gives int64",
        "Keep a floating-point dtype at line 3",
    ),
    ("b = zeros_like h int64", "copy_ b h"): (
        "`copy_ b h` writes into a tensor of dtype int64, made at line 3",
        "Make it with a floating-point dtype at line 3",
    ),
    # What the call is by its name goes before the mode it ran in, and the mode before the dtype.
    ("no_grad", "d = detach h"): (
        "`d = detach h` shares the values but not the graph",
        "Drop the detach at line 4 if gradients are to flow through it",
    ),
    ("no_grad", "i = mul h w int64"): (
        "`i = mul h w int64` ran with gradients switched off by `no_grad`",
        "Move `i = mul h w int64` out of the block that begins at line 3",
    ),
}


@pytest.mark.parametrize("lines", SAID, ids=["; ".join(one) for one in SAID])
def test_what_is_said_of_a_cut(lines):
    history = History(trace(*START, *lines))
    found = described(history, len(history.events) - 1)
    said = Speaker(history, history.site(found.site)).said
    assert (said(found.what), said(found.fix)) == SAID[lines]
