"""No needless copy of an array is refuted: random programs give the same bytes without them.

Where a copy is left out, the program's text has what was copied in its place. `lengths` says how
many programs are tried.
"""

import itertools
import tempfile
from pathlib import Path

import pytest
import torch  # noqa: F401 -- before any recording
from hypothesis import assume, event, example, given, note
from hypothesis import strategies as st

from drawn import body_of, law, statement
from tether.analysis.history import History
from tether.record.session import Session
from tether.report.recording import prepare
from tether.verdicts.needless_copy.array_calls import copied_by_numpy

NUMBERS = itertools.count()

COPIES = ["{a}.copy()", "{a}.copy()", "np.array({a})", "np.copy({a})", "{a}.astype(np.float64)",
          "copy.deepcopy({a})", "copy.copy({a})", "np.array({a}, dtype=np.float64)",
          "{a}.flatten().reshape(64, 64)", "{a}[:].copy()", "{a}.T.copy().T",
          "{a}.reshape(-1).copy().reshape(64, 64)", "np.array({b}[::2].repeat(2, 0))",
          "torch.from_numpy({a}).numpy().copy()", "torch.from_numpy({a}.copy()).numpy()",
          "np.frombuffer({a}.tobytes()).reshape(64, 64).copy()"]  # fmt: skip
COMPUTED = ["{a} * 2", "{a} + {b}", "{a}.T", "{a}[::-1]", "{a}[:1].repeat(64, 0)",
            "torch.from_numpy({a}).mul(2).numpy()", "torch.from_numpy({a}).numpy()"]  # fmt: skip
WRITES = ["{a} += 1", "{a}[0] = 3", "np.clip({a}, -1, 1, out={a})", "{a}.sort()", "{a}.fill(2)",
          "torch.from_numpy({a}).add_(1)", "{a}[{a} > 1e9] = 0", "{a}[...] = {b}",
          "state[...] += 1"]  # fmt: skip
OTHER = ["del {a}", "kept.append({a})", "kept.append({a})", "total += {a}.sum()", "state = {a}",
         "{a} = state", "{a} = {b}", "digest.update({a}.tobytes())", "held = {a}.tobytes()",
         "out.write({a}.tobytes())", "kept and kept.pop(0)", "read.append({a}.sum())"]  # fmt: skip

KINDS, MAKES = [COPIES, COPIES, COMPUTED, WRITES, OTHER], (COPIES, COMPUTED)


def program_of(lines, result):
    """Make a program of the statements of its function, and of what that returns."""
    return (
        "import copy, hashlib, io\n"
        "import numpy as np, torch\n"
        "data = np.random.default_rng(0).normal(size=(64, 64))\n"
        "digest, out, kept, read = hashlib.sha256(), io.BytesIO(), [], []\n"
        "state = np.ones((64, 64))\n"
        "torch.ones(1)\n"
        "def f(x, y):\n"
        "    global state\n"
        "    total = 0.0\n"
        f"{body_of(lines)}\n"
        f"    return total + {result}.sum()\n"
        "for n in range(3):\n"
        "    read.append(f(data, data + n))\n"
        "read += [one.tobytes() for one in kept] + [state.tobytes(), data.tobytes()]\n"
        "read += [digest.hexdigest(), out.getvalue()]\n"
    )


@st.composite
def programs(draw):
    """Draw a function of a few statements, and a loop that calls it."""
    names, count = ["x", "y"], draw(st.integers(2, 9))
    lines = [statement(draw, number, names, KINDS, MAKES) for number in range(count)]
    return program_of(lines, draw(st.sampled_from(names)))


def run(program, file, session=None):
    """Run a program, under a session if there is one; return what it read, and the trace."""
    file.write_text(program, encoding="utf-8")
    names = {"__name__": "__main__"}
    code = compile(program, str(file), "exec")
    if session is None:
        exec(code, names)
        return names["read"], None
    session.start()
    try:
        exec(code, names)
    finally:
        trace = session.stop(names)
    return names["read"], trace


def without(program, found, history):
    """Return the text of a program in which what was copied stands in the place of its copies."""
    lines = program.splitlines(keepends=True)
    sites = [(history.site(one.line.site), one) for one in found]
    for site, one in sorted(sites, key=lambda pair: pair[0].position, reverse=True):
        line = lines[site.line - 1]
        lines[site.line - 1] = (
            f"{line[: site.column - 1]}({one.text.array}){line[site.end_column - 1 :]}"
        )
    return "".join(lines)


@pytest.mark.long
@law
@given(programs())
@example(program_of(["v0 = x.copy()", "v1 = v0.copy()", "del v0", "x += 1"], "v1"))
@example(program_of(["v0 = x.copy()", "x += 1", "total += x.sum()", "x[...] = v0"], "x"))
@example(program_of(
    ["v0 = x[:].copy()", "v1 = torch.from_numpy(x).numpy()", "x += 1", "total += x.sum()",
     "v1[...] = v0"], "x",
))  # fmt: skip
@example(program_of(["v0 = torch.from_numpy(x).numpy().copy()", "v0 += 1"], "x"))
@example(program_of(
    ["t = torch.from_numpy(x) * 1", "v0 = t.numpy().copy()", "v0 += 1", "total += t.sum().item()"],
    "v0",
))  # fmt: skip
@example(
    program_of(["v0 = x.copy()", "v1 = v0.copy()", "v0 = y", "x += 1", "kept.append(v1)"], "y")
)
def test_a_needless_copy_of_an_array_can_go(program):
    with tempfile.TemporaryDirectory() as folder:
        check(program, Path(folder))


def check(program, folder):
    note(program)
    file = folder / f"program_{next(NUMBERS)}.py"
    try:
        plain, trace = run(program, file, Session())
    except (RuntimeError, UnboundLocalError, ValueError):
        assume(False)
    trace.program = [str(file)]
    prepare(trace)
    history = History(trace)
    found = list(copied_by_numpy(history))
    assume(found)
    event(f"{len(found)} needless")
    text = without(program, found, history)
    note(text)
    changed, _ = run(text, folder / f"program_{next(NUMBERS)}.py")
    assert changed == plain or repr(changed) == repr(plain), "NaN as NaN"
