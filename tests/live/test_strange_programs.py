"""Programs in strange clothes: the report names the right line, and nothing falls over."""

import json
import os
import zipfile

import pytest

import warm

CUT = """\
import torch
w = torch.ones(3, requires_grad=True)
b = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([w, b], lr=0.1)
def step():
    opt.zero_grad()
    größe = w.detach(); loss = (größe * b).sum()
    loss.backward()
    opt.step()
for _ in range(2):
    step()
print("done")
"""


def python(folder, *arguments, strict=True):
    """Run Python as a user does; the outputs are bytes."""
    environment = {**os.environ, "TETHER_STRICT": "1" if strict else ""}
    return warm.python(*arguments, folder=folder, env=environment, text=False)


def both(folder, *program):
    """Run bare and recorded; assert that they show the same; return the JSON report."""
    bare = python(folder, *program)
    told = python(folder, "-m", "tether", "run", "-q", "--json", "out.json", *program)
    assert told.stdout == bare.stdout
    assert told.stderr == bare.stderr
    assert told.returncode == bare.returncode
    return json.loads((folder / "out.json").read_text("utf-8"))


def the_cut(report):
    (finding,) = [one for one in report["findings"] if one["slug"] == "gradient-cut"]
    return finding


def assert_at(report, file, expression="w.detach()"):
    finding = the_cut(report)
    assert finding["subject"] == "w"
    assert (finding["site"]["file"], finding["site"]["line"]) == (file, 7)
    assert expression in json.dumps(finding, ensure_ascii=False)


@pytest.mark.parametrize(
    ("encoding", "cookie"),
    [("latin-1", "# -*- coding: latin-1 -*-"), ("utf-8-sig", ""), ("utf-8", ""),
     ("cp1252", "# vim: set fileencoding=cp1252 :"), ("euc-jp", "# coding: euc-jp")],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_encodings_and_line_ends(tmp_path, encoding, cookie, newline):
    text = CUT if encoding != "euc-jp" else CUT.replace("größe", "大きさ")
    if cookie:
        text = text.replace("import torch\n", cookie + "\nimport torch\n").replace(
            "b = torch.zeros(3, requires_grad=True)\nopt",
            "b = torch.zeros_like(w).requires_grad_(); opt",
        )
    (tmp_path / "train.py").write_bytes(text.replace("\n", newline).encode(encoding))
    report = both(tmp_path, "train.py")
    assert_at(report, "train.py")
    column = the_cut(report)["site"]["column"]
    line = text.splitlines()[6]
    assert line[column - 1 :].startswith("w.detach()")


def assert_in_zip(folder, program, file):
    finding = the_cut(both(folder, program))
    assert (finding["site"]["file"], finding["site"]["line"]) == (file, 7)
    told = python(folder, "-m", "tether", "run", program).stderr.decode("utf-8")
    assert "7 |     größe = w.detach(); loss = (größe * b).sum()" in told


def test_source_in_a_zip_file(tmp_path):
    with zipfile.ZipFile(tmp_path / "lib.zip", "w") as archive:
        archive.writestr("inside.py", CUT)
    (tmp_path / "train.py").write_text("import sys; sys.path.insert(0, 'lib.zip')\nimport inside\n")
    assert_in_zip(tmp_path, "train.py", os.path.join("lib.zip", "inside.py"))


def test_a_zip_file_that_is_the_program(tmp_path):
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("__main__.py", CUT)
    assert_in_zip(tmp_path, "app.pyz", os.path.join("app.pyz", "__main__.py"))


def test_a_notebook_cell(tmp_path):
    """As IPython runs cells: a name that is no file, its text known to `linecache`."""
    (tmp_path / "book.py").write_text(
        f"import linecache\ntext = {CUT!r}\nname = '<ipython-input-3-0123456789ab>'\n"
        "linecache.cache[name] = (len(text), None, text.splitlines(True), name)\n"
        "exec(compile(text, name, 'exec'), globals())\n"
    )
    assert_at(both(tmp_path, "book.py"), "<ipython-input-3-0123456789ab>")


def test_code_from_exec(tmp_path):
    (tmp_path / "made.py").write_text(f"exec({CUT!r})\n")
    finding = the_cut(both(tmp_path, "made.py"))
    assert (finding["site"]["file"], finding["site"]["line"]) == ("<string>", 7)


def test_code_without_source(tmp_path):
    """Compiled elsewhere, the text not delivered."""
    (tmp_path / "gone.py").write_text(CUT, encoding="utf-8")
    python(tmp_path, "-c", "import py_compile; py_compile.compile('gone.py', 'gone.pyc')")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "train.py").write_text("import gone\n")
    finding = the_cut(both(tmp_path, "train.py"))
    assert (os.path.basename(finding["site"]["file"]), finding["site"]["line"]) == ("gone.py", 7)


@pytest.mark.parametrize("last", ["os.remove(__file__)", "open(__file__, 'w').write('\\0no')"])
def test_source_that_changes_while_it_runs(tmp_path, last):
    (tmp_path / "train.py").write_text(CUT + f"import os; {last}\nstep()\n", encoding="utf-8")
    told = python(tmp_path, "-m", "tether", "run", "-q", "--json", "out.json", "train.py")
    assert (told.returncode, told.stdout, told.stderr) == (0, b"done\n", b"")
    finding = the_cut(json.loads((tmp_path / "out.json").read_text("utf-8")))
    assert (finding["site"]["file"], finding["site"]["line"]) == ("train.py", 7)


HOSTILE = """
import torch, sys
class Wild(Exception):
    def __str__(self): raise ValueError("no text")
class Odd(dict):
    def __getattr__(self, name): raise RuntimeError(name)
    def __eq__(self, other): raise RuntimeError
    def __bool__(self): raise RuntimeError
    __hash__ = None
    def items(self): raise RuntimeError("no items")
    def __iter__(self): raise RuntimeError("no iteration")
    def __reduce__(self): raise RuntimeError("no pickle")
class Sly(list):
    @property
    def __class__(self): raise RuntimeError
Name = type("bad name\\n", (torch.nn.Linear,), {"__module__": 7})
odd, sly, model = Odd(a=torch.ones(2)), Sly([torch.ones(2)]), Name(2, 2)
opt = torch.optim.SGD(model.parameters(), lr=1.0)
setattr(model, "x\\ud800y", torch.nn.Parameter(torch.ones(2)))
globals()["v\\udcff"] = model
model.state = {odd.__class__: odd, "s": sly, 3: {(1, 2): torch.ones(2)}}
sys.modules["strange"] = None
for _ in range(2):
    opt.zero_grad(); loss = model(torch.ones(1, 2)).sum(); loss.backward(); opt.step()
def hook(grad): raise Wild
x = torch.ones(2, requires_grad=True); y = x * 2; y.register_hook(hook)
try: y.sum().backward()
except Wild: print("wild")
torch.stack(sly); float(loss)
hook.__qualname__ = "h\\udc00"
(x * 2).register_hook(hook)
print("done")
raise Wild
"""


def test_values_that_can_be_neither_compared_nor_written(tmp_path):
    (tmp_path / "wild.py").write_text(HOSTILE, encoding="utf-8")
    bare = python(tmp_path, "wild.py")
    told = python(
        tmp_path, "-m", "tether", "run", "-o", "run.tether", "--html", "page.html",
        "--sarif", "out.sarif", "--json", "out.json", "wild.py", strict=False,
    )  # fmt: skip
    assert bare.stdout == b"wild\ndone\n"
    assert (told.returncode, told.stdout) == (bare.returncode, bare.stdout)
    assert told.stderr.startswith(bare.stderr)
    assert b"the program raised" in told.stderr
    again = python(tmp_path, "-m", "tether", "report", "run.tether")
    assert again.returncode == 0, again.stderr
    assert again.stdout
    json.loads((tmp_path / "out.json").read_text("utf-8"))


@pytest.mark.parametrize("end", ["os._exit(5)", "sys.exit(5)"])
def test_nothing_is_left_of_python_but_the_exit_code(tmp_path, end):
    """It empties `sys.modules`, breaks what it can reach, and removes the folder it is in."""
    (tmp_path / "wipe.py").write_text(
        "import torch, sys, os, builtins, linecache\n"
        "x = torch.ones(3, requires_grad=True); (x * 2).sum().backward()\n"
        "print(x.grad.sum().item()); sys.stdout.flush()\n"
        "os.mkdir('away'); os.chdir('away'); os.rmdir('../away')\n"
        "sys.path[:] = []; sys.meta_path[:] = []; linecache.getlines = linecache.getline = None\n"
        "os.path.abspath = None; builtins.open = None\n"
        "for name in list(sys.modules):\n"
        "    if name.split('.')[0] not in ('sys', 'builtins', '__main__'): del sys.modules[name]\n"
        f"{end}\n"
    )
    bare = python(tmp_path, "wipe.py", strict=False)
    told = python(tmp_path, "-m", "tether", "run", "wipe.py", strict=False)
    assert (bare.returncode, bare.stdout) == (5, b"6.0\n")
    assert (told.returncode, told.stdout) == (bare.returncode, bare.stdout)
    assert b"calls recorded" in told.stderr or b"there is no report" in told.stderr


def test_streams_of_its_own(tmp_path):
    """It closes standard output's file, and puts an object that only looks like one in its place."""
    (tmp_path / "streams.py").write_text(
        "import torch, sys, os\n"
        "class Shout:\n    def write(self, text): os.write(1, text.upper().encode())\n"
        "sys.stdout = Shout(); print('kept', torch.ones(2).sum().item())\n"
        "sys.stderr = None; del sys.__stdout__\n"
    )
    bare = python(tmp_path, "streams.py")
    told = python(tmp_path, "-m", "tether", "run", "streams.py")
    assert (bare.returncode, bare.stdout) == (told.returncode, told.stdout)
    assert b"KEPT" in bare.stdout
    assert b"calls recorded" in told.stderr
