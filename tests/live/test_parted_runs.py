"""Losses of several rounds that are cut off from each other: found, and what looks alike.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

START = """\
import torch
from torch import nn

torch.manual_seed(0)
embed, cell, head = nn.Linear(3, 8), nn.GRUCell(8, 8), nn.Linear(8, 1)
opt = torch.optim.Adam(head.parameters(), lr=0.01)


def trains(*parts):
    for one in parts:
        opt.add_param_group({"params": one.parameters()})


def descend(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


"""

FOUND = {
    "a state that is detached as it is stored": """\
trains(embed, cell)
class Memory:
    def __init__(self):
        self.state = torch.zeros(4, 8)

    def see(self, x):
        state = cell(embed(x), self.state)
        self.state = state.detach()  #! gradient-lost embed.weight (note)
        return head(state)


for _ in range(4):
    memory = Memory()
    descend(sum(memory.see(torch.rand(4, 3)).pow(2).mean() for _ in range(6)))
""",
    "a rollout that goes on from numbers": """\
trains(embed)
for _ in range(4):
    x, loss = torch.rand(4, 3), 0.0
    for _ in range(6):
        out = embed(x).tanh()
        loss = loss + head(out).pow(2).mean()
        x = out[:, :3].data  #! gradient-lost embed.weight (note)
    descend(loss)
""",
    "losses that are stacked": """\
trains(embed, cell)
for _ in range(4):
    state, losses = torch.zeros(4, 8), []
    for x in torch.rand(5, 4, 3):
        state = cell(embed(x), state.detach())  #! gradient-lost embed.weight (note)
        losses.append(head(state).pow(2).mean())
    descend(torch.stack(losses).mean())
""",
    "two states": """\
other = nn.GRUCell(8, 8)
trains(embed, cell, other)
for _ in range(4):
    states, loss = [torch.zeros(4, 8), torch.zeros(4, 8)], 0.0
    for x in torch.rand(5, 4, 3):
        low = cell(embed(x), states[0])
        high = other(low, states[1])
        loss = loss + head(high).pow(2).mean()
        states = [one.detach() for one in (low, high)]  #! gradient-lost embed.weight (note)
    descend(loss)
""",
    "the memory of an LSTM that stands in a list": """\
lstm = nn.LSTMCell(3, 8)
trains(lstm)
for _ in range(4):
    hidden, outs = None, []
    for x in torch.rand(5, 4, 3):
        hidden = lstm(x, hidden)
        outs.append(head(hidden[0]))
        hidden = tuple(one.detach() for one in hidden)  #! gradient-lost lstm.weight_ih (note)
    descend(torch.cat(outs).pow(2).mean())
""",
}

RIGHT = {
    "one detach for each pass": """\
trains(embed, cell)
state = torch.zeros(4, 8)
for _ in range(6):
    loss, state = 0.0, state.detach()
    for x in torch.rand(5, 4, 3):
        state = cell(embed(x), state)
        loss = loss + head(state).pow(2).mean()
    descend(loss)
""",
    "a step of the optimizer for each detach": """\
trains(embed, cell)
state = torch.zeros(4, 8)
for x in torch.rand(12, 4, 3):
    state = cell(embed(x), state.detach())
    descend(head(state).pow(2).mean())
""",
    "a detach every few rounds of a long loss": """\
trains(embed, cell)
for _ in range(3):
    state, loss = torch.zeros(4, 8), 0.0
    for step, x in enumerate(torch.rand(18, 4, 3)):
        if step % 3 == 0:
            state = state.detach()
        state = cell(embed(x), state)
        loss = loss + head(state).pow(2).mean()
    descend(loss)
""",
    "an estimate that is refined, beside a state that goes on": """\
trains(embed, cell)
for _ in range(4):
    state, guess, loss = torch.zeros(4, 8), torch.rand(4, 3), 0.0
    for _ in range(5):
        state = cell(embed(guess.detach()), state)
        guess = guess.detach() + head(state)
        loss = loss + guess.pow(2).mean()
    descend(loss)
""",
    "layers that are each trained by a loss of their own": """\
layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(5))
trains(layers)
for _ in range(4):
    h, loss = torch.rand(4, 8), 0.0
    for layer in layers:
        h = layer(h.detach()).relu()
        loss = loss + (h - h.mean()).pow(2).mean()
    descend(loss)
""",
    "what is left over, quantized again": """\
book = nn.Linear(3, 3)
trains(embed, book)
for _ in range(4):
    rest, loss = embed(torch.rand(4, 3))[:, :3], 0.0
    for _ in range(4):
        near = book(rest)
        loss = loss + (near - rest).pow(2).mean()
        rest = rest - near.detach()
    descend(loss)
""",
    "scales that are taken from each part of a batch": """\
trains(embed, cell)
for _ in range(4):
    mean, loss = torch.ones(()), 0.0
    for x in torch.rand(5, 4, 3):
        part = head(cell(embed(x))).pow(2).mean()
        mean = 0.9 * mean + 0.1 * part.detach()
        loss = loss + part / mean
    descend(loss)
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_rounds_that_are_cut_off_from_each_other(body, tmp_path):
    check_program(START + body, tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_of_rounds_that_are_joined_nothing_is_said(body, tmp_path):
    found = record_program(START + body, tmp_path).findings
    assert [one.message for one in found if one.slug == "gradient-lost"] == []


def test_no_more_is_said_than_where_gradients_go(tmp_path):
    found = record_program(START + FOUND["a rollout that goes on from numbers"], tmp_path).findings
    (one,) = [one for one in found if one.slug == "gradient-lost"]
    assert one.message.endswith("goes through more than one round.")
