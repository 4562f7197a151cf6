"""TorchScript reads what it is given: no copy that goes there is one that nothing reads."""

import pytest

from programs import record_program

START = """\
import torch
from torch import jit, nn
torch.manual_seed(0)

class Tide(nn.Module):
    def __init__(self):
        super().__init__()
        self.waves = nn.Linear(300, 20)
        self.norm = nn.BatchNorm1d(20)

    def forward(self, levels):
        return self.norm(self.waves(levels)).relu()

class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = torch.zeros(200, 300)

    @jit.export
    def keep(self, levels: torch.Tensor):
        self.last = levels

    def forward(self, factor: float):
        return (self.last * factor).sum()

def level(levels, other):
    return levels.mul(other).sum()

def add_one(levels):
    return levels.add_(1).sum()

hours = [torch.randn(20, 300) for _ in range(10)]
"""

READS = {
    "a module": """
tide = jit.script(Tide())
for n in range(5):
    tide(torch.cat(hours)).sum().backward()
""",
    "a module of the older kind": """
class Gauge(jit.ScriptModule):
    def __init__(self):
        super().__init__()
        self.waves = nn.Linear(300, 20)

    @jit.script_method
    def forward(self, levels):
        return self.waves(levels).relu()

gauge = Gauge()
for n in range(5):
    gauge(torch.cat(hours)).sum().backward()
""",
    "a function": """
level = jit.script(level)
for n in range(5):
    print(level(torch.cat(hours), other=torch.cat(hours).clone()))
""",
    "a traced module": """
tide = jit.trace(Tide(), torch.randn(200, 300), check_trace=False)
for n in range(5):
    tide(torch.cat(hours)).sum().backward()
""",
    "a module that was saved": """
import os, tempfile
path = os.path.join(tempfile.mkdtemp(), "tide.pt")
jit.script(Tide()).save(path)
tide = jit.load(path)
for n in range(5):
    print(tide(torch.cat(hours)).sum())
""",
    "a list of tensors": """
@jit.script
def total(parts: list[torch.Tensor]):
    return torch.cat(parts).sum()

for n in range(5):
    print(total([one.clone() for one in hours]))
""",
    "a module that keeps what it is given": """
kept = jit.script(Kept())
for n in range(5):
    kept.keep(torch.cat(hours))
    print(kept(2.0))
""",
    "a module to which it is given as an attribute": """
kept = jit.script(Kept())
for n in range(5):
    kept.last = torch.cat(hours)
    print(kept(2.0))
""",
}


def gaps_of(recording):
    return [one for one in recording.trace.gaps if one.code == "scripted"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READS)
def test_what_it_is_given_is_read(name, tmp_path):
    recording = record_program(START + READS[name], tmp_path)
    assert recording.error is None
    told = [f"{one.slug} {one.site.line} {one.message}" for one in recording.findings]
    assert not [one for one in told if "reads" in one or "has read" in one]
    (gap,) = gaps_of(recording)
    assert gap.times == 1
    assert gap.detail == ("a scripted function" if "jit.script\ndef" in READS[name] or
                          name == "a function" else "a scripted module")  # fmt: skip


@pytest.mark.filterwarnings("ignore")
def test_what_no_call_is_given_is_still_read_by_nothing(tmp_path):
    body = """
level = jit.script(level)
for n in range(5):
    kept = torch.cat(hours)
    print(level(hours[0], hours[1]))
"""
    recording = record_program(START + body, tmp_path)
    (note,) = [one for one in recording.findings if one.slug == "needless-copy"]
    assert "that nothing reads" in note.message


@pytest.mark.filterwarnings("ignore")
def test_a_call_is_one_event(tmp_path):
    body = """
add_one, tide = jit.script(add_one), jit.script(Tide())
for one in hours:
    add_one(one)
    tide(one)
try:
    tide(torch.randn(3, 4))
except RuntimeError:
    pass
"""
    recording = record_program(START + body, tmp_path)
    calls = [one for one in recording.trace.events if one.operation == "scripted"]
    assert [one.raised for one in calls] == [False] * 20 + [True]
    assert {recording.history.site_of(one).line for one in calls} == {36, 37, 39}
    for written, ran in zip(calls[:20:2], calls[1:20:2], strict=True):
        (given,) = written.reads
        assert [one.tensor for one in written.writes] == [given.tensor]
        assert given.tensor == ran.reads[0].tensor
        assert len(ran.reads) == 1 + 4 + 3  # parameters, buffers
        assert ran.writes  # the number of batches
        assert ran.results[0].requires_grad
    assert [one.times for one in gaps_of(recording)] == [1, 1]


def test_without_it_there_is_no_gap(tmp_path):
    recording = record_program(START + "print(Tide()(hours[0]).sum())", tmp_path)
    assert not gaps_of(recording)
