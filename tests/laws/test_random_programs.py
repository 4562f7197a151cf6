"""What the rulebook predicts of a program is what the recorder sees of it, fact for fact.

`lengths` says how many programs are tried.
"""

import copy
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, note, settings

from lengths import programs as programs_to_try
from lengths import sampled
from predictor.predict import predict
from random_programs import differences, programs
from tether.operations import BY_SLUG, Case
from tether.record.session import Session

COUNT = programs_to_try(short=60, long=300)


def record(program):
    """Run a program under the recorder and return its trace."""
    names = {"__name__": "__main__", "torch": torch, "copy": copy, "np": np}
    code = compile(program, "<program>", "exec")
    session = Session()
    session.start()
    try:
        exec(code, names)
    finally:
        trace = session.stop(names)
    return trace


@pytest.mark.long
@settings(
    max_examples=COUNT,
    deadline=None,
    derandomize="TETHER_PROGRAMS" not in os.environ,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(programs())
def test_prediction_and_recording_agree(program):
    note(program)
    said = predict(program)
    assert not said.gaps
    assert not differences(record(program), said)


PROGRAMS = {
    "a view follows its base into the graph": """
        x = torch.zeros(4)
        view = x[1:]
        other = x[:2]
        w = torch.ones(2, requires_grad=True)
        other.mul_(w)
        y = view.exp()
        y.sum().backward()
    """,
    "a view made under no_grad says it requires grad, and loses its gradient": """
        x = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            view = x[1:]
        y = view * 2
        y.sum().backward()
    """,
    "a saved value is overwritten": """
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.add_(1)
        y.sum().backward()
    """,
    "a write through .data goes unheard": """
        x = torch.ones(3, requires_grad=True)
        y = x.exp()
        y.data.zero_()
        y.sum().backward()
    """,
    "a reshape copies this time": """
        x = torch.ones(2, 3)
        y = x.t().reshape(-1)
        z = x.reshape(-1)
        z.add_(1)
    """,
    "a Parameter is deep copied without its gradient": """
        p = torch.nn.Parameter(torch.ones(3))
        p.sum().backward()
        q = copy.deepcopy(p)
        x = torch.ones(3, requires_grad=True)
        x.sum().backward()
        y = copy.deepcopy(x)
        y.sum().backward()
    """,
    "what was a leaf is inside the graph when its gradient comes": """
        x = torch.ones(3, requires_grad=True)
        y = x.clone()
        x.requires_grad_(False)
        x.add_(y)
        x.sum().backward()
    """,
    "a view that may not follow is refused before memory is looked at": """
        x = torch.ones(2, 3, requires_grad=True)
        y = x.clone()
        z = y.unbind()[0]
        with torch.no_grad():
            y.add_(1)
        y += z
    """,
    "a number is an operand without dimensions": """
        x = torch.ones(1, 3)
        y = x.t() + 2
        z = x.t().exp()
        u = x.t() + x.t()
    """,
    "a backward pass may read what an array wrote": """
        w = torch.ones(3, requires_grad=True)
        x = torch.ones(3)
        a = x.numpy()
        a[...] = 7
        w.sum().backward()
    """,
    "an array comes back as another storage on the same bytes": """
        x = torch.ones(3)
        a = x.numpy()
        y = torch.from_numpy(a)
        y.add_(1)
    """,
    "the second backward finds nothing": """
        x = torch.ones(3, requires_grad=True)
        y = x * 2
        y.sum().backward()
        y.sum().backward()
    """,
}


def caught(program):
    body = "".join(f"    {line}\n" for line in program.splitlines())
    return f"try:\n{body}except Exception:\n    pass\n"


def dedented(text):
    lines = text.strip("\n").splitlines()
    return "\n".join(line[8:] for line in lines).rstrip() + "\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_known_programs(name):
    program = caught(dedented(PROGRAMS[name]))
    said = predict(program)
    seen = record(program)
    assert not said.gaps
    assert not differences(seen, said)


def test_recording_lets_no_refused_write_through():
    """Asking a view for ``is_leaf`` lets it follow its base: a recorder must not."""

    def outcome():
        base = torch.zeros(4)
        view = base[1:]
        base.mul_(torch.ones(4, requires_grad=True))
        view.detach()  # the recorder looks at the view here
        try:
            view.add_(1)
        except RuntimeError as error:
            return str(error)
        return "went through"

    plain = outcome()
    session = Session()
    session.start()
    try:
        recorded = outcome()
    finally:
        session.stop()
    assert recorded == plain


BREAKS = [
    ("clone", {"memory": "share"}),
    ("detach", {"gradient": "keep"}),
    ("detach", {"version": "own"}),
    ("data.__get__", {"version": "shared"}),
    ("exp", {"saves": ()}),
    ("mul:tensor", {"saves": ("result",)}),
    ("__getitem__", {"memory": "own"}),
    ("add_", {"writes": "unseen"}),
    ("Parameter", {"requires_grad": "no"}),
    ("__deepcopy__", {"starts": 0}),
    ("double", {"dtype": "float32"}),
    ("from_numpy", {"memory": "own"}),
]


@pytest.mark.long
@pytest.mark.parametrize(("slug", "changes"), sampled(BREAKS, 4))
def test_a_wrong_rule_is_caught_by_some_program(slug, changes):
    """The comparison can fail: with one rule broken, some random program tells."""
    rule = BY_SLUG[slug]
    cases = tuple(Case(case.when, replace(case.effect, **changes)) for case in rule.cases)
    broken = {**BY_SLUG, slug: replace(rule, cases=cases)}

    @settings(
        max_examples=2000,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def agrees(program):
        said = predict(program, rules=broken)
        assert not said.gaps
        assert not differences(record(program), said)

    with pytest.raises(AssertionError):
        agrees()
