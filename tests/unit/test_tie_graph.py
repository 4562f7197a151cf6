"""The drawn ties: what is a node, where gradients came back, what is folded, where it stands."""

from __future__ import annotations

import itertools
import re

import pytest
from traces import trace

from tether.analysis.history import History
from tether.facts import RAISED, Name
from tether.finding import Evidence, Finding
from tether.report.document.findings import Findings
from tether.report.page import folded_graph
from tether.report.page.layered import DEPTH, GAP, placed
from tether.report.page.tie_drawing import tie_picture
from tether.report.page.tie_graph import Owners, tie_graph
from tether.report.page.tie_nodes import FlowEdge, TieGraph
from tether.report.tables.gradients import gradients


def about(program: str, cut: int = 0, tensors: tuple[int, ...] = (), **modules: str) -> Findings:
    """Return the report of a program; `cut` is the line at which a finding says it is cut.

    `modules` say of which module each parameter is.
    """
    made = trace(*program.strip().splitlines())
    made.names = [
        fact._replace(name=f"{modules[fact.name]}.weight", module=modules[fact.name])
        if fact.name in modules
        else fact
        for fact in made.names
    ]
    found = []
    if cut:
        site = made.sites[cut - 1]
        evidence = (Evidence("cut", site, "cut here"),)
        found = [Finding("gradient-cut", "warning", "w", site, "detach", "It is cut.",
                         evidence=evidence, tensors=tensors)]  # fmt: skip
    return Findings(made, found, gradients(History(made), found))


CUT = """
w = param w
u = param u
x = data
h = mul w x
d = detach h
o = mul u d
backward o
step w=none u=some
"""


def test_values_go_and_gradients_come_back_as_far_as_the_cut():
    graph = tie_graph(about(CUT, 5, (0,), w="net.a", u="net.b"))
    ways = {(a[1], b[0], b[1] if b[0] == "module" else ""): live for a, b, live in graph.flow}
    assert ways == {
        ("net.a", "cut", ""): False,
        ("1", "module", "net.b"): False,
        ("net.b", "loss", ""): True,
    }
    severities = {node.key[1]: node.severity for node in graph.nodes.values()}
    assert severities["net.a"] == "warning"
    assert severities["net.b"] == ""


def test_without_a_finding_nothing_is_told_and_all_is_live():
    program = CUT.replace("d = detach h", "d = mul h x").replace("w=none", "w=some")
    graph = tie_graph(about(program, w="net.a", u="net.b"))
    assert all(edge.live for edge in graph.flow)
    assert {node.severity for node in graph.nodes.values()} == {""}


def chain(count: int) -> str:
    lines = [f"w{n} = param w{n}" for n in range(count)] + ["x = data", "h0 = mul w0 x"]
    lines += [f"h{n} = mul w{n} h{n - 1}" for n in range(1, count)]
    return "\n".join([*lines, f"backward h{count - 1}"])


def test_layers_that_fared_alike_are_one_node_and_few_are_not():
    names = {f"w{n}": f"net.layers.{n}" for n in range(20)}
    graph = tie_graph(about(chain(20), **names))
    assert next(node.label for node in graph.nodes.values()) == "net.layers.[0-19] \u00d720"
    assert len(graph.flow) == 1
    few = tie_graph(about(chain(3), **{f"w{n}": f"net.layers.{n}" for n in range(3)}))
    assert len(few.nodes) == 4


def test_the_odd_layer_stands_alone():
    steps = "\nstep " + " ".join(f"w{n}=" + ("none" if n == 7 else "some") for n in range(20))
    names = {f"w{n}": f"net.layers.{n}" for n in range(20)}
    made = about(chain(20) + steps, 1, (7,), **names)
    labels = [node.label for node in tie_graph(made).nodes.values()]
    assert labels[:3] == [
        "net.layers.[0-6] \u00d77", "net.layers.7", "net.layers.[8-19] \u00d712",
    ]  # fmt: skip


RESIDUAL = """
w = param w
u = param u
x = data
h = mul w x
d = detach h
o = mul u d
s = add o h
backward s
"""


def test_a_live_way_beside_a_cut_is_drawn():
    graph = tie_graph(about(RESIDUAL, 5, w="net.a", u="net.b"))
    ways = {(a[1] if a[0] != "cut" else "cut", b[0]): live for a, b, live in graph.flow}
    assert ways == {
        ("net.a", "cut"): False, ("cut", "module"): False, ("net.b", "loss"): True,
        ("net.a", "loss"): True,
    }  # fmt: skip


def test_of_many_edges_a_way_around_of_the_same_kind_is_left_out():
    lines = [f"w{n} = param w{n}" for n in range(8)] + ["x = data", "s0 = mul w0 x"]
    for n in range(1, 8):
        lines += [f"h{n} = mul w{n} s{n - 1}", f"s{n} = add s{n - 1} h{n}"]
    program = "\n".join([*lines, "backward s7"])
    graph = tie_graph(about(program, **{f"w{n}": f"net.part{'abcdefgh'[n]}" for n in range(8)}))
    assert len(graph.nodes) == 9
    assert len(graph.flow) == 8


def test_where_no_gradient_was_seen_none_is_drawn():
    """The graph alone says that one comes; a custom backward kept it back."""
    program = CUT.replace("d = detach h", "d = mul h x")
    graph = tie_graph(about(program, w="net.a", u="net.b"))
    assert {(a[1], live) for a, _, live in graph.flow} == {("net.a", False), ("net.b", True)}


def test_of_a_backward_pass_that_raised_no_gradient_came_back():
    made = about(CUT.replace("d = detach h", "d = mul h x"), w="net.a", u="net.b")
    position = made.history.backwards[0]
    made.trace.events[position] = made.trace.events[position]._replace(flags=RAISED)
    graph = tie_graph(Findings(made.trace, []))
    assert not any(edge.live for edge in graph.flow)
    assert any(node.label.endswith(" raised") for node in graph.nodes.values())


def test_memory_that_a_finding_speaks_of_is_a_tie():
    program = """
w = param w
x = data
d = detach w
o = mul w x
backward o
add_ w x
clone d
"""
    made = about(program, w="net.a")
    shared, written = made.trace.sites[2], made.trace.sites[5]
    tensor = made.history.events[2].results[0].tensor
    made.trace.names.append(Name(tensor, "best['a']", 0))
    evidence = (Evidence("shared", shared, ""), Evidence("written", written, ""))
    made.findings = [Finding("alias-write", "warning", "best", shared, "detach", "It is one.",
                             evidence=evidence, tensors=(tensor,))]  # fmt: skip
    graph = tie_graph(Findings(made.trace, made.findings))
    (tie,) = graph.memory
    assert (tie.one[1], tie.other[1], tie.tensors, tie.findings) == ("best", "net.a", 1, (1,))
    assert graph.nodes["tensor", "best"].severity in ("", "warning")


# -- layout ----------------------------------------------------------------------------------


def test_an_expression_is_a_node_of_its_own():
    owners = Owners(History(trace("x = data")))
    assert owners.called("best['w'].bias") == ("tensor", "best")
    assert owners.called("`canvas.expand(4, -1)`") == ("tensor", "canvas.expand(4, -1)")
    assert owners.called(f"`torch.stack({'rows, ' * 9})`")[1] == "torch.stack(rows, rows, r…"


@pytest.mark.parametrize("count", [2, 7, 30])
def test_nodes_of_a_layer_do_not_overlap_and_edges_lead_down(count):
    names = [f"n{n}" for n in range(count)]
    edges = [(a, b) for n, (a, b) in enumerate(itertools.combinations(names, 2)) if n % 3 == 0]
    drawn = placed(dict.fromkeys(names, 80.0), edges)
    for a, b in itertools.combinations(names, 2):
        one, other = drawn.nodes[a], drawn.nodes[b]
        assert one.y != other.y or abs(one.x - other.x) >= 80 + GAP - 0.01
    for a, b in edges:
        way = drawn.edges[a, b]
        assert (way[0], way[-1]) == (drawn.nodes[a], drawn.nodes[b])
        assert {two.y - one.y for one, two in itertools.pairwise(way)} == {DEPTH}


def test_what_leads_back_is_drawn_too():
    drawn = placed({"a": 10.0, "b": 10.0}, [("a", "b"), ("b", "a"), ("a", "a")])
    assert drawn.edges["b", "a"] == drawn.edges["a", "b"][::-1]


def test_the_drawing_has_links_words_and_no_style_of_its_own():
    made = about(CUT, 5, (0,), w="net.<b>", u="net.b")
    picture = tie_picture(tie_graph(made), lambda site: f"s0-{site.line}")
    assert 'href="#s0-4"' in picture.svg
    assert "net.&lt;b&gt;" in picture.svg
    assert "style=" not in picture.svg
    assert re.search(r'class="node cut w" data-n="1"', picture.svg)
    assert tie_picture(tie_graph(about("x = data")), lambda _: "") is None


def test_of_two_edges_into_a_ring_one_stays():
    """Beside either of them a longer way leads there: over the other one."""
    line = [FlowEdge(("", f"m{n}"), ("", f"m{n + 1}"), True) for n in range(20)]
    into = [FlowEdge(("", "m20"), ("", one), True) for one in "bc"]
    ring = [FlowEdge(("", one), ("", other), True) for one, other in ("bc", "cb")]
    graph = TieGraph(flow=[*line, *into, *ring])
    kept = folded_graph.reduced(graph).flow
    assert kept[:20] == line
    assert len([one for one in into if one in kept]) == 1
    reached = folded_graph._reached({("", "m0")}, [one[:2] for one in kept])
    assert {("", "b"), ("", "c")} <= reached
