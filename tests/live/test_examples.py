"""Each program of `examples/` gives the answer that its docstring promises."""

import contextlib
import io
import os
import re
import sys
from pathlib import Path

import pytest

from tether.record.running import Program, run
from tether.record.session import Session
from tether.report.recording import Recording

EXAMPLES = Path(__file__).parents[2] / "examples"


def record(name, *, fails=False):
    """Run an example as `tether run` does."""
    endings, printed = [], io.StringIO()

    def finish(ending):
        endings.append(ending)
        return ending.exit_code

    saved = sys.argv, sys.path[:], sys.modules["__main__"], Path.cwd()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            run(Program("script", str(EXAMPLES / f"{name}.py")), Session(), finish)
    finally:
        os.chdir(saved[3])
        sys.argv, sys.path[:], sys.modules["__main__"] = saved[:3]
    assert (endings[0].error is not None) == fails
    recording = Recording(endings[0].trace)
    recording.printed = printed.getvalue()
    return recording


def line_of(name, text):
    """Number of the one line of an example that holds `text`."""
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    (number,) = [n for n, line in enumerate(lines, 1) if text in line]
    return number


def copies(recording, name):
    """Rows of the copies table: (line, operation) -> (memory, gradient)."""
    return {(row.site.line, row.operation): (row.memory, row.gradient) for row in recording.copies}


def gradient_findings(recording):
    return [one for one in recording.findings if one.slug.startswith(("gradient", "parameter"))]


def operand(recording, operation):
    (event,) = [one for one in recording.trace.events if one.operation == operation]
    return event


def test_clone_keeps_the_gradient():
    name = "clone_keeps_the_gradient"
    recording = record(name)
    rows = copies(recording, name)
    assert rows[line_of(name, "plain.clone()"), "clone"][0] == "owns"
    assert rows[line_of(name, "w.clone()"), "clone"] == ("owns", "keeps")
    plain, of_w = [one for one in recording.trace.events if one.operation == "clone"]
    assert plain.results[0].leaf
    assert not of_w.results[0].leaf
    assert [(row.name, row.status) for row in recording.gradients] == [("w", "reached")]
    assert not gradient_findings(recording)


def test_detach_shares_memory():
    name = "detach_shares_memory"
    recording = record(name)
    assert copies(recording, name)[line_of(name, "w.detach()"), "detach"] == ("shares", "cuts")
    event = operand(recording, "detach")
    assert event.results[0].dtype == event.reads[0].dtype == "float64"
    assert event.results[0].storage == event.reads[0].storage
    story = str(recording.why("snapshot"))
    assert f"{name}.py:{line_of(name, 'snapshot[0] = 100.0')}" in story


def test_leaves_and_their_gradients():
    name = "leaves_and_their_gradients"
    recording = record(name)
    (finding,) = gradient_findings(recording)
    assert (finding.slug, finding.subject) == ("gradient-on-non-leaf", "scaled")
    assert finding.site.line == line_of(name, "scaled.grad)")
    assert "`w`" in finding.message


def test_clone_against_detach():
    name = "clone_against_detach"
    recording = record(name)
    rows = copies(recording, name)
    assert rows[line_of(name, "w.detach()"), "detach"] == ("shares", "cuts")
    assert rows[line_of(name, "w.clone()"), "clone"] == ("owns", "keeps")
    assert {row.name: row.status for row in recording.gradients} == {"w": "reached", "b": "reached"}
    assert not gradient_findings(recording)


def test_two_flows_into_one_leaf():
    recording = record("two_flows_into_one_leaf")
    assert "w.grad 3.0 v.grad 1.0" in recording.printed
    story = str(recording.why("w"))
    assert "clone" in story
    assert "mul" in story
    assert not gradient_findings(recording)


def test_follower_and_frozen_copy():
    name = "follower_and_frozen_copy"
    recording = record(name)
    rows = copies(recording, name)
    assert rows[line_of(name, "follower ="), "detach"] == ("shares", "cuts")
    assert rows[line_of(name, "frozen ="), "clone"][0] == "owns"
    assert not [one for one in recording.findings if one.severity == "error"]
    assert not gradient_findings(recording)
    follower, frozen = (str(recording.why(one)) for one in ("follower", "frozen"))
    step = f"{name}.py:{line_of(name, 'optimizer.step()')}"
    assert step in follower
    assert step not in frozen


def test_detached_before_third_layer():
    name = "detached_before_third_layer"
    recording = record(name)
    (finding,) = recording.findings
    assert (finding.slug, finding.subject) == ("gradient-cut", "model.layer1.weight")
    assert finding.also == ("model.layer1.bias", "model.layer2.weight", "model.layer2.bias")
    assert finding.site.line == line_of(name, "out2.detach()")
    assert finding.site.expression == "out2.detach()"
    assert {row.name for row in recording.gradients if row.status == "reached"} == {
        "model.layer3.weight",
        "model.layer3.bias",
    }


def test_values_for_logging():
    name = "values_for_logging"
    recording = record(name)
    rows = copies(recording, name)
    assert rows[line_of(name, "a = loss_per_row"), "numpy"][0] == "shares"
    assert rows[line_of(name, "b = loss_per_row"), "cpu"] == ("shares", "keeps")
    assert rows[line_of(name, "c = loss_per_row"), "data.__get__"] == ("shares", "cuts")
    assert rows[line_of(name, "d = loss_per_row"), "clone"][0] == "owns"
    assert rows[line_of(name, "e = loss_per_row"), "clone"] == ("owns", "keeps")
    assert rows[line_of(name, "f = loss_per_row"), "tolist"][0] == "owns"
    assert rows[line_of(name, "g = loss_per_row"), "item"][0] == "owns"
    assert not gradient_findings(recording)


def test_no_grad_around_a_layer():
    name = "no_grad_around_a_layer"
    recording = record(name)
    (finding,) = gradient_findings(recording)
    assert (finding.slug, finding.subject) == ("gradient-cut", "encoder.weight")
    assert finding.site.line == line_of(name, "with torch.no_grad():")
    assert finding.site.expression == "torch.no_grad()"
    assert line_of(name, "torch.tanh(encoder(x))") in {one.site.line for one in finding.evidence}


def test_residual_connection():
    name = "residual_connection"
    recording = record(name)
    assert not [one for one in recording.findings if one.severity == "error"]
    assert not gradient_findings(recording)
    clones = [row for row in recording.copies if row.operation == "clone"]
    rows = [(row.memory, row.gradient, row.count) for row in clones]
    assert rows == [("owns", "none", 3), ("owns", "keeps", 3)]  # the first block's input has none
    careful, rewriting = clones
    assert careful.needed == "no"
    assert rewriting.needed == "yes"
    written = line_of(name, "x += self.conv(identity)")
    assert rewriting.reason == f"line {written} writes `x` while `identity` lives"
    (finding,) = recording.findings
    assert (finding.slug, finding.subject, finding.bytes) == ("needless-copy", "identity", 49152)


def test_inside_a_residual_block():
    name = "inside_a_residual_block"
    recording = record(name)
    for variable in ("hidden", "out", "loss"):
        assert f"{name}.py:" in str(recording.why(variable))
    assert f"{name}.py:{line_of(name, 'out += identity')}" in str(recording.why("out"))


def test_clone_and_grad():
    name = "clone_and_grad"
    recording = record(name)
    assert "clone: None  assignment: True  deepcopy: [0.1" in recording.printed
    assert not [one for one in recording.findings if one.severity != "note"]


def test_write_to_a_leaf():
    name = "write_to_a_leaf"
    recording = record(name, fails=True)
    (finding,) = [one for one in recording.findings if one.severity == "error"]
    assert (finding.slug, finding.subject) == ("tie-error", "scale")
    lines = (EXAMPLES / f"{name}.py").read_text().splitlines()
    assert finding.site.line == lines.index("scale += 1.0") + 1
    made = lines.index("scale = torch.ones(3, requires_grad=True)") + 1
    assert made in {one.site.line for one in finding.evidence}
    assert "torch.no_grad()" in finding.fix.text
    assert "scale.clone()" in finding.fix.text
    assert "scale.data" in finding.fix.text


def test_numpy_shares_memory():
    name = "numpy_shares_memory"
    recording = record(name)
    followed, follows = [one for one in recording.findings if one.severity != "note"]
    assert (followed.slug, followed.subject) == ("alias-write", "weights")
    assert (follows.slug, follows.subject) == ("alias-write", "snapshot")
    shared = line_of(name, "snapshot = weights.numpy()")
    assert [one.site.line for one in followed.evidence] == [
        shared,
        line_of(name, "weights.sum()"),
    ]
    assert [one.site.line for one in follows.evidence] == [
        shared,
        line_of(name, "weights.mul_(10)"),
        line_of(name, "the snapshot followed"),
    ]
    for finding in (followed, follows):
        assert finding.site.line == shared
        assert "weights.numpy().copy()" in finding.fix.text


def test_numpy_of_a_tensor_that_requires_grad():
    name = "numpy_of_a_tensor_that_requires_grad"
    recording = record(name, fails=True)
    (finding,) = [one for one in recording.findings if one.severity == "error"]
    assert (finding.slug, finding.subject) == ("tie-error", "loss_per_item")
    assert finding.site.line == line_of(name, "print(loss_per_item.numpy())")
    assert "loss_per_item.detach().numpy()" in finding.fix.text


def test_operands_on_two_devices():
    name = "operands_on_two_devices"
    recording = record(name, fails=True)
    (finding,) = [one for one in recording.findings if one.severity == "error"]
    assert (finding.slug, finding.subject) == ("tie-error", "offset")
    assert finding.site.line == line_of(name, "print(scaled + offset)")
    came_from = {one.site.line: one.text for one in finding.evidence}
    device = recording.printed.split()[-1]
    assert f" on {device}" in came_from[line_of(name, "scaled = ")]
    assert came_from[line_of(name, "offset = ")].endswith("on cpu")
    assert f"offset.to('{device}" in finding.fix.text


def test_three_problems_are_three_findings_the_wrong_result_first():
    found = record("three_problems_in_a_training_loop").findings
    told = [(one.slug, one.subject) for one in found]
    assert told == [
        ("alias-write", "best"), ("gradient-cut", "net.embed.weight"), ("graph-retained", "losses"),
    ]  # fmt: skip


def test_every_example_has_a_test():
    tests = "".join(file.read_text() for file in Path(__file__).parents[1].rglob("test_*.py"))
    assert [file.stem for file in EXAMPLES.glob("*.py") if file.stem not in tests] == []


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.stem)
def test_an_example_says_what_to_look_for(file):
    text = file.read_text()
    assert text.startswith('"""')
    assert re.search(rf"tether (run|memory) (\S+ )*examples/{re.escape(file.name)}", text)
