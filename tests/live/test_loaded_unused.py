"""Loaded values that the program's own lines write over before anything has read them."""

import pytest

from programs import record_program

PROGRAM = """\
import io
import torch
from torch import nn

torch.manual_seed(0)

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("known", torch.tensor(False))
        self.begun = False

    def forward(self, x):
        if FIRST:
            with torch.no_grad():
                WRITE
            self.begun = True
            self.known.fill_(True)
        return x * self.scale

def fit(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()

first = Norm()
fit(first)
disk = io.BytesIO()
torch.save(first.state_dict(), disk)
disk.seek(0)
second = Norm()
second.load_state_dict(torch.load(disk))
THEN
fit(second)
"""
PLAIN, BUFFER = "not self.begun", "not self.known"
COPY = "self.scale.copy_(1 / x.std(0))"

CASES = {
    "a flag that the state does not have": (PLAIN, COPY, "pass", True),
    "through data": (PLAIN, "self.scale.data.copy_(1 / x.std(0))", "pass", True),
    "a flag that the state has": (BUFFER, COPY, "pass", False),
    "read in between": (PLAIN, COPY, "print(second.scale.sum())", False),
    "from what was loaded": (PLAIN, "self.scale.mul_(x.std(0))", "pass", False),
    "a constant": (PLAIN, "self.scale.fill_(1.0)", "pass", False),
    "a draw": (PLAIN, "self.scale.normal_()", "pass", False),
    "a part of it": (PLAIN, "self.scale[:2] = 1 / x.std(0)[:2]", "pass", False),
    "by PyTorch's own initialisation": (PLAIN, "nn.init.uniform_(self.scale)", "pass", False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_loaded_and_written_over_unread(name, tmp_path):
    first, write, then, lost = CASES[name]
    text = PROGRAM.replace("FIRST", first).replace("WRITE", write).replace("THEN", then)
    found = [one for one in record_program(text, tmp_path).findings if one.slug == "values-lost"]
    assert [(one.severity, one.site.line) for one in found] == [("note", 17)] * lost


LAYER = """\
import torch
from torch import nn

torch.manual_seed(0)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 4))
        self.register_buffer("low", torch.zeros(4))
        self.register_buffer("high", torch.ones(4))
        self.adjust(torch.rand(8, 4))

    def adjust(self, x):
        LOW
        HIGH

    def forward(self, x):
        return (x.clamp(self.low, self.high)) @ self.weight.T


class Agent:
    def __init__(self):
        self.online, self.target = Layer(), Layer()

    def sync(self):
        self.target.load_state_dict(self.online.state_dict())

    def learn(self, x):
        self.target.adjust(x)
        return (self.online(x) - self.target(x).detach()).square().mean()


agent = Agent()
opt = torch.optim.SGD(agent.online.parameters(), lr=0.1)
for turn in range(4):
    agent.sync()
    opt.zero_grad()
    agent.learn(torch.rand(8, 4)).backward()
    opt.step()
"""
OF_DATA = "self.low.copy_(x.amin(0))", "self.high.copy_(x.amax(0))"
OF_NOISE = (
    "noise = torch.randn(4).abs().mul_(0.1); self.low.copy_(noise.sign() * noise)",
    "self.high.copy_(1 - torch.rand(4) * 0.1)",
)


def _lost(lines, folder):
    text = LAYER.replace("LOW", lines[0]).replace("HIGH", lines[1])
    return [one for one in record_program(text, folder).findings if one.slug == "values-lost"]


def test_lines_of_one_function_that_write_over_a_state_are_one_note(tmp_path):
    (one,) = _lost(OF_DATA, tmp_path)
    assert "line 16 and line 17 write other values over it" in one.message
    assert {"agent.target.low", "agent.target.high"} <= {one.subject, *one.also}


def test_the_call_above_is_that_of_the_write_after_the_load(tmp_path):
    (one,) = _lost(OF_DATA, tmp_path)
    called = [each.site.line for each in one.evidence if each.role == "called"]
    assert called == [31, 40]  # and not line 13, which reached it first


def test_noise_that_is_drawn_anew_is_meant_to_replace_what_was_loaded(tmp_path):
    assert _lost(OF_NOISE, tmp_path) == []
