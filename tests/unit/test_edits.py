"""Repairs as edits: the text changes where it must, and nowhere else."""

import ast
import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tether.facts import Site
from tether.finding import Edit, Evidence, Finding, Fix
from tether.source.edits import apply, by_file, diff, mended
from tether.source.syntax import Source

# slug, operation, the text with the place of the finding in « », the text after the repair
REPAIRS = [
    ("needless-copy", "clone", "y = «x.clone()»", "y = x"),
    ("needless-copy", "clone", "y = «torch.clone(x[:t + 1])» @ q", "y = x[:t + 1] @ q"),
    ("needless-copy", "clone", "y = «(a + b).clone()» * 2", "y = (a + b) * 2"),
    ("needless-copy", "clone", "y = «torch.clone(a + b)» * 2", "y = (a + b) * 2"),
    ("needless-copy", "clone", "y = «((a + b)).clone()».sum()", "y = ((a + b)).sum()"),
    ("needless-copy", "clone", "y = f(«x.clone()», 1)  # why", "y = f(x, 1)  # why"),
    ("needless-copy", "clone", "y = «x.clone(memory_format=f)»", "y = x"),
    (
        "needless-copy",
        "clone",
        "y = («x  # the input\n     .detach()\n     .clone()»)",
        "y = ((x  # the input\n     .detach()))",
    ),
    ("needless-copy", "contiguous", "z = «x.t().contiguous()».amax(1)", "z = x.t().amax(1)"),
    ("needless-copy", "__deepcopy__", "s = «copy.deepcopy(m.state_dict())»", "s = m.state_dict()"),
    ("needless-copy", "tensor", "y = «torch.tensor(x)»", "y = x.detach()"),
    ("needless-copy", "new_tensor", "y = «x.new_tensor(z)»", "y = z.detach()"),
    ("needless-copy", "to", "y = «x.to(d, copy=True)»", "y = x.to(d)"),
    ("needless-copy", "to", "y = «x.to(copy=True, dtype=d)»", "y = x.to(dtype=d)"),
    ("needless-copy", "copy_", "y = «torch.empty_like(x).copy_(x)»", "y = x"),
    ("needless-copy", "clone", "y = «é.clone()»  # ü", "y = é  # ü"),
    ("gradient-cut", "detach", "y = «x.detach()» * 2", "y = x * 2"),
    ("gradient-cut", "data.__get__", "y = «x.data» * 2", "y = x * 2"),
    ("gradient-cut", "detach", "x = x * 2\nx = «x.detach()»  # why\ny = x", "x = x * 2\ny = x"),
    ("gradient-cut", "detach", "if a:\n    h.x = (\n        «h.x.detach()»\n    )\n    b()", "if a:\n    b()"),
    ("gradient-cut", "detach", "if a:\n    x = «x.detach()»\nb()", "if a:\n    pass\nb()"),
    ("gradient-cut", "detach", "a(); x = «x.detach()»; b()", "a(); pass; b()"),
    ("gradient-cut", "detach", "f().x = «f().x.detach()»", "f().x = f().x"),
    ("gradient-cut", "detach", "x = y = «x.detach()»", "x = y = x"),
    ("gradient-cut", "detach", "class A:\n    x = «x.detach()»", "class A:\n    x = x"),
    ("needless-copy", "tensor", "x = «torch.tensor(x)»", "x = x.detach()"),
    ("gradient-cut", "item", "l = «loss.item()» + r", "l = loss + r"),
    ("alias-write", "detach", "b = «w.detach()»", "b = w.detach().clone()"),
    ("alias-write", "copy_", "«kept.append(out)»", "kept.append(out.clone())"),
    ("alias-write", "copy_", "f(«out.copy_(x)»)", "f(out.copy_(x).clone())"),
    ("alias-write", "numpy", "a = «w.numpy()»", "a = w.numpy().copy()"),
    ("alias-write", "from_numpy", "a = «torch.from_numpy(a)»", "a = torch.from_numpy(a).clone()"),
    (
        "alias-write",
        "detach",
        '"""Doc."""\nimport torch\nbest = «m.state_dict()»',
        '"""Doc."""\nimport copy\nimport torch\nbest = copy.deepcopy(m.state_dict())',
    ),
    (
        "alias-write",
        "detach",
        "import copy\nbest = «m.state_dict()»",
        "import copy\nbest = copy.deepcopy(m.state_dict())",
    ),
    ("storage-pinned", "__getitem__", "h = «x[:10]»", "h = x[:10].clone()"),
    ("saved-overwritten", "__iadd__", "«x += y»", "x = x + y"),
    ("saved-overwritten", "__imul__", "«self.x *= y + 1»  # scaled", "self.x = self.x * (y + 1)  # scaled"),
    ("saved-overwritten", "__isub__", "«x -= (y + 1)»", "x = x - (y + 1)"),
    ("saved-overwritten", "add_", "«x.add_(y)»", "x = x.add(y)"),
    ("saved-overwritten", "relu_", "y = f(«x.relu_()»)", "y = f(x.relu())"),
    ("saved-overwritten", "relu", "y = «F.relu(x, inplace=True)»", "y = F.relu(x)"),
    ("saved-overwritten", "elu", "«F.elu(x, inplace=True)»", "x = F.elu(x)"),
    ("saved-overwritten", "elu_", "«F.elu_(self.x, 1.0)»  # a", "self.x = F.elu(self.x, 1.0)  # a"),
    ("saved-overwritten", "elu", "«F.elu(f(x), inplace=True)»", None),
    ("graph-retained", "__iadd__", "«total += loss»", "total += loss.detach()"),
    ("graph-retained", "__iadd__", "«total += a * b»", "total += (a * b).detach()"),
    ("unsynchronized-read", "to", "h = «x.to('cpu', non_blocking=True)»", "h = x.to('cpu')"),
    # nothing that an edit could do
    ("needless-copy", "clone", "y = «x.copy()»", None),
    ("needless-copy", "clone", "y = «torch.clone(*x)»", None),
    ("needless-copy", "clone", "y = «f»(x)", None),
    ("saved-overwritten", "__setitem__", "«x[0] = y»", None),
    ("gradient-cut", "round", "y = «x.round()»", None),
]  # fmt: skip

ACTIONS = {"graph-retained": "detach", "storage-pinned": "clone"}
"""What a claim asks of the text itself; of the other verdicts `mended` knows it."""


def placed(marked):
    """Return a text without its marks, and the site between them."""
    before, _, rest = marked.partition("«")
    inside, _, after = rest.partition("»")
    line, end_line = before.count("\n") + 1, (before + inside).count("\n") + 1
    column = len(before.rpartition("\n")[2]) + 1
    end_column = len((before + inside).rpartition("\n")[2]) + 1
    return before + inside + after, Site("/p.py", line, column, end_line, end_column)


def finding(slug, operation, site, *, safe=False):
    where = (Evidence("written", site, "written"),) if slug == "saved-overwritten" else ()
    return Finding(slug, "warning", "x", site, operation, "", evidence=where,
                   fix=Fix("Do it.", safe=safe, action=ACTIONS.get(slug, "")))  # fmt: skip


@pytest.mark.parametrize(("slug", "operation", "marked", "after"), REPAIRS)
def test_a_repair(slug, operation, marked, after):
    text, site = placed(marked)
    edits = mended(finding(slug, operation, site), Source(text)).fix.edits
    if after is None:
        assert not edits
        return
    assert apply(text, edits) == after
    ast.parse(after)


def test_line_ends_and_the_rest_of_the_file_stay():
    text, site = placed("# a\r\n\r\ny = «x.clone()»\t \r\nz = 1")
    edits = mended(finding("needless-copy", "clone", site), Source(text)).fix.edits
    assert apply(text, edits) == "# a\r\n\r\ny = x\t \r\nz = 1"


def test_edits_that_overlap_are_made_once():
    outer = Edit("p", 1, 1, 1, 10, "a")
    inner = Edit("p", 1, 3, 1, 5, "b")
    assert apply("0123456789", [outer, inner]) == "a9"
    assert apply("0123456789", [outer, outer]) == "a9"


@given(st.text(alphabet="ab\n\r\x0c\u2028é", max_size=30), st.integers(0, 29), st.integers(0, 29))
def test_a_place_is_found_in_any_text(text, first, last):
    """Lines are Python's own: a carriage return ends one, a form feed does not."""
    first, last = sorted((min(first, len(text)), min(last, len(text))))
    if "\r\n" in (text[first - 1 : first + 1], text[last - 1 : last + 1]):
        return

    def place(at):
        before = text[:at].replace("\r\n", "\n").replace("\r", "\n")
        return before.count("\n") + 1, len(before.rpartition("\n")[2]) + 1

    edit = Edit("p", *place(first), *place(last), "X")
    assert apply(text, [edit]) == text[:first] + "X" + text[last:]


def test_a_diff_is_what_patch_takes():
    assert (
        diff("p.py", "a\nb\n", "a\nc\n") == "--- a/p.py\n+++ b/p.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [("a = 1", "a = 2"), ("a\nb", "a\nb\n"), ("a\n", "a"), ("a\x0cb\n", "c\x0cb\n"), ("", "a")],
)
@pytest.mark.skipif(shutil.which("patch") is None, reason="needs patch")
def test_patch_itself_takes_a_diff(tmp_path, before, after):
    (tmp_path / "p.py").write_text(before)
    command = ["patch", "--silent", "-p1"]
    subprocess.run(command, input=diff("p.py", before, after), cwd=tmp_path, text=True, check=True)
    assert (tmp_path / "p.py").read_text() == after


@pytest.mark.parametrize(
    "head", ["", '"""What it is."""\n', "from __future__ import annotations\n",
             '"""What it is."""\n\nfrom __future__ import annotations\n', "import torch\n"],
)  # fmt: skip
def test_an_import_comes_where_python_takes_it(head):
    text, site = placed(head + "best = «model.state_dict()»\n")
    edits = mended(finding("alias-write", "state_dict", site), Source(text)).fix.edits
    changed = apply(text, edits)
    compile(changed, "p.py", "exec")
    assert "import copy\n" in changed
    assert "copy.deepcopy(" in changed
    assert ast.get_docstring(ast.parse(changed)) == ast.get_docstring(ast.parse(text))


def test_unsafe_edits_are_made_when_asked_for():
    text, site = placed("y = «x.clone()»")
    unsafe = mended(finding("needless-copy", "clone", site), Source(text))
    safe = mended(finding("needless-copy", "clone", site, safe=True), Source(text))
    assert by_file([unsafe], unsafe=False) == {}
    assert by_file([unsafe], unsafe=True) == by_file([safe], unsafe=False) != {}
