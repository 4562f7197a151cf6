"""Modules of several blocks that no loss saw for one reason, and such as have a reason each."""

from programs import record_program

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.scale = nn.LayerNorm(wide)
        self.lead = nn.Linear(wide, wide)
        self.tail = nn.Linear(wide, wide)

    def forward(self, x):
        y = self.scale(x)
        z = self.lead(x)
        SHOWN
        return x + self.tail(USED).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = Block(4), Block(4), Block(4)

    def forward(self, x):
        return self.third(self.second(self.first(x)))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.rand(8, 4)).square().mean().backward()
    opt.step()
"""


def _found(folder, shown, used):
    text = PROGRAM.replace("SHOWN", shown).replace("USED", used)
    return [one for one in record_program(text, folder).findings if one.slug == "gradient-unused"]


def test_blocks_that_leave_out_the_same_part_are_one_finding(tmp_path):
    (one,) = _found(tmp_path, "y = y.sigmoid()", "z")
    assert one.message.startswith("`net.first.scale` and 2 more that line 10 makes got no grad")
    assert "their values were used, but not for the loss" in one.message
    assert "leave them out" in one.fix.text
    assert len(one.tensors) == 6


def test_parts_of_one_block_that_end_at_lines_of_their_own_are_told_apart(tmp_path):
    found = _found(tmp_path, "y.sigmoid(); z.tanh()", "x")
    assert [len(one.tensors) for one in found] == [6, 6]
    assert {one.subject.split(".")[2] for one in found} == {"scale", "lead"}


def test_what_the_loss_saw_is_not_told(tmp_path):
    assert _found(tmp_path, "pass", "y + z") == []
