"""Where values come back: a program with its exits in << >> and its entry in <: :>."""

from __future__ import annotations

import re

import pytest

from tether.facts import Bridge, Event, Operand, Site, Trace
from tether.source.bridges import follow
from tether.store.fields import check

FILE = "/home/me/m.py"


def operand(serial: int) -> Operand:
    return Operand(serial, serial, 0, 0, (), (), "float32", False, True)


def trace_of(program: str, exit_="item", entry="tensor", order: str | None = None) -> Trace:
    """Return a trace in which the marked places ran, in `order` ("0012": site numbers)."""
    sites, events, text = [], [], ""
    stack: list[tuple[str, int, int]] = []
    for part in re.split("(<<|>>|<:|:>)", program):
        line, column = 1 + text.count("\n"), len(text) - text.rfind("\n")
        if part in ("<<", "<:"):
            stack.append((part, line, column))
        elif part in (">>", ":>"):
            kind, first, start = stack.pop()
            sites.append((kind, Site(FILE, first, start, line, column)))
        else:
            text += part
    for number in map(int, order) if order else range(len(sites)):
        if sites[number][0] == "<<":
            events.append(Event(exit_, number, reads=(operand(number),)))
        else:
            reads = () if entry == "tensor" else (operand(number),)
            events.append(Event(entry, number, reads, results=(operand(100 + number),)))
    return Trace(events=events, sites=[site for _, site in sites], sources={FILE: text})


def joined(program: str, **options) -> list[tuple[int, int, str]]:
    bridges = follow(trace_of(program, **options))
    assert not any(bridge.certain for bridge in bridges)
    return [(bridge.exit, bridge.entry, bridge.via) for bridge in bridges]


FLOWS = [
    ("v = <<x.item()>>\ny = <:torch.tensor(v):>", "`v`"),
    ("y = <:torch.tensor(<<x.item()>>):>", "the Python value"),
    ("v = <<x.item()>> * 2 + 1\ny = <:torch.tensor([v, 3.0]):>", "`v`"),
    ("total = 0\nfor x in xs:\n    total += <<x.item()>>\ny = <:torch.tensor(total):>", "`total`"),
    ("out = [<<x.item()>> for x in xs]\ny = <:torch.tensor(sum(out)):>", "`out`"),
    ("out = []\nfor x in xs:\n    out.append(<<x.item()>>)\ny = <:torch.tensor(out):>", "`out`"),
    ("d = {}\nd['a'] = <<x.item()>>\ny = <:torch.tensor(d['a']):>", "`d`"),
    ("v = <<x.item()>>\ny = <:torch.tensor(np.mean(v)):>", "`v`"),
    ("a = <<x.numpy()>>\nb = np.clip(a, 0, 1)\ny = <:torch.tensor(b):>", "`b`"),
    ("if (v := <<x.item()>>) > 3:\n    y = <:torch.tensor(v):>", "`v`"),
    ("a, b = <<x.item()>>, 3\ny = <:torch.tensor(a):>", "`a`"),
    ("def f(x):\n    return <<x.item()>>\ny = <:torch.tensor(f(x)):>", "the Python value"),
    ("def f(v):\n    return <:torch.tensor(v):>\ny = f(<<x.item()>>)", "`v`"),
    (
        (
            "def g(x):\n    return <<x.item()>>\ndef f(x):\n    t = g(x)\n    return t\n"
            "y = <:torch.tensor(f(x)):>"
        ),
        "`t`",
    ),
    (
        (
            "class A:\n    def a(self, x):\n        self.v = <<x.item()>>\n"
            "    def b(self):\n        return <:torch.tensor(self.v):>"
        ),
        "`self.v`",
    ),
    (
        (
            "class A:\n    def __init__(self, v):\n        self.v = v\n"
            "    def b(self):\n        return <:torch.tensor(self.v):>\nA(<<x.item()>>)"
        ),
        "`self.v`",
    ),
    (
        (
            "best = 0\ndef f(x):\n    global best\n    best = 1\nbest = <<x.item()>>\n"
            "def g():\n    return <:torch.tensor(best):>"
        ),
        "`best`",
    ),
    (
        (
            "def f(x):\n    v = <<x.item()>>\n    def g():\n        return <:torch.tensor(v):>\n"
            "    return g()"
        ),
        "`v`",
    ),
    ("v = 0\nwhile go():\n    w = v\n    v = <<x.item()>>\ny = <:torch.tensor(w):>", "`w`"),
    ("try:\n    v = <<x.item()>>\nexcept ValueError:\n    v = 0\ny = <:torch.tensor(v):>", "`v`"),
    ("v = <<x.item()>> if c else 0\ny = <:torch.tensor(v):>", "`v`"),
    ("for i, v in enumerate(<<x.tolist()>>):\n    y = <:torch.tensor(v):>", "`v`"),
]


@pytest.mark.parametrize(("program", "via"), FLOWS)
def test_flows(program, via):
    trace = trace_of(program)
    exit_, entry = sorted((event.operation != "item", n) for n, event in enumerate(trace.events))
    order = f"{exit_[1]}{entry[1]}"
    assert joined(program, order=order) == [(0, 1, via)]


@pytest.mark.parametrize(
    "program",
    [
        "v = <<x.item()>>\ny = <:torch.tensor(w):>",
        "v = <<x.item()>>\nv = 3\ny = <:torch.tensor(v):>",
        "v = <<x.item()>>\nif v > 3:\n    y = <:torch.tensor(1):>",
        "v = <<x.tolist()>>\ny = <:torch.tensor(len(v)):>",
        "a = <<x.numpy()>>\ny = <:torch.tensor(a.shape):>",
        "i = <<x.item()>>\ny = <:torch.tensor(names[i]):>",
        "print(<<x.item()>>)\ny = <:torch.tensor(3):>",
        "print(f'{<<x.item()>>}')\ny = <:torch.tensor(3):>",
        (
            "def f(x):\n    v = <<x.item()>>\n    return 3\n"
            "def g(v):\n    return <:torch.tensor(v):>\nf(x); g(1)"
        ),
        "for i in range(<<n.item()>>):\n    y = <:torch.tensor(i):>",
        "for i, v in enumerate(<<x.tolist()>>):\n    y = <:torch.tensor(i):>",
        "def f(v):\n    v = <<x.item()>>\nv = 3\ny = <:torch.tensor(v):>",
        "log(<<x.item()>>)\nclass A:\n    def b(self):\n        return <:torch.tensor(self.v):>",
        "v = <<x.item()>> +\ny = <:torch.tensor(v):>",
    ],
)
def test_does_not_flow(program):
    assert joined(program) == []


def test_a_number_beside_a_tensor():
    assert joined("loss = <:z + 0.1 * <<x.item()>>:>", entry="add") == [(0, 1, "the Python value")]
    assert joined("v = <<x.item()>>\n<:loss += v:>", entry="__iadd__") == [(0, 1, "`v`")]
    assert joined("v = <<x.item()>>\n<:loss[0]:> = v", entry="__setitem__") == [(0, 1, "`v`")]


def test_following_ends_where_a_tensor_is_made():
    program = "v = <<x.item()>>\nt = <:torch.tensor(v):>\nz = <:torch.tensor(t):>"
    assert joined(program) == [(0, 1, "`v`")]


def test_each_round_has_its_own():
    """A sum over three terms is joined to three exits, and each step to its own."""
    program = "total = 0\nfor x in xs:\n    total += <<x.item()>>\ny = <:torch.tensor(total):>"
    pairs = [(exit_, entry) for exit_, entry, _ in joined(program, order="00010001")]
    assert pairs == [(0, 3), (1, 3), (2, 3), (4, 7), (5, 7), (6, 7)]


def test_an_entry_after_no_new_exit_takes_the_last():
    program = "v = <<x.item()>>\nwhile go():\n    y = <:torch.tensor(v):>"
    assert [(a, b) for a, b, _ in joined(program, order="00111")] == [
        (0, 2),
        (1, 2),
        (1, 3),
        (1, 4),
    ]


def test_other_threads_and_known_bridges():
    trace = trace_of("v = <<x.item()>>\ny = <:torch.tensor(v):>")
    trace.events[1] = trace.events[1]._replace(thread=1)
    assert follow(trace) == []
    trace = trace_of("v = <<x.item()>>\ny = <:torch.tensor(v):>", order="0101")
    trace.bridges = [Bridge(0, 1, certain=True)]
    assert [(one.exit, one.entry) for one in follow(trace)] == [(2, 3)]


def test_positions_count_the_dropped():
    trace = trace_of("v = <<x.item()>>\ny = <:torch.tensor(v):>")
    trace.dropped = 10
    trace.bridges = follow(trace)
    assert trace.bridges == [Bridge(10, 11, certain=False, via="`v`")]
    check(trace)


def test_the_number_of_bridges_is_linear():
    trace = trace_of("v = <<x.item()>>\ny = <:torch.tensor(v):>", order="01" * 3000)
    assert len(follow(trace)) == 3000


def test_a_tensor_as_data_is_no_entry():
    trace = trace_of("v = <<x.item()>>\ny = <:torch.tensor(v):>")
    trace.events[1] = trace.events[1]._replace(reads=(operand(5),))
    assert follow(trace) == []


def test_two_files(tmp_path):
    trace = trace_of("from b import f\ny = f(<<x.item()>>)")
    other = "/home/me/b.py"
    trace.sites.append(Site(other, 2, 12, 2, 27))
    trace.sources[other] = "def f(v):\n    return torch.tensor(v)\n"
    trace.events.append(Event("tensor", 1, results=(operand(9),)))
    assert follow(trace) == [Bridge(0, 1, certain=False, via="`v`")]


def test_a_sum_too_long_to_walk_hides_no_other_line():
    long = "w = " + "+".join(["1"] * 2000)
    assert joined(f"v = <<x.item()>>\n{long}\ny = <:torch.tensor(v):>") == [(0, 1, "`v`")]
