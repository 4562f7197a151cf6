"""A report about a tensor says where it came in, in the lines of the caller as well.

Which lines a report must name stands in a comment at them: ``#: made``, ``#: in`` and so on.
"""

import re

import pytest

from programs import check_program, found_in, record_program

NETS = """\
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.into = nn.Linear(3, 4)
        self.back = nn.Linear(4, 4)
        self.out = nn.Linear(4, 1)

    def forward(self, x, h):
        h = torch.tanh(self.into(x) + self.back(h))
        return self.out(h), h


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(3, 4)
        self.two = nn.Linear(4, 1)

    def forward(self, x):
        return self.two(torch.relu(self.one(x)))


maker = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3))
critic = Critic()
maker_opt = torch.optim.SGD(maker.parameters(), 0.1)
critic_opt = torch.optim.SGD(critic.parameters(), 0.1)
cell = Cell()
cell_opt = torch.optim.SGD(cell.parameters(), 0.1)
"""

TWICE = {
    "what is made goes to the critic with its graph": (
        "drawn",
        """\
def step():
    drawn = maker(torch.randn(5, 2))  #: made
    first = critic(drawn).mean() - critic(torch.randn(5, 3)).mean()  #: in
    critic_opt.zero_grad()
    first.backward()
    critic_opt.step()
    second = -critic(drawn).mean()  #: in
    second.backward()

step()
""",
        "detach()` at line",
    ),
    "a state goes from one stretch to the next": (
        "memory",
        """\
def fit(memory):
    for _ in range(3):
        total = 0
        for _ in range(2):
            y, memory = cell(torch.randn(2, 3), memory)  #: in
            total = total + y.pow(2).mean()
        cell_opt.zero_grad()
        total.backward()
        cell_opt.step()

fit(torch.zeros(2, 4))
""",
        "memory = memory.detach()",
    ),
    "a state that an object keeps": (
        "player.seen",
        """\
class Player:
    def __init__(self):
        self.seen = torch.zeros(1, 4)

    def act(self, x):
        y, self.seen = cell(x, self.seen)
        return y

player = Player()
for _ in range(2):
    loss = player.act(torch.randn(1, 3)).sum()  #: in
    loss.backward()
""",
        "player.seen = player.seen.detach()",
    ),
    "features that are computed once": (
        "features",
        """\
features = maker(torch.randn(5, 2))  #: made
for _ in range(2):
    loss = critic(features).mean()  #: in
    loss.backward()
""",
        "again for each pass",
    ),
    "two losses of one step": (
        "shown",
        """\
shown = maker(torch.randn(5, 2))  #: made
near = critic(shown).mean()  #: in
far = shown.exp().mean()  #: in
near.backward()
far.backward()
maker_opt.step()
""",
        "retain_graph=True",
    ),
}

ONCE = {
    "cut for the critic": """\
for _ in range(2):
    drawn = maker(torch.randn(5, 2))
    first = critic(drawn.detach()).mean()
    critic_opt.zero_grad()
    first.backward()
    critic_opt.step()
    maker_opt.zero_grad()
    (-critic(drawn).mean()).backward()
    maker_opt.step()
""",
    "kept on purpose, before any step": """\
for _ in range(2):
    drawn = maker(torch.randn(5, 2))
    critic_opt.zero_grad()
    maker_opt.zero_grad()
    critic(drawn).mean().backward(retain_graph=True)
    drawn.pow(2).mean().backward()
    maker_opt.step()
    critic_opt.step()
""",
    "the maker learns from the same graph": """\
for _ in range(2):
    drawn = maker(torch.randn(5, 2))
    critic_opt.zero_grad()
    maker_opt.zero_grad()
    (-critic(drawn).mean()).backward()
    maker_opt.step()
    critic_opt.zero_grad()
    critic(drawn.detach()).mean().backward()
    critic_opt.step()
""",
    "the state is cut between stretches": """\
memory = torch.zeros(2, 4)
for _ in range(3):
    memory = memory.detach()
    y, memory = cell(torch.randn(2, 3), memory)
    cell_opt.zero_grad()
    y.mean().backward()
    cell_opt.step()
""",
    "both losses in one pass": """\
for _ in range(2):
    drawn = maker(torch.randn(5, 2))
    maker_opt.zero_grad()
    critic_opt.zero_grad()
    (critic(drawn).mean() + drawn.exp().mean()).backward()
    maker_opt.step()
    critic_opt.step()
""",
}


def lines_of(text, what):
    return {n for n, line in enumerate(text.splitlines(), 1) if re.search(f"#: {what}$", line)}


@pytest.mark.parametrize("case", TWICE)
def test_a_second_pass_names_what_was_carried_and_where_it_went_in(case, tmp_path):
    subject, program, repair = TWICE[case]
    recording = record_program(NETS + program, tmp_path)
    finding = next(one for one in recording.findings if one.slug == "tie-error")
    assert finding.subject == subject
    told = {one.site.line for one in finding.evidence}
    assert lines_of(NETS + program, "(made|in)") <= told, finding
    for line in lines_of(NETS + program, "(made|in)"):
        assert f"line {line}" in finding.message
    assert repair in finding.fix.text


@pytest.mark.parametrize("case", ONCE)
def test_nothing_is_said_of_graphs_that_are_gone_through_once(case, tmp_path):
    check_program(NETS + ONCE[case], tmp_path)


def test_a_line_that_several_lead_to_is_told_by_the_one_that_did(tmp_path):
    program = NETS + TWICE["what is made goes to the critic with its graph"][1]
    finding = next(one for one in record_program(program, tmp_path).findings)
    first, second = sorted(lines_of(program, "in"))
    said = {one.site.line: one.text for one in finding.evidence if "goes into" in one.text}
    assert "first loss" in said[first]
    assert "this loss" in said[second]


WRITTEN = {
    "a position that the world moves": """\
class World:
    def __init__(self):
        self.at = torch.zeros(1, 3)

    def move(self):
        self.at.add_(0.1)

world, loss = World(), 0
place = world.at
for _ in range(2):
    worth = critic(place)  #: in
    loss = loss + worth.mean()
    world.move()  #: in
loss.backward()
""",
    "a state of before the step": """\
memory = torch.zeros(2, 4)
for _ in range(3):
    y, memory = cell(torch.randn(2, 3), memory)  #: in
    cell_opt.zero_grad()
    y.mean().backward(retain_graph=True)
    cell_opt.step()
""",
    "a batch that a function scales": """\
def scaled(x):
    return x.mul_(2)

batch = torch.randn(4, 3)
worth = critic(batch)  #: in
scaled(batch)  #: in
worth.mean().backward()
""",
    "in a function of its own": """\
def fit():
    batch = torch.randn(4, 3)
    worth = critic(batch)  #: in
    batch.clamp_(0, 1)
    worth.mean().backward()

fit()
""",
    "the second of two that call the layer": """\
kept = critic(torch.randn(4, 3))
batch = torch.randn(4, 3)
worth = critic(batch)  #: in
batch.zero_()
(kept + worth).mean().backward()
""",
}

READ_BEFORE = {
    "moved out of place": """\
place = torch.zeros(1, 3)
loss = 0
for _ in range(2):
    loss = loss + critic(place).mean()
    place = place + 0.1
loss.backward()
""",
    "moved after the pass": """\
place = torch.zeros(1, 3)
for _ in range(2):
    critic(place).mean().backward()
    place.add_(0.1)
""",
    "given as a copy": """\
place, loss = torch.zeros(1, 3), 0
for _ in range(2):
    loss = loss + critic(place.clone()).mean()
    place.add_(0.1)
loss.backward()
""",
    "written before it goes in": """\
place = torch.zeros(1, 3)
place.add_(0.1)
critic(place).mean().backward()
""",
    "read without gradients": """\
place = torch.zeros(1, 3)
with torch.no_grad():
    critic(place)
place.add_(0.1)
critic(place).mean().backward()
""",
}


@pytest.mark.parametrize("case", WRITTEN)
def test_what_was_written_is_told_with_the_line_that_handed_it_in(case, tmp_path):
    program = NETS + WRITTEN[case]
    finding = next(
        one for one in record_program(program, tmp_path).findings if one.slug == "saved-overwritten"
    )
    assert lines_of(program, "in") <= {one.site.line for one in finding.evidence}
    assert finding.evidence[0].role != "called"


@pytest.mark.parametrize("case", READ_BEFORE)
def test_nothing_is_said_of_values_that_serve_before_they_are_written(case, tmp_path):
    recording = record_program(NETS + READ_BEFORE[case], tmp_path)
    assert recording.error is None
    assert "saved-overwritten" not in {one.slug for one in recording.findings}


TAKEN_OFF = {
    "a weight for a product": """\
w = torch.ones(3, requires_grad=True)
v = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w, v], lr=0.1)
for _ in range(3):
    loss = (w * v).sum() * w.detach_().sum()  #! parameter-frozen w
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a weight for its size, after a step": """\
for _ in range(3):
    critic_opt.zero_grad()
    critic(torch.randn(4, 3)).mean().backward()
    critic_opt.step()
    size = critic.one.weight.detach_().norm()  #! parameter-frozen critic.one.weight
""",
    "a layer's own weight, rounded": """\
class Rounded(nn.Linear):
    def forward(self, x):
        scale = self.weight.detach_().abs().max()  #! parameter-frozen rounded.weight
        w = self.weight + ((self.weight / scale).round() - self.weight).detach()
        return F.linear(x, w, self.bias)

rounded = Rounded(3, 2)
opt = torch.optim.SGD(rounded.parameters(), 0.1)
for _ in range(2):
    opt.zero_grad()
    rounded(torch.randn(4, 3)).mean().backward()
    opt.step()
""",
    "a code, though another detach is meant": """\
book = nn.Embedding(6, 3)
opt = torch.optim.SGD([*maker.parameters(), *book.parameters(), *critic.parameters()], 0.1)
for _ in range(2):
    z = maker(torch.randn(5, 2))
    q = book(torch.arange(5))
    apart = (q - z).detach()
    fit = F.mse_loss(q, z.detach_())  #! gradient-cut maker.0.weight
    loss = critic(z + apart).mean() + fit
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "shown between two passes, of which the second fails": """\
w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    loss = w.exp().sum()
    loss.backward()  #! tie-error loss
    opt.step()
    print(w.detach_().sum())  #! gradient-cut w
""",
}

MEANT = {
    "a copy off the graph": """\
for _ in range(2):
    critic_opt.zero_grad()
    critic(torch.randn(4, 3)).mean().backward()
    critic_opt.step()
    size = critic.one.weight.detach().norm()
""",
    "switched off on purpose": """\
critic.one.requires_grad_(False)
for _ in range(2):
    critic_opt.zero_grad()
    critic(torch.randn(4, 3)).mean().backward()
    critic_opt.step()
""",
    "taken off to freeze": """\
for one in critic.one.parameters():
    one.detach_()
for _ in range(2):
    critic_opt.zero_grad()
    critic(torch.randn(4, 3)).mean().backward()
    critic_opt.step()
""",
    "a state between stretches": """\
memory = torch.zeros(2, 4)
for _ in range(3):
    y, memory = cell(torch.randn(2, 3), memory.detach_())
    cell_opt.zero_grad()
    y.mean().backward()
    cell_opt.step()
""",
    "what was just made": """\
for _ in range(2):
    cell_opt.zero_grad()
    aim = cell(torch.randn(2, 3), torch.zeros(2, 4))[0].mul(2).detach_()
    y = cell(torch.randn(2, 3), torch.zeros(2, 4))[0]
    F.mse_loss(y, aim).backward()
    cell_opt.step()
""",
}


@pytest.mark.parametrize("case", TAKEN_OFF)
def test_what_was_taken_off_the_graph_itself_is_named_with_its_line(case, tmp_path):
    recording = check_program(NETS + TAKEN_OFF[case], tmp_path)
    said = " ".join(one.message for one in recording.findings)
    assert "never did" not in said
    assert "itself" in said


@pytest.mark.parametrize("case", MEANT)
def test_what_is_frozen_or_cut_on_purpose_is_right(case, tmp_path):
    recording = check_program(NETS + MEANT[case], tmp_path)
    assert not found_in(recording, [])
