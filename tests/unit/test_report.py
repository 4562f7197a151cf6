"""The report: what it says, how it fits, and that nothing from a program can act on a reader."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import jsonschema
import pytest

from tether.analysis.history import History
from tether.analysis.memory import Growth, More
from tether.analysis.speaking import bytes_text
from tether.facts import (
    LOADER,
    Event,
    Gap,
    Gradients,
    Name,
    Operand,
    OptimizerFact,
    Raised,
    Site,
    StorageFact,
    Trace,
)
from tether.finding import Edit, Evidence, Finding, Fix
from tether.report import kept
from tether.report.document.blocks import FindingBlock
from tether.report.document.compose import build
from tether.report.document.findings import Findings, counted, distinct
from tether.report.document.grouping import ends, folded, in_order
from tether.report.document.text import render, visible, write
from tether.report.formats import json as as_json
from tether.report.formats import sarif
from tether.report.page.shell import document_page
from tether.report.recording import Recording, load
from tether.report.tables.copies import copies
from tether.report.tables.gaps import SENTENCES
from tether.report.tables.gradients import gradients
from tether.report.why import why
from tether.source.annotate import annotate
from tether.store.file import save

FILE = "/home/me/app/train.py"
TEXT = """\
import torch
class Net:
    def __init__(self):
        self.layer1 = nn.Linear(4, 4)
    def forward(self, x):
        out = self.layer1(x)
        return self.layer3(out.detach())
loss = net(x)
history.append(loss.item())
"""


def site(line: int, text: str, function: str = "<module>") -> Site:
    column = TEXT.split("\n")[line - 1].index(text) + 1
    return Site(FILE, line, column, line, column + len(text), function)


def operand(tensor: int, storage: int, grad: bool = True, dtype="float32", shape=(8, 4)) -> Operand:
    return Operand(tensor, storage, 0, 0, shape, (4, 1), dtype, grad, False)


def example() -> Findings:
    trace = Trace(program=["train.py", "--lr", "1"], folder="/home/me/app", torch="2.13.0")
    trace.sources = {FILE: TEXT}
    trace.sites = [
        site(7, "out.detach()", "Net.forward"),
        site(4, "nn.Linear(4, 4)", "Net.__init__"),
        site(9, "loss.item()"),
    ]
    for _ in range(3):
        trace.events.append(Event("detach", 0, (operand(10, 10),), (operand(11, 10, False),)))
        trace.events.append(Event("item", 2, (operand(12, 12, shape=()),)))
    trace.names = [
        Name(0, "net.layer1.weight", 0),
        Name(1, "net.layer1.bias", 0),
        Name(1, "b", 0),
        Name(2, "net.layer3.weight", 0),
    ]
    trace.optimizers = [OptimizerFact("SGD", 1, 0, (0, 1, 2))]
    trace.gradients = [
        Gradients("step", n, 1, 0, {0: "none", 1: "zero", 2: "some"}) for n in range(3)
    ]
    trace.gaps = [Gap("compiled", times=2)]
    trace.storages = {
        10: StorageFact(128, "cpu", 0, 4),
        12: StorageFact(4, "cpu", 1),
        13: StorageFact(1000, "cpu", 4, 5),
    }
    annotate(trace)
    here, made, _ = trace.sites
    finding = Finding(
        "gradient-cut",
        "warning",
        "net.layer1.weight",
        here,
        "detach",
        "net.layer1.weight got no gradient: out.detach() cuts its only way to the loss.",
        ("net.layer1.bias",),
        (Evidence("cut", here, "cut here"), Evidence("made", made, "made here")),
        ("nothing writes the gradient by hand",),
        Fix("Remove .detach().", (Edit(FILE, 7, 28, 7, 40, "out"),)),
        3,
        None,
        (0, 1),
    )
    return Findings(trace, [finding], gradients(History(trace), [finding]), copies(trace))


def test_text():
    """The whole of it, so that a change of looks is looked at."""
    assert (
        render(build(example()))
        == """\
tether: train.py --lr 1
1 warning in 6 calls recorded

#1 warning  gradient-cut  net.layer1.weight  (3 times)
  net.layer1.weight got no gradient: out.detach() cuts its only way to the loss.

  train.py:7 in Net.forward  cut here
      7 |     return self.layer3(out.detach())
        |                        ^^^^^^^^^^^^

  train.py:4 in Net.__init__  made here
      4 |     self.layer1 = nn.Linear(4, 4)
        |                   ^^^^^^^^^^^^^^^

  same     net.layer1.bias
  assumes  nothing writes the gradient by hand
  fix      Remove .detach().
           train.py:7: return self.layer3(out)

gradients
1 of 3 parameters got a gradient, 1 only zeros, 1 none

parameter          gradient  why
net.layer1.weight  none      #1
b                  zero      #1

copies and conversions
6 copies and conversions, 12 B copied

line  expression    operation  memory  gradient  times  copied
train.py
   7  out.detach()  detach     shares  cuts          3       -
   9  loss.item()   item       owns    cuts          3    12 B

what could not be seen
- A compiled region is recorded as one call; --eager shows what happens inside.
(2 times)
"""
    )


@pytest.mark.parametrize("width", [1, 60, 80, 119, 200, 500])
def test_widths(width):
    about = example()
    name = "a" * 300
    about.trace.sources[FILE] = TEXT.replace("out = self", f"{name} = self")
    longer = Finding(
        "alias-write",
        "note",
        f"net.{name}.weight",
        Site(FILE, 6, 1, 6, 400),
        "x",
        "word " * 100,
        (name, name),
        count=10**9,
        bytes=10**12,
    )
    about.findings = [*about.findings, longer]
    about.copies = [*about.copies, *copies(about.trace)]
    for row in about.copies:
        row.site = row.site._replace(expression=name, file="/very/" + name + "/train.py")
    text = render(build(about), width)
    limit = min(200, max(60, width))
    assert all(fits(line, limit) for line in text.split("\n"))
    assert not re.search(r"[ \t]+$", text, re.M)
    assert f"net.{name}.weight" in text, "a long name is not broken"


def fits(line, width):
    """Whether a line is no wider than that, but for one word that alone is nearly as wide."""
    return len(line) <= width or max(map(len, line.split())) > width - 30


def test_no_colours_in_a_pipe_unless_they_are_forced(monkeypatch):
    for name, value, coloured in (
        ("CLICOLOR_FORCE", "1", False),
        ("FORCE_COLOR", "", False),
        ("FORCE_COLOR", "1", True),
        ("NO_COLOR", "1", False),
    ):
        monkeypatch.setenv(name, value)
        stream = io.StringIO()
        write(build(example()), stream)
        assert ("\x1b" in stream.getvalue()) == coloured, name
        assert "gradient-cut" in stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    write(build(example()), stream, 80)
    assert "\x1b[" in stream.getvalue()
    assert re.sub(r"\x1b(\[[\d;]*m|\].*?\x1b\\)", "", stream.getvalue()) == render(build(example()))
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    write(build(example()), plain, 80)
    assert plain.getvalue() == render(build(example()))


def test_a_stream_that_knows_only_ascii():
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    about = example()
    about.trace.program = ["trän\udc80.py"]
    write(build(about), stream)
    stream.flush()
    assert rb"tr\xe4n" in raw.getvalue()


HOSTILE = "x\x1b[2J\x07\r\n\u202e\u2066\x00[red]\x9b31m\udc80"


def test_nothing_from_the_program_acts_on_the_terminal():
    about = example()
    trace = about.trace
    trace.program = [HOSTILE]
    trace.gaps = [Gap("failed", HOSTILE)]
    trace.raised = [Raised(0, HOSTILE, HOSTILE, -1, fatal=True)]
    bad = Site("/home/me/app/" + HOSTILE, 1, 1, 1, 3, HOSTILE, expression=HOSTILE, target=HOSTILE)
    trace.sources[bad.file] = HOSTILE
    about.findings = [
        Finding(
            "alias-write",
            "error",
            HOSTILE,
            bad,
            HOSTILE,
            HOSTILE,
            (HOSTILE,),
            (Evidence("cut", bad, HOSTILE),),
            (HOSTILE,),
            Fix(HOSTILE),
        )
    ]
    for row in about.copies:
        row.site, row.operation = bad, HOSTILE
    text = render(build(about))
    odd = {one for one in text if not one.isprintable()} - {"\n"}
    assert odd == set()
    assert "[red]" in text


def test_visible():
    assert visible("a\tb") == "a    b"
    assert visible("a\x1bb\u202ec") == "a\\x1bb\\u202ec"
    assert visible("naïve 你好") == "naïve 你好"


def test_caret_under_wide_characters_and_in_long_lines():
    about = example()
    text = f"y = f('你好', x.detach()) {'# ' + 'long ' * 50}\n{' ' * 100}{'z' * 300}.detach()"
    about.trace.sources[FILE] = text
    start = text.index("x.detach()") + 1
    one = Site(FILE, 1, start, 1, start + 10)
    two = Site(FILE, 2, 101, 2, 410)
    about.findings = [
        Finding("gradient-cut", "warning", "x", here, "detach", "m") for here in (one, two)
    ]
    lines = render(build(about)).split("\n")
    caret = next(line for line in lines if "^" in line)
    above = lines[lines.index(caret) - 1]
    columns = above.index("x.detach()") + 2  # two wide characters before it
    assert caret.index("^") == columns
    assert caret.count("^") == 10
    assert any("zzz..." in line for line in lines)


def test_both_sides_of_what_is_meant_are_seen():
    about = example()
    text = f"    {'before ' * 30}x.detach(){' after' * 30}"
    about.trace.sources[FILE] = text
    start = text.index("x.detach()") + 1
    place = Site(FILE, 1, start, 1, start + 10)
    about.findings = [Finding("gradient-cut", "warning", "x", place, "detach", "m")]
    (line,) = (one for one in render(build(about), 60).split("\n") if "x.detach() " in one)
    assert line.startswith("      1 | ...")
    assert line.endswith("x.detach() after af...")
    assert len(line) <= 60


def test_long_lists_are_cut_with_a_count():
    about = example()
    about.findings = [replace(about.findings[0], operation=f"op{n}") for n in range(33)]
    about.copies = list(about.copies) * 50
    about.trace.gaps = [Gap("failed", f"reason {n}") for n in range(20)]
    text = render(build(about))
    assert "... and 13 more findings (13 gradient-cut); --show-all lists them" in text
    assert "... and 60 more lines; --show-all lists them" in text
    assert "... and 8 more reasons; --show-all lists them" in text
    assert len(as_json.to_json(about)["findings"]) == 33


def test_parameters_are_folded_by_module():
    about = example()
    trace = about.trace
    trace.names = [Name(n, f"net.block{n // 10}.p{n % 10}", 0) for n in range(100)]
    trace.optimizers = [OptimizerFact("SGD", 0, 0, tuple(range(100)))]
    trace.gradients = [
        Gradients("step", 0, 0, 0, {n: "none" if n < 3 else "some" for n in range(100)})
    ]
    about.gradients = gradients(History(trace), about.findings)
    text = render(build(about))
    assert "97 of 100 parameters got a gradient, 3 none" in text
    assert re.search(r"^net\.block0 +3 of 10  none +#1$", text, re.M)
    assert "block[1-9]" not in text, "that all went well is told by the count"
    about.show_all = True
    text = render(build(about))
    assert re.search(r"^net\.block\[1-9\] +10 each  reached$", text, re.M)


def test_a_clean_recording():
    trace = Trace(program=["a.py"], events=example().trace.events[:1])
    text = render(build(Findings(trace, [])))
    assert text == "tether: a.py\nnothing to report in 1 call recorded\n"


def test_a_recording_of_nothing_is_no_clean_one():
    trace = Trace(program=["a.py"], gaps=[Gap("child", "spawned", times=2)])
    text = render(build(Findings(trace, [])))
    said = "no PyTorch call was recorded; 2 child processes ran and were not recorded"
    said += " (`tether run --children` records what they do with PyTorch)"
    assert " ".join(text.splitlines()[1:3]) == said


def test_workers_that_load_data_need_no_hint():
    trace = Trace(program=["a.py"], gaps=[Gap("child", LOADER, times=2)])
    assert "--children" not in render(build(Findings(trace, [])))


def test_outcome_and_limit():
    trace = Trace(outcome="raised", dropped=90, events=example().trace.events)
    trace.raised = [Raised(96, "ValueError", "bad\nnews", -1, fatal=True)]
    text = render(build(Findings(trace, [])))
    assert "in 96 calls recorded; the program raised" in text
    assert "Only the last 6 calls were kept (--limit)." in text
    assert "raised  ValueError: bad news" in text


def test_numbers_in_words():
    assert counted(1, "copy", "copies") == "1 copy"
    assert counted(2000, "finding") == "2,000 findings"
    assert [bytes_text(n) for n in (0, 1023, 1024, 3 << 29, 1 << 42, 1 << 62)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 GiB",
        "4.0 TiB",
        "4194304.0 TiB",
    ]


def test_order_of_findings():
    plain = Site(FILE, 1)
    one, two, three = (
        Finding(slug, severity, "x", plain._replace(line=line), "", "")
        for slug, severity, line in (("b", "note", 1), ("a", "error", 9), ("c", "error", 2))
    )
    assert in_order([one, two, three]) == [three, two, one]


def test_ranks_that_say_the_same_say_it_once():
    one = example().findings[0]
    other = replace(one, count=4, bytes=10, tensors=(7,), message="said a little differently")
    elsewhere = replace(one, subject="net.layer2.weight")
    joined = replace(one, count=7, bytes=10, tensors=(0, 1, 7))
    made = distinct([one, other, elsewhere])
    assert made == [joined, elsewhere]
    assert made[0].tensors == (0, 1, 7)


# ----------------------------------------------------------------------------------------- JSON


def test_json_fits_its_schema():
    schema = as_json.schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    made = json.loads(as_json.dumps(example()))
    jsonschema.validate(made, schema)
    finding = made["findings"][0]
    assert finding["site"] == {
        "file": "train.py",
        "line": 7,
        "column": 28,
        "end_line": 7,
        "end_column": 40,
        "expression": "out.detach()",
        "function": "Net.forward",
    }
    assert finding["fix"]["edits"][0]["file"] == "train.py"
    assert made["gradients"][0] == {
        "name": "net.layer1.weight", "status": "none", "changed": None, "unlooked": 0,
        "finding": 0, "ranks": "",
    }  # fmt: skip
    assert made["gaps"] == [{"code": "compiled", "reason": SENTENCES["compiled"], "count": 2}]
    assert made["memory"]["peak_bytes"] is None, "there are steps, and no look at what they hold"
    assert made["memory"]["returned_peak_bytes"] == 1004
    assert sum(row["held_peak"] for row in made["memory"]["lines"]) == 1004
    assert made["program"] == ["train.py", "--lr", "1"]


def test_the_schema_can_fail():
    made = as_json.to_json(example())
    for spoil in (
        lambda one: one.pop("gaps"),
        lambda one: one.update(schema=2),
        lambda one: one.update(more=1),
        lambda one: one["findings"][0]["site"].pop("line"),
        lambda one: one["copies"][0].update(memory="maybe"),
    ):
        spoilt = json.loads(json.dumps(made))
        spoil(spoilt)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(spoilt, as_json.schema())


def test_json_of_hostile_strings_is_json():
    about = example()
    about.trace.program = [HOSTILE]
    assert json.loads(as_json.dumps(about))["program"] == [HOSTILE]


# -------------------------------------------------------------------------------- HTML and SARIF


def test_html_holds_the_report_and_nothing_else():
    page = document_page(build(example())).partition("<header>")[2].partition("</main>")[0]
    assert "<mark>out.detach()</mark>" in page
    assert page.count('<details class="v ') == 1
    assert "<script" not in page
    assert "http:" not in page
    assert "https:" not in page


def test_html_of_hostile_strings():
    about = example()
    bad = "</script></style><img src=x onerror=alert(1)>\"' onload='x" + HOSTILE
    place = Site(bad, 1, 1, 1, 30, bad, expression=bad, target=bad)
    about.trace.sources[bad] = bad * 3000
    about.trace.program, about.trace.gaps = [bad], [Gap("failed", bad)]
    about.findings = [
        Finding(
            bad,
            "error",
            bad,
            place,
            bad,
            bad,
            (bad,),
            (Evidence(bad, place, bad),),
            (bad,),
            Fix(bad),
        )
    ]
    for row in about.copies:
        row.site, row.operation = place, bad
    page = document_page(build(about)).partition("<body")[2].partition("<dialog")[0]
    tags = set(re.findall(r"<([a-z!/][a-z0-9]*)", page.lower()))
    assert "img" not in tags
    assert "/script" not in tags
    assert "/style" not in tags
    assert not re.search("[\x00-\x09\x0b-\x1f\u202a-\u202e\u2066-\u2069]", page)


def test_sarif_names_both_ends_and_the_edit():
    log = json.loads(sarif.dumps(example()))
    (result,) = log["runs"][0]["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert region == {"startLine": 7, "startColumn": 28, "endLine": 7, "endColumn": 40}
    flow = result["codeFlows"][0]["threadFlows"][0]["locations"]
    lines = [one["location"]["physicalLocation"]["region"]["startLine"] for one in flow]
    assert lines == [7, 4]
    change = result["fixes"][0]["artifactChanges"][0]
    assert change["artifactLocation"]["uri"] == "train.py"
    assert change["replacements"][0]["insertedContent"]["text"] == "out"
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "gradient-cut"


# ------------------------------------------------------------------------------------------ why


def test_why_tells_the_finding_and_what_happened():
    text = str(why("layer1.weight", example()))
    assert text.startswith("net.layer1.weight\n")
    assert "#1 warning  gradient-cut" in text
    assert "It had no gradient whenever one was asked for." in text


def test_why_of_a_plain_tensor():
    about = example()
    trace = about.trace
    trace.sites.append(
        Site(FILE, 6, 9, 6, 27, "Net.forward", expression="self.layer1(x)", target="out")
    )
    trace.events.insert(0, Event("linear", 3, (operand(9, 9),), (operand(10, 10),)))
    trace.events.append(Event("add_", 2, (operand(11, 10),), (), (operand(11, 10),)))
    text = str(why("out", about))
    assert "made by linear" in text
    assert "shared by detach, 3 times" in text
    assert "its memory written by add_, through another tensor" in text
    assert "Finding #1, gradient-cut of net.layer1.weight, is about the call at" in text


def test_why_of_nothing():
    with pytest.raises(LookupError, match=r"did you mean net\.layer1\.weight"):
        why("net.layer1.wieght", example())
    with pytest.raises(LookupError, match="fits 2 names"):
        why("weight", example())


# -------------------------------------------------------------------------------------- opening


def test_load_reads_no_file_that_the_recording_names(tmp_path):
    secret = tmp_path / "secret.py"
    secret.write_text("key = load('secret')\n")
    trace = Trace(program=["a.py"], sites=[Site(str(secret), 1, 1, 1, 4)])
    save(trace, tmp_path / "run.tether")
    assert load(tmp_path / "run.tether").trace == trace
    assert Recording(trace).trace.sites[0].expression == "key"  # where it ran, it is read


def test_load_of_several_ranks(tmp_path):
    for rank in range(2):
        save(example().trace, tmp_path / f"{rank}.tether")
    recording = load(tmp_path / "0.tether", tmp_path / "1.tether")
    assert len(recording.trace.events) == 12
    assert [row.count for row in recording.copies] == [6, 6]


def test_omit_hides_lines(tmp_path):
    save(example().trace, tmp_path / "run.tether")
    assert load(tmp_path / "run.tether", omit=["train.py"]).copies == []
    assert len(load(tmp_path / "run.tether", include=["train.py"]).copies) == 2


def test_damage_comes_before_severity_and_one_cause_stays_together():
    def found(slug, severity, line, operation=""):
        return Finding(slug, severity, f"x{line}", Site(FILE, line), operation, f"Line {line}.")

    cost = found("needless-copy", "warning", 1)
    leak = found("graph-retained", "warning", 2)
    cuts = [found("gradient-cut", "warning", line, "detach") for line in (3, 7)]
    other = found("gradient-cut", "warning", 5, "item")
    wrong = found("alias-write", "warning", 9)
    note = found("alias-write", "note", 8)
    assert in_order([note, cost, leak, *cuts, other, wrong]) == [
        wrong, *cuts, other, leak, cost, note,
    ]  # fmt: skip


def test_what_is_told_in_one_line_leaves_no_gaps_in_the_numbers():
    def copy(line, size, library=""):
        return Finding(
            "needless-copy", "note", f"x{line}", Site(FILE, line), "clone", f"Line {line}.",
            bytes=size, library=library,
        )  # fmt: skip

    about = example()
    calls = 100
    about.trace.events = [*about.trace.events] * (calls // len(about.trace.events) + 1)
    found = [copy(3, 1 << 20), copy(5, 16), copy(7, 1 << 20), copy(8, 1 << 20, "some"), copy(9, 9)]
    wrong = Finding("alias-write", "warning", "y", Site(FILE, 11), "add_", "Line 11.")
    about.findings = in_order([*found, wrong], len(about.trace.events))
    assert [one.site.line for one in about.findings] == [11, 3, 7, 5, 8, 9]
    told = [one for one in build(about).blocks if isinstance(one, FindingBlock)]
    assert [one.number for one in told] == [1, 2, 3]
    assert [about.findings[one.number - 1].site.line for one in told] == [11, 3, 7]
    about.show_all = True
    told = [one for one in build(about).blocks if isinstance(one, FindingBlock)]
    assert [one.number for one in told] == [1, 2, 3, 4, 5, 6]


def test_many_findings_of_one_cause_are_told_once():
    about = example()
    first = about.findings[0]
    lines = [*range(5, 9), 12]
    about.findings = [
        replace(first, site=first.site._replace(line=line), subject=f"x{line}") for line in lines
    ]
    blocks = [one for one in build(about).blocks if isinstance(one, FindingBlock)]
    assert [one.number for one in blocks] == [1]
    assert "4 more findings like this one" in blocks[0].alike
    assert "lines 6-8, 12 (#2 to #5)" in blocks[0].alike


@pytest.mark.parametrize(
    ("count", "nbytes", "times", "severity", "folded"),
    [
        (4, 16, 1, "note", True),
        (4, 4096, 63, "note", True),
        (3, 16, 1, "note", False),  # so few are read sooner than asked for
        (4, 4097, 1, "note", False),
        (4, 16, 64, "note", False),
        (4, None, 1, "note", False),
        (4, 16, 1, "warning", False),
    ],
)
def test_many_notes_on_next_to_nothing_are_one_line(count, nbytes, times, severity, folded):
    about = example()
    first = about.findings[0]
    slight = [
        replace(
            first, slug="needless-copy", severity=severity, subject=f"x{line}",
            message=f"Copy {'abcd'[line]}.", site=first.site._replace(line=line + 5),
            bytes=nbytes, count=times,
        )
        for line in range(count)
    ]  # fmt: skip
    about.findings = [first, *slight]
    told = [one.number for one in build(about).blocks if isinstance(one, FindingBlock)]
    line = "4 notes on copies of 4.0 KiB or less in the whole run (4 needless-copy)"
    assert (line in render(build(about), 200)) == folded
    assert told == ([1] if folded else [*range(1, count + 2)])
    about.show_all = True
    assert len([one for one in build(about).blocks if isinstance(one, FindingBlock)]) == count + 1


@pytest.mark.parametrize(
    ("calls", "nbytes", "times", "severity", "folded"),
    [
        (1000, 40 * 4096, 40, "note", True),
        (1000, 50 * 16, 50, "note", False),  # one in twenty
        (1000, 40 * 4096 + 1, 40, "note", False),
        (1000, 40 * 16, 40, "warning", False),
        (12, 16, 1, "note", False),
    ],
)
def test_a_note_on_small_copies_among_many_calls_is_a_line(calls, nbytes, times, severity, folded):
    about = example()
    about.trace.events = [Event("add", 0, (), ())] * calls
    copies = replace(
        about.findings[0], slug="needless-copy", severity=severity, bytes=nbytes, count=times
    )
    about.findings = [copies]
    line = "1 note on copies of 4.0 KiB or less each, which are fewer than one in 20 of the run's"
    assert (line in render(build(about), 200)) == folded
    assert bool([one for one in build(about).blocks if isinstance(one, FindingBlock)]) != folded


def test_names_that_differ_in_one_number_are_one():
    layers = [f"net.{n}.norm{m}.weight" for n in (0, 1, 2, 5) for m in (1, 2)]
    assert folded([*layers, "head.bias"]) == [
        "net.[0-2, 5].norm1.weight", "net.[0-2, 5].norm2.weight", "head.bias",
    ]  # fmt: skip
    assert folded(["w[0]", "w[1]", "w[3]"]) == ["w[0-1, 3]"]


def test_a_tie_that_acted_shows_the_write_and_the_read():
    first = example().findings[0]
    places = [("made", 1), ("written", 2), ("read", 3), ("used", 4)]
    evidence = tuple(Evidence(role, Site(FILE, line), "") for role, line in places)
    story, rest = ends(replace(first, evidence=evidence))
    assert [one.role for one in story] == ["", "written", "read"]
    assert [one.role for one in rest] == ["made", "used"]


def test_why_of_a_line_tells_the_findings_that_name_it():
    about = example()
    site = about.findings[0].site
    text = str(why(f"{site.file}:{site.line}", about))
    assert "gradient-cut" in text
    with pytest.raises(LookupError, match="no call on a tensor"):
        why("nowhere.py:1", about)


def test_suggestions_are_told_once():
    about = example()
    about.trace.sites[0] = about.trace.sites[0]._replace(target="net.layer1.weight")
    with pytest.raises(LookupError, match=r"did you mean ([^?]*)\?") as told:
        why("net.layer1.wieght", about)
    assert str(told.value).count("net.layer1.weight") == 1


def test_what_was_concluded_is_kept_in_the_file(tmp_path, monkeypatch):
    recording = Recording(example().trace, prepared=True)
    recording.analyse()
    recording.save(tmp_path / "x.tether")
    kept_there = load(tmp_path / "x.tether")
    monkeypatch.setattr("tether.verdicts.judge", lambda *_: pytest.fail("worked out again"))
    assert kept_there.findings == recording.findings
    assert [one.tensors for one in kept_there.findings] == [
        one.tensors for one in recording.findings
    ]
    assert kept_there.copies == recording.copies
    assert str(kept_there.document()) == str(recording.document())


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"author":"', '"author":"0'),
        lambda text: '{"author":"' + kept.author() + '","conclusions":[[[1]],[],[],[],null]}',
        lambda text: (
            '{"author":"' + kept.author() + '","conclusions":[[],[[1,"x","no!",""]],[],[],null]}'
        ),
        lambda text: "[" * 100_000,
    ],
)
def test_what_was_kept_wrongly_or_by_other_code_is_worked_out_anew(damage):
    recording = Recording(example().trace, prepared=True)
    growth = Growth((1, 2, 3, 4), (More(Site("/t.py", 3), 2),))
    found = kept.Conclusions(recording._judged, recording._needed, (), (), growth)
    text = kept.written(found)
    assert kept.read(replace(recording.trace, concluded=text)) == found
    assert kept.read(replace(recording.trace, concluded=damage(text))) is None
