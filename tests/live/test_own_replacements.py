"""What a program puts in the place of a call of PyTorch's stays there."""

import torch

from programs import record_program

PROGRAM = """\
import torch

torch.cuda.synchronize = lambda *_: None
torch.save = lambda *_: None
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.ones(1, 2)).sum().backward()
opt.step()
torch.cuda.synchronize()
torch.save(net.state_dict(), "nowhere/at/all.pt")
"""


def test_a_call_that_the_program_replaces(tmp_path, monkeypatch):
    for owner, name in ((torch.cuda, "synchronize"), (torch, "save")):
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back after the test
    recording = record_program(PROGRAM, tmp_path)
    assert recording.error is None
    assert torch.save("anything", "nowhere/at/all.pt") is None
