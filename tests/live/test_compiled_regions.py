"""What happens inside compiled regions, told from the graphs that dynamo made."""

import sys

import pytest
import torch

from programs import record_program

KEEPS_COLUMNS = torch.__version__ >= (2, 13) and sys.version_info < (3, 13)
"""Dynamo says which part of its line made a call; Python 3.13 leaves marks under all of it out."""

MODEL = """\
import torch

torch.manual_seed(0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(8, 8)
        self.b = torch.nn.Linear(8, 1)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        hidden = torch.relu(self.a(x))
        {inside}
        first, second = hidden.chunk(2, dim=1)
        return self.b(torch.cat([second, first.clone()], dim=1))


net = Net()
compiled = torch.compile(net, backend="aot_eager")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
kept = net.mean
for step in range(20):
    loss = compiled(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(kept.sum(), torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""

RIGHT = "hidden = hidden + 1"


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    return record_program(MODEL.format(inside=RIGHT), tmp_path_factory.mktemp("right"))


def inside(recording):
    """The events within compiled regions."""
    spans = recording.trace.spans
    return [one for one in recording.trace.events
            if one.span >= 0 and spans[one.span].kind == "compiled"]  # fmt: skip


def test_a_detach_inside_is_reported_with_its_line(tmp_path):
    recording = record_program(MODEL.format(inside="hidden = hidden.detach()"), tmp_path)
    (finding,) = [one for one in recording.findings if one.severity == "warning"]
    assert (finding.slug, finding.subject) == ("gradient-cut", "net.a.weight")
    assert finding.site.line == 15
    if KEEPS_COLUMNS:
        assert finding.site.expression == "hidden.detach()"


def test_gradients_turned_off_inside_are_reported_with_their_line(tmp_path):
    text = "with torch.no_grad():\n            hidden = hidden * 2"
    recording = record_program(MODEL.format(inside=text), tmp_path)
    (finding,) = [one for one in recording.findings if one.severity == "warning"]
    assert finding.slug == "gradient-cut"
    assert finding.site.line in (15, 16)


def test_a_buffer_that_is_written_inside_is_known_to_be_shared(tmp_path):
    text = "with torch.no_grad():\n            self.mean.mul_(0.9).add_(hidden.mean(0))"
    recording = record_program(MODEL.format(inside=text), tmp_path)
    story = str(recording.why("kept"))
    assert "mul_" in story
    assert ":16" in story


def test_a_right_model_is_told_call_by_call_and_has_no_finding(right):
    assert not right.findings
    names = [one.operation for one in inside(right)]
    assert names[:5] == ["linear", "relu", "add", "chunk", "clone"]
    assert {one.status for one in right.gradients} == {"reached"}


def test_the_first_runs_and_then_ever_rarer_ones_are_told(right):
    assert [one.operation for one in inside(right)].count("chunk") == 9  # 8, and the 16th
    assert [one.operation for one in right.trace.events].count("compiled") == 11
    assert not [gap for gap in right.trace.gaps if gap.code == "compiled"]


def test_several_results_of_a_call_show_its_memory(right):
    chunk = next(one for one in inside(right) if one.operation == "chunk")
    assert {one.storage for one in chunk.results} == {chunk.reads[0].storage}
    assert [one.offset for one in chunk.results] == [0, 4]


def test_what_a_backend_may_never_copy_is_not_counted_as_copied(right):
    assert not [row for row in right.copies if row.site.line in (16, 17)]
    stand_ins = {one.storage for event in inside(right) for one in event.results}
    made = [right.trace.storages[number].nbytes for number in stand_ins]
    assert made.count(0) > len(made) / 2
