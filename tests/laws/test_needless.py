"""No needless copy is refuted: random programs give the same values, bit for bit, without them.

`lengths` says how many programs are tried.
"""

import pytest
import torch
from hypothesis import assume, event, example, given, note
from hypothesis import strategies as st

from drawn import body_of, law, statement
from tether.analysis.copies.needs import left_out_with, needs
from tether.analysis.history import History
from tether.measure.rerun import CallChange, TrialSession
from tether.record.session import Session
from tether.report.recording import prepare

COPIES = ["{a}.clone()", "{a}.clone()", "{a}.detach().clone()", "{a}.contiguous()",
          "torch.tensor({a}.detach())", "copy.deepcopy({a}.detach())", "{a}.t().contiguous()",
          "{a}.to(torch.float32, copy=True)", "torch.empty_like({a}).copy_({a})",
          "{a}[torch.tensor([1, 0])].clone()", "torch.clone({a}[:1])", "{a}.t().clone()",
          "{a}.expand(2, 2).clone()", "torch.cat([{a}])", "torch.stack([{a}])[0]",
          "torch.cat([{a}[:1], {b}[1:]])", "torch.cat({a}.split(1))", "torch.stack({a}.unbind())",
          "torch.stack({a}.unbind(1), 1)", "{a}[torch.arange(2)]", "{a}[:, [0, 1]]",
          "{a}.index_select(1, torch.arange(2))", "{a}[torch.ones(2, dtype=torch.bool)]",
          "{a}.masked_select(torch.ones(2, 2, dtype=torch.bool)).view(2, 2)",
          "{a}[:1].repeat(2, 1)", "{a}[0].repeat(2, 1)", "{a}.repeat(1, 1)",
          "{a}.gather(0, torch.arange(2)[:, None].expand(2, 2))", "{a}.double().float()",
          "{a}.t().contiguous().t()", "{a}.t().contiguous().t().contiguous()",
          "torch.tensor({a}.tolist())", "torch.tensor({a}.detach().numpy())",
          "torch.tensor({a}.detach().numpy().copy())", "{a}.permute(1, 0).clone()",
          "{a}.reshape(4).clone().view(2, 2)", "torch.stack([{a}, {b}])[0]"]  # fmt: skip
COMPUTED = ["{a} * 2", "{a} + {b}", "{a}.exp()", "{a} @ {b}", "{a}.t()", "{a}.detach()",
            "{a}[:1].expand(2, 2)", "{a}.data", "{a}.relu()", "{a}.sin()", "{a}.amax(0)",
            "{a}.view(-1).view(2, 2)"]  # fmt: skip
WRITES = ["{a}.add_(1)", "{a}.mul_({b})", "{a}.copy_({b})", "{a}[0] = 3", "{a}.relu_()",
          "{a}.data.zero_()", "{a}.detach().numpy()[...] += 1"]  # fmt: skip
OTHER = ["del {a}", "kept.append({a})", "total = total + {a}.sum()", "total = total + {a}.sum()",
         "state = {a}", "{a} = state", "arrays.append({a}.detach().numpy())",
         "arrays[-1][...] = 5", "{a}.requires_grad_()", "read.append({a}.tolist())",
         "{a}.sum().backward(retain_graph=True)", "read.append({a}.is_contiguous())",
         "read.append({a}.stride())", "{a} = {b}"]  # fmt: skip

KINDS, MAKES = [COPIES, COPIES, COMPUTED, WRITES, OTHER], (COPIES, COMPUTED)


def program_of(lines, result, source):
    """Make a program of the statements of its function, what that returns, and what it is given."""
    return (
        "torch.manual_seed(0)\n"
        "w = torch.randn(2, 2, requires_grad=True)\n"
        "data = torch.randn(2, 2)\n"
        "kept, arrays, read, state = [], [], [], torch.ones(2, 2)\n"
        "def f(x, y):\n"
        "    global state\n"
        "    total = (x * w).sum()\n"
        f"{body_of(lines)}\n"
        f"    return total + {result}.sum()\n"
        "for _ in range(2):\n"
        f"    loss = f({source}, data)\n"
        "    read.append(loss.item())\n"
        "    if loss.requires_grad: loss.backward()\n"
        "    with torch.no_grad(): w -= 0.1\n"
        "read += [one.tolist() for one in [*kept, state, w, data]]\n"
        "read += [one.tolist() for one in arrays]\n"
        "read.append(None if w.grad is None else w.grad.tolist())\n"
    )


@st.composite
def programs(draw):
    """Draw a function of a few statements, and a loop that calls it."""
    names, lines = ["x", "y"], []
    for number in range(draw(st.integers(2, 9))):
        text = statement(draw, number, names, KINDS, MAKES)
        if draw(st.integers(0, 5)) == 0:
            text = f"with torch.no_grad(): {text}"
        lines.append(text)
    result = draw(st.sampled_from(names))
    source = draw(st.sampled_from(["w", "w * 2", "data", "data.clone()"]))
    return program_of(lines, result, source)


def run(program, session):
    """Run a program under a session; return what it read, and the trace."""
    import copy

    names = {"__name__": "__main__", "torch": torch, "copy": copy}
    session.start()
    try:
        exec(compile(program, "<needless>", "exec"), names)
    finally:
        trace = session.stop(names)
    return names["read"], trace


@pytest.mark.long
@law
@given(programs())
@example(  # what a view would need is needed, though nothing reads the view
    program_of(
        [
            "v0 = y.clone()",
            "y.relu_()",
            "v2 = y.t().contiguous()",
            "v3 = y.clone()",
            "v4 = v2.view(-1)",
        ],
        "v3",
        "w",
    )
)
@example(  # nothing reads it, but a gradient is asked for it
    program_of(
        [
            "v1 = torch.empty_like(x).copy_(x)",
            "v2 = x.masked_select(torch.ones(2, 2, dtype=torch.bool)).view(2, 2)",
            "v3 = v1.detach()",
            "v2.mul_(v2)",
            "v5 = y + v2",
            "with torch.no_grad(): v1.requires_grad_()",
        ],
        "v5",
        "data",
    )
)
@example(  # numbers of what was left out are made a tensor again
    program_of(
        [
            "v0 = x.permute(1, 0).clone()",
            "with torch.no_grad(): v1 = x[:1].repeat(2, 1)",
            "v3 = x.masked_select(torch.ones(2, 2, dtype=torch.bool)).view(2, 2)",
            "v0.data.zero_()",
            "v6 = torch.cat(v3.split(1))",
            "with torch.no_grad(): v0.copy_(v0)",
            "v8 = torch.tensor(v1.tolist())",
        ],
        "v3",
        "data.clone()",
    )
)
@example(  # of a view that was made where gradients are off, in the middle of a graph
    program_of(
        [
            "v0 = x.t()",
            "v0.data.zero_()",
            "with torch.no_grad(): v1 = v0.t()",
            "v2 = v1.repeat(1, 1)",
        ],
        "v2",
        "w * 2",
    )
)
@example(  # two copies in a row, of which nothing reads the second one: a view needs one of them
    program_of(
        ["v1 = x[:1].expand(2, 2)", "v2 = v1[torch.tensor([1, 0])].clone()", "v3 = v2.view(-1)"],
        "x",
        "data.clone()",
    )
)
@example(  # rows that are alike, in another order
    program_of(
        [
            "with torch.no_grad(): v0 = y.amax(0)",
            "v1 = v0.expand(2, 2).clone()",
            "v2 = v1[torch.tensor([1, 0])].clone()",
            "with torch.no_grad(): v0[0] = 3",
        ],
        "v0",
        "data",
    )
)
@example(  # parts of one memory, of which one is in the graph
    program_of(
        ["v0 = x.detach()", "v1 = torch.cat([x[:1], v0[1:]])"],
        "v1",
        "w",
    )
)
def test_a_needless_copy_can_go(program):
    note(program)
    try:
        plain, trace = run(program, Session())
    except (RuntimeError, UnboundLocalError, IndexError):
        assume(False)
    trace.program = ["program.py"]
    prepare(trace)
    history = History(trace)
    found = needs(history)
    rounding = {  # a sum of a gradient that lies in another way
        key for key, need in found.items()
        if need.relaid and any(one.copy.requires_grad for one in need.executions)
    }  # fmt: skip
    together = [left_out_with(history, key) for key in found]
    lines = {key for keys in together if not rounding.intersection(keys) for key in keys}
    changes = [
        CallChange("drop", operation, history.site(site)[:5])
        for site, _, operation in sorted(lines)
    ]
    assume(changes)
    event(f"{len(changes)} needless")
    session = TrialSession(changes)
    without, _ = run(program, session)
    note(repr(changes))
    assert sum(session.seen().applied)
    assert repr(without) == repr(plain), "NaN as NaN"
