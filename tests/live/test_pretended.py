"""Tensors that only pretend to have memory: of the meta device, and under FakeTensorMode."""

import pytest

from programs import record_program
from warm import tether

BODY = """\
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(1 << 16, 1 << 16)
        self.head = torch.nn.Linear(1 << 16, 8)

    def forward(self, x):
        return self.head(self.body(x).detach())


with {mode}:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        loss = net(torch.ones(4, 1 << 16)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 1:
            best = net.state_dict()
    whole = torch.zeros(1000, 1000)
    part = whole.double()[:10].clone()
    net.load_state_dict(best)
"""

MODES = {"fake": "FakeTensorMode()", "meta": 'torch.device("meta")'}


@pytest.mark.parametrize("mode", MODES)
def test_ties_and_gradients_are_told_without_values(tmp_path, mode):
    recording = record_program(BODY.format(mode=MODES[mode]), tmp_path)
    told = {(one.slug, one.site.line) for one in recording.findings if one.severity == "warning"}
    assert told == {("gradient-cut", 12), ("alias-write", 24)}
    assert [gap.code for gap in recording.trace.gaps].count("pretended") == 1


@pytest.mark.parametrize("mode", MODES)
def test_bytes_are_said_to_be_pretended_and_pytorch_has_nothing_to_warn_of(tmp_path, mode):
    (tmp_path / "train.py").write_text(BODY.format(mode=MODES[mode]))
    done = tether("run", "--memory", "train.py", folder=tmp_path)
    told = " ".join((done.stdout + done.stderr).split())
    assert "Warning" not in told
    assert "iB copied, as pretended" in told
    assert "their bytes are those that they would have" in told


def test_a_fake_device_is_told_apart_from_the_real_one(tmp_path):
    recording = record_program(BODY.format(mode=MODES["fake"]), tmp_path)
    devices = {life.device for life in recording.trace.storages.values() if life.nbytes > 1 << 20}
    assert "cpu (pretended)" in devices
    assert "cpu" not in devices


def test_real_tensors_are_not_said_to_pretend(tmp_path):
    recording = record_program("import torch\nx = torch.ones(3).clone()\nprint(x)\n", tmp_path)
    assert not recording.trace.gaps
