"""Modules of a list that have one tensor as a buffer, and such as have each their own."""

import pytest

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Observer(nn.Module):
    def __init__(self, peak):
        super().__init__()
        self.register_buffer("peak", KEPT)

    def forward(self, x):
        WRITTEN
        return x / (self.peak + 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        peak = torch.zeros(4)
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.observers = nn.ModuleList(Observer(peak) for _ in range(3))

    def forward(self, x):
        for layer, observer in zip(self.layers, self.observers):
            x = observer(layer(x).relu())
        return x


net = Net()
with torch.no_grad():
    for _ in range(4):
        print(net(torch.randn(8, 4)).sum())
"""
WRITES = "torch.maximum(self.peak, x.abs().amax(0), out=self.peak)"


def _told(folder, kept="peak", written=WRITES):
    text = PROGRAM.replace("KEPT", kept).replace("WRITTEN", written)
    return [one for one in record_program(text, folder).findings if one.slug == "alias-write"]


def test_each_writes_what_is_the_buffer_of_all(tmp_path):
    (found,) = _told(tmp_path)
    assert (found.site.line, found.severity) == (20, "note")
    assert "The 3 modules of `net.observers` have one tensor as their `peak`" in found.message
    assert 13 in {one.site.line for one in found.evidence}


@pytest.mark.parametrize(
    "how",
    [
        {"kept": "peak.clone()"},
        {"written": "pass"},
        {"written": "self.peak = torch.maximum(self.peak, x.abs().amax(0))"},
    ],
)
def test_buffers_of_their_own_and_such_as_nobody_writes(how, tmp_path):
    assert not _told(tmp_path, **how)
