"""What stands at a site. A program is written with its site between « and »."""

from __future__ import annotations

import linecache
import sys
import time
import zipfile

import pytest

from tether.facts import Site, Trace
from tether.source.annotate import annotate
from tether.source.calls import copied_text, takes_tensors_alone
from tether.source.syntax import MAX_TEXT, Source, one_line, read, source_of


def marked(program: str) -> tuple[str, Site]:
    """Return the program without its marks, and the site they mark (characters from 1)."""
    start = program.index("«")
    text = program.replace("«", "")
    end = text.index("»")
    text = text.replace("»", "")
    line, column = 1 + text[:start].count("\n"), start - text.rfind("\n", 0, start)
    end_line, end_column = 1 + text[:end].count("\n"), end - text.rfind("\n", 0, end)
    return text, Site("/home/me/m.py", line, column, end_line, end_column)


def described(program: str) -> Site:
    text, site = marked(program)
    trace = Trace(sites=[site], sources={site.file: text})
    annotate(trace)
    return trace.sites[0]


@pytest.mark.parametrize(
    ("program", "expression", "target"),
    [
        ("identity = «x.clone()»", "x.clone()", "identity"),
        ("self.h0 = «torch.zeros(3)»", "torch.zeros(3)", "self.h0"),
        ("self.h0 = nn.Parameter(«torch.zeros(3)»)", "torch.zeros(3)", "self.h0"),
        ("self.h0 = «nn.Parameter(torch.zeros(3))»", "nn.Parameter(torch.zeros(3))", "self.h0"),
        ("«h += skip»", "h += skip", "h"),
        ("h += «skip.clone()»", "skip.clone()", ""),
        ("y = «x.clone()».to(d)", "x.clone()", "y"),
        ("y = «x.data»", "x.data", "y"),
        ("y = «x.data».clone()", "x.data", "y"),
        ("y = «x.clone()».sum()", "x.clone()", ""),
        ("y = «torch.empty(3)».normal_()", "torch.empty(3)", "y"),
        ("loss = («a - b») ** 2", "a - b", ""),
        ("loss = f(«x.detach()»)", "x.detach()", ""),
        ("a, b = x.clone(), «y.detach()»", "y.detach()", "b"),
        ("a, b = «x.topk(3)»", "x.topk(3)", "a, b"),
        ("a = b = «x.clone()»", "x.clone()", "a"),
        ("a: Tensor = «x.clone()»", "x.clone()", "a"),
        ("if (y := «x.clone()») is not None: pass", "x.clone()", "y"),
        ("y = «x.clone()» if c else x", "x.clone()", "y"),
        ("y = x if «x.any()» else z", "x.any()", ""),
        ("y = await «f(x)»", "f(x)", "y"),
        ("for y in «x.unbind()»: pass", "x.unbind()", ""),
        ("with «torch.no_grad()» as g: pass", "torch.no_grad()", ""),
        ("y = {k: «v.clone()» for k, v in d}", "v.clone()", ""),
        ("y = [«v.clone()»]", "v.clone()", ""),
        ("return_ = f(x=«v.clone()»)", "v.clone()", ""),
        ("def f(): return «x.clone()»", "x.clone()", ""),
        ("«x.data» = y", "x.data", "x.data"),
        ("«x[0]» = y", "x[0]", "x[0]"),
        ("ü = 'äö', 1; 你 = «é.clone()»", "é.clone()", "你"),
        ("y = (x  # the input\n   .«relu()\n   .detach()»)", "x.relu().detach()", "y"),
        ("y = «torch.cat([  # both\n    a,\n    b,\n])»", "torch.cat([a, b,])", "y"),
        ("\f\ny = 1\ny = «x.clone()»", "x.clone()", "y"),
        ("y = '\u2028'\ny = «x.clone()»", "x.clone()", "y"),
        ("y = «x.clone()» +", "x.clone()", ""),
    ],
)
def test_expression_and_target(program, expression, target):
    site = described(program)
    assert (site.expression, site.target) == (expression, target)


def test_what_the_interpreter_says(tmp_path, monkeypatch):
    """Columns as `co_positions` gives them, of calls, operators, attributes, in any encoding."""
    path = tmp_path / "program.py"
    text = (
        "# -*- coding: latin-1 -*-\n"
        "def run(ä, note):\n"
        "    é = ä.upper().lower()\n"
        "    long = (ä\n"
        "        .upper()  # first\n"
        "        .strip())\n"
        "    ä += é\n"
        "    return long\n"
    )
    path.write_bytes(text.encode("latin-1"))
    space: dict[str, object] = {}
    code = compile(path.read_bytes(), str(path), "exec")
    exec(code, space)
    function = space["run"].__code__
    sites = []
    import dis

    for instruction in dis.get_instructions(function):
        where = instruction.positions
        if instruction.opname in ("CALL", "BINARY_OP"):
            line, end = (text.split("\n")[n - 1].encode() for n in (where.lineno, where.end_lineno))
            sites.append(
                Site(
                    str(path),
                    where.lineno,
                    len(line[: where.col_offset].decode()) + 1,
                    where.end_lineno,
                    len(end[: where.end_col_offset].decode()) + 1,
                )
            )
    trace = Trace(sites=sites)
    annotate(trace)
    assert [(site.expression, site.target) for site in trace.sites] == [
        ("ä.upper()", ""),
        ("ä.upper().lower()", "é"),
        ("ä.upper()", ""),
        ("ä.upper().strip()", "long"),
        ("ä += é", "ä"),
    ]
    assert trace.sources == {str(path): text}


def test_code_without_a_file(monkeypatch):
    text = "y = x.clone()\n"
    monkeypatch.setitem(linecache.cache, "<cell 3>", (len(text), None, [text], "<cell 3>"))
    command = "import torch\n"  # as Python 3.13 has it of `python -c`
    monkeypatch.setitem(linecache.cache, "<string>", (len(command), None, [command], "<string>"))
    here, nowhere = Site("<cell 3>", 1, 5, 1, 14), Site("<string>", 1, 5, 1, 14)
    trace = Trace(sites=[here, nowhere])
    annotate(trace)
    assert trace.sites[0].target == "y"
    assert trace.sites[1] == nowhere
    assert set(trace.sources) == {"<cell 3>"}


def test_module_in_a_zip_archive(tmp_path, monkeypatch):
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as handle:
        handle.writestr("zipped_module.py", "value = make(1)\n")
        handle.writestr("unused.py", "")
    monkeypatch.syspath_prepend(str(archive))
    monkeypatch.setattr("builtins.make", lambda x: x, raising=False)
    import zipped_module

    try:
        assert read(zipped_module.__file__) == "value = make(1)\n"
    finally:
        del sys.modules["zipped_module"]


def test_sources_of_libraries_are_not_kept(tmp_path):
    path = tmp_path / "lib.py"
    path.write_text("y = x.clone()\n")
    trace = Trace(sites=[Site(str(path), 1, 5, 1, 14, user=False)])
    annotate(trace)
    assert trace.sites[0].expression == "x.clone()"
    assert trace.sources == {}


@pytest.mark.parametrize("content", [b"\x00\xff\xfe", b"# coding: nonsense\nx\n", b"\xff\n" * 9])
def test_a_file_that_is_no_text(tmp_path, content):
    path = tmp_path / "odd.py"
    path.write_bytes(content)
    trace = Trace(sites=[Site(str(path), 1, 1, 1, 2)])
    annotate(trace)
    assert trace.sites[0].target == ""


@pytest.mark.parametrize(
    "place", [(0, 0, 0, 0), (9, 1, 9, 2), (1, 1, 9, 2), (1, 500, 1, 900), (-1, -1, -1, -1), (2, 0)]
)
def test_places_that_are_not_there(place):
    trace = Trace(sites=[Site("/m.py", *place)], sources={"/m.py": "y = x.clone()\n"})
    annotate(trace)
    assert trace.sites[0].target == ""


def test_a_source_too_large_and_one_too_deep(tmp_path):
    path = tmp_path / "data.py"
    path.write_text("x = 1\n" * (MAX_TEXT // 6 + 1))
    assert read(str(path)) == ""
    assert Source("x = " + "(" * 5000 + ")" * 5000).tree is None


def test_twenty_thousand_lines():
    """Annotating 2,000 sites of a file of 20,000 lines takes seconds, not minutes."""
    text = "".join(f"def f{n}(x):\n    y{n} = x.clone().detach()\n" for n in range(10_000))
    sites = [
        Site("/m.py", 2 * n + 2, 9 + len(str(n)), 2 * n + 2, 18 + len(str(n)))
        for n in range(0, 10_000, 5)
    ]
    trace = Trace(sites=sites, sources={"/m.py": text})
    began = time.perf_counter()
    annotate(trace)
    assert time.perf_counter() - began < 20
    assert {site.expression for site in trace.sites} == {"x.clone()"}
    assert [site.target for site in trace.sites] == [f"y{n}" for n in range(0, 10_000, 5)]


def test_source_is_kept():
    assert source_of("/a.py", "x = 1") is source_of("/a.py", "x = 1")
    assert source_of("/a.py", "x = 1") is not source_of("/a.py", "x = 2")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n  + b", "a + b"),
        ("f(  # why\n  a,\n  'x  # y'\n)", "f(a, 'x  # y')"),
        ("f('''a\nb''')", "f('''a\nb''')"),
        ("f(", "f("),
    ],
)
def test_one_line(text, line):
    assert one_line(text) == line


@pytest.mark.parametrize(
    ("operation", "text", "copied"),
    [
        ("clone", "x.clone()", "x"),
        ("clone", "torch.clone(x)", "x"),
        ("tensor", "th.tensor(array)", "array"),
        ("as_tensor", "th.as_tensor(rows[0])", "rows[0]"),
        ("new_tensor", "x.new_tensor(array)", "array"),
        ("copy_", "kept['x'].copy_(x.data)", "x.data"),
        ("copy_", "y.copy_(x, True)", "x"),
        ("_foreach_copy_", "torch._foreach_copy_(kept, xs)", "xs"),
        ("fill_", "x.fill_(0.5)", "x"),
    ],
)
def test_what_a_call_copies_is_its_argument_or_its_owner(operation, text, copied):
    assert copied_text(operation, text) == copied


@pytest.mark.parametrize(
    ("operation", "text", "count", "alone"),
    [
        ("sub", "upper - upper.T", 2, True),
        ("mul", "x * (n / 30)", 1, False),
        ("pow", "x ** 2", 1, True),
        ("linalg_svd", "torch.linalg.svd(x, full_matrices=False)", 1, True),
        ("stack", "torch.stack(parts)", 7, True),
        ("stack", "torch.stack(parts, dim)", 7, False),
        ("cat", "torch.cat([x, y], dim=-1)", 2, True),
        ("pad", "F.pad(x, (a, 0))", 1, False),
        ("add", "torch.add(*both)", 2, False),
        ("linear", "layer(x)", 3, False),
        ("__getitem__", "x[n]", 1, False),
    ],
)
def test_whether_a_call_is_given_a_number_that_may_change(operation, text, count, alone):
    assert takes_tensors_alone(operation, text, count) is alone


@pytest.mark.parametrize(
    ("text", "copied"),
    [
        ("x.clone()", "x"),
        ("torch.clone(x)", "x"),
        ("self.torch.clone(x)", "x"),
        ("points.F.clone()", "points.F"),
        ("self.net.weight.clone()", "self.net.weight"),
    ],
)
def test_what_a_call_copies_is_no_module(text, copied):
    assert copied_text("clone", text) == copied
