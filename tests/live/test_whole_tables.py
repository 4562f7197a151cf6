"""Embeddings that are asked for their rows in order, all or some: the weight, or a slice of it."""

import pytest

from programs import check_program, record_program

START = """\
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)


class Nodes(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.table = nn.Embedding(400, 32, **how)
        self.mix = nn.Linear(32, 8)
        self.register_buffer("ids", torch.arange(400))

    def forward(self):
        {forward}


def train(net, rounds=8):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for n in range(rounds):
        opt.zero_grad()
        net().pow(2).mean().backward()
        opt.step()


{run}
"""

NEEDLESS = {
    "by numbers that the module keeps": (
        """rows = self.table(self.ids)  #! needless-copy rows (note)
        return self.mix(rows) + rows.sum()""",
        "train(Nodes())",
    ),
    "by the function": (
        """rows = F.embedding(self.ids, self.table.weight)  #! needless-copy rows (note)
        return self.mix(rows)""",
        "train(Nodes())",
    ),
    "by numbers that are counted each time": (
        """rows = self.table(torch.arange(self.table.num_embeddings))  #! needless-copy rows (note)
        return self.mix(rows)""",
        "train(Nodes())",
    ),
    "the first rows, by numbers that the module keeps": (
        """rows = self.table(self.ids[:300])  #! needless-copy rows (note)
        return self.mix(rows)""",
        "train(Nodes())",
    ),
    "as many rows as a sequence is long": (
        """self.n = getattr(self, "n", 250) + 9
        places = torch.arange(self.n, device="cpu").unsqueeze(0)
        rows = self.table(places)  #! needless-copy rows (note)
        return self.mix(rows + torch.ones(3, self.n, 1))""",
        "train(Nodes())",
    ),
    "rows further on, by the function": (
        """places = torch.arange(64) + 32
        rows = F.embedding(places, self.table.weight)  #! needless-copy rows (note)
        return self.mix(rows)""",
        "train(Nodes())",
    ),
    "without a gradient": (
        """rows = self.table(self.ids)  #! needless-copy rows (note)
        return (rows @ rows[:8].t()).amax()""",
        """net = Nodes().requires_grad_(False)
for n in range(4):
    net()""",
    ),
}

RIGHT = {
    "in another order": (
        "return self.mix(self.table(self.ids.flip(0)))", "train(Nodes())",
    ),
    "numbers that stop at the last row": (
        "return self.mix(self.table(torch.arange(300).clamp(max=399)))", "train(Nodes())",
    ),
    "numbers that begin anew": (
        "return self.mix(self.table(torch.arange(300) % 400))", "train(Nodes())",
    ),
    "numbers that data put in order": (
        "return self.mix(self.table(torch.rand(300).add(torch.arange(300)).argsort()))",
        "train(Nodes())",
    ),
    "numbers of a list that is read": (
        """text = " ".join(map(str, range(300)))
        return self.mix(self.table(torch.tensor([int(one) for one in text.split()])))""",
        "train(Nodes())",
    ),
    "one row of those asked for": (
        "return self.mix(self.table(torch.arange(7, 8)))", "train(Nodes())",
    ),
    "each row for several": (
        "return self.mix(self.table(torch.arange(300).repeat_interleave(2)))", "train(Nodes())",
    ),
    "in one run another number": (
        """self.n = getattr(self, "n", 0) + 1
        ids = torch.arange(300)
        if self.n == 6:
            ids[4] = 9
        return self.mix(self.table(ids))""",
        "train(Nodes())",
    ),
    "a row for padding, which gets no gradient": (
        "return self.mix(self.table(self.ids))", "train(Nodes(padding_idx=0))",
    ),
    "rows that are made shorter": (
        "return self.mix(self.table(self.ids))", "train(Nodes(max_norm=1.0))",
    ),
    "the gradient of the rows in question alone": (
        "return self.mix(self.table(self.ids))",
        "net = Nodes(sparse=True)\ntrain(net)",
    ),
    "by the function, with a row for padding": (
        "return self.mix(F.embedding(self.ids, self.table.weight, padding_idx=3))", "train(Nodes())",
    ),
    "what came of it is written": (
        "return self.mix(self.table(self.ids).mul_(2.0))", "train(Nodes())",
    ),
    "the weight is read as well, and all gradients added up": (
        """rows = self.table(self.ids)
        return self.mix(rows) @ self.mix(rows + 1).t() + self.table.weight @ rows.t()""",
        "train(Nodes())",
    ),
    "once": ("return self.mix(self.table(self.ids))", "train(Nodes(), rounds=1)"),
}  # fmt: skip


def program(case):
    forward, run = case
    return START.format(forward=forward, run=run)


@pytest.mark.parametrize("name", NEEDLESS)
def test_needless(name, tmp_path):
    check_program(program(NEEDLESS[name]), tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_right(name, tmp_path):
    recording = record_program(program(RIGHT[name]), tmp_path)
    assert recording.error is None
    told = [f"{one.slug} {one.site.line} {one.message}" for one in recording.findings]
    assert not [one for one in told if one.startswith("needless-copy")]
