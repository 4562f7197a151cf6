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


FIELDS = [
    # A field of a container comes out by its place alone.
    "t = (<<x.item()>>, 3.0)\na, b = t\ny = <:torch.tensor({}):>",
    "t = [<<x.item()>>, 3.0]\na, b = t[0], t[1]\ny = <:torch.tensor({}):>",
    "t = dict()\nt['a'] = <<x.item()>>\nt['b'] = 3.0\na, b = t['a'], t['b']\ny = <:torch.tensor({}):>",
    "t = {{'a': <<x.item()>>, 'b': 3.0}}\na, b = t['a'], t['b']\ny = <:torch.tensor({}):>",
    "t = []\nt.append((<<x.item()>>, 3.0))\nfor a, b in t:\n    y = <:torch.tensor({}):>",
    "t = []\nt.append((<<x.item()>>, 3.0))\na, b = zip(*t)\ny = <:torch.tensor({}):>",
    "t = [(<<x.item()>>, 3.0)]\na = [p for p, q in t]\nb = [q for p, q in t]\ny = <:torch.tensor({}):>",
    "t = [<<x.item()>>]\nfor a, b in zip(t, [1.0]):\n    y = <:torch.tensor({}):>",
    "t = [<<x.item()>>]\nfor i, (a, b) in enumerate(zip(t, [1.0])):\n    y = <:torch.tensor({}):>",
    "t = list((<<x.item()>>, 3.0))\na, *b = t[0], 2\ny = <:torch.tensor({}):>",
    (
        "class A:\n    def __init__(self):\n        self.t = []\n"
        "    def put(self, step):\n        self.t.append(step)\n"
        "    def get(self):\n        first, second = [], []\n"
        "        for one in self.t:\n            p, q = one\n            first.append([p])\n"
        "            second.append([q])\n        return first, second\n"
        "m = A()\nm.put((<<x.item()>>, 3.0))\na, b = m.get()\ny = <:torch.tensor({}):>"
    ),
    "def f(*t):\n    return t\na, b = f(<<x.item()>>, 3.0)\ny = <:torch.tensor({}):>",
    "def f(**t):\n    return t\nt = f(p=<<x.item()>>, q=1)\na, b = t['p'], t['q']\ny = <:torch.tensor({}):>",
    "def f(p, q):\n    return q, p\nb, a = f(*(<<x.item()>>, 3.0))\ny = <:torch.tensor({}):>",
    "def f(p, q):\n    return q, p\nb, a = f(**dict_of)\na = <<x.item()>>\ny = <:torch.tensor({}):>",
]


@pytest.mark.parametrize("program", FIELDS)
def test_a_field_comes_out_of_its_place(program):
    trace = trace_of(program.format("a"))
    assert [(one.exit, one.entry, one.doubtful) for one in follow(trace)] == [(0, 1, False)]
    assert joined(program.format("b")) == []


@pytest.mark.parametrize(
    "program",
    [
        "t = Step(<<x.item()>>, b)\ny = <:torch.tensor(t.b):>",
        "t = Step(<<x.item()>>, b)\np, q = t\ny = <:torch.tensor(q):>",
        "t = [(<<x.item()>>, b)]\np, q = shuffled(t)[0]\ny = <:torch.tensor(q):>",
        "t = [(<<x.item()>>, b)]\nfor step in sample(t, 3):\n    y = <:torch.tensor(step[1]):>",
        "t = (<<x.item()>>, b)\nfor i in range(2):\n    y = <:torch.tensor(t[i]):>",
        "t = (<<x.item()>>, b) + (1,)\ny = <:torch.tensor(t[1]):>",
        "t = (0.0, <<x.item()>>)\ny = <:torch.tensor(t[-1]):>",
        "t = (((((<<x.item()>>, 1), 2), 3), 4), 5)\ny = <:torch.tensor(t[0][0][0][0][1]):>",
    ],
)
def test_which_field_it_is_may_not_be_known(program):
    assert [(one.exit, one.entry, one.doubtful) for one in follow(trace_of(program))] == [
        (0, 1, True)
    ]


@pytest.mark.parametrize(
    "program",
    [
        "try:\n    v = <<x.item()>>\n    w = int(name)\nexcept ValueError:\n    y = <:torch.tensor(v):>",
        (
            "try:\n    for x in xs:\n        v = <<x.item()>>\n        check(v)\n        v = 0\n"
            "except ValueError:\n    y = <:torch.tensor(v):>"
        ),
        (
            "try:\n    try:\n        v = <<x.item()>>\n    finally:\n        v, w = 0, v\n"
            "except ValueError:\n    y = <:torch.tensor(w):>"
        ),
        "try:\n    v = <<x.item()>>\n    v = int(n)\nfinally:\n    y = <:torch.tensor(v):>",
        "v = 0\ntry:\n    pass\nexcept E:\n    v = 1\nelse:\n    v = <<x.item()>>\ny = <:torch.tensor(v):>",
    ],
)
def test_what_a_try_had_come_to(program):
    assert joined(program, order="01")[0][:2] == (0, 1)


@pytest.mark.parametrize(
    "program",
    [
        "try:\n    f()\nexcept E:\n    y = <:torch.tensor(v):>\nv = <<x.item()>>",
        "try:\n    f()\nexcept E:\n    y = <:torch.tensor(v):>\nelse:\n    v = <<x.item()>>",
        "v = <<x.item()>>\nv = 1\ntry:\n    f()\nexcept E:\n    y = <:torch.tensor(v):>",
        "try:\n    v = <<x.item()>>\nfinally:\n    v = 0\ny = <:torch.tensor(v):>",
    ],
)
def test_what_a_try_had_not_come_to(program):
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
    # By which call `f` was reached the trace does not say.
    assert follow(trace) == [Bridge(0, 1, certain=False, via="`v`", doubtful=True)]


def test_a_sum_too_long_to_walk_hides_no_other_line():
    long = "w = " + "+".join(["1"] * 2000)
    assert joined(f"v = <<x.item()>>\n{long}\ny = <:torch.tensor(v):>") == [(0, 1, "`v`")]


def test_too_many_ways_are_not_told_apart():
    """The value is found, and that another caller's may have come instead."""
    functions = "".join(
        f"def f{n}(v):\n    return v + " + " + ".join(f"f{(n + k) % 12}(v)" for k in (1, 2, 3, 5)) + "\n"
        for n in range(12)
    )  # fmt: skip
    found = follow(trace_of(f"{functions}y = <:torch.tensor(f0(<<x.item()>>)):>", order="01"))
    assert [(one.exit, one.entry, one.doubtful) for one in found] == [(0, 1, True)]
    few = "def f(v):\n    return v + g(v)\ndef g(v):\n    return v + f(v)\n"
    found = follow(trace_of(f"{few}y = <:torch.tensor(f(<<x.item()>>)):>", order="01"))
    assert [(one.exit, one.entry, one.doubtful) for one in found] == [(0, 1, False)]
