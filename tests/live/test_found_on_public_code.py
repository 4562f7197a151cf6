"""Statements that were false of public programs, in the smallest programs that show them."""

import sys
import sysconfig

import pytest

from programs import record_program
from tether.record import sites

PADDED = """\
import torch
from torch import nn

torch.manual_seed(0)
items = nn.Embedding(12, 6, padding_idx=0)
net = nn.Linear(6, 1)
opt = torch.optim.Adam([*items.parameters(), *net.parameters()])
rows = torch.tensor([[0, 0, 3, 4], [0, 5, 6, 7], [0, 0, 0, 8]])
for _ in range(4):
    where = rows.view(-1)
    loss = net(items(where)).squeeze(-1)[where != 0].pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_padding_at_the_ends_of_rows_that_are_laid_out_one_after_the_other(tmp_path):
    assert record_program(PADDED, tmp_path).findings == []
    amid = PADDED.replace("[0, 5, 6, 7]", "[5, 0, 6, 7]")
    assert [one.slug for one in record_program(amid, tmp_path).findings] == ["gradient-zero"]


def test_what_is_put_into_elements_of_a_tensor_has_not_its_name(tmp_path):
    text = """\
import torch

into = torch.zeros(6, 3)
for _ in range(12):
    given = torch.randint(0, 2, (4, 3))
    into[1:5, :3] = given.clone()
    print((into.sum() + given.float().sum()).item())
"""
    (found,) = record_program(text, tmp_path).findings
    assert (found.slug, found.subject) == ("needless-copy", "given.clone()")
    kept = text.replace("into = torch.zeros(6, 3)", "into = {}").replace("[1:5, :3]", "[0]")
    kept = kept.replace("into.sum()", "into[0].sum()")
    assert [one.subject for one in record_program(kept, tmp_path).findings] == ["into[0]"]


def test_what_one_comprehension_makes_is_made_once(tmp_path):
    text = """\
import torch

torch.manual_seed(0)
values = {str(n): torch.zeros(200, 200) for n in range(10)}
for _ in range(4):
    other = {name: one + 1 for name, one in values.items()}
    mean = {name: (values[name] + other[name]) / 2 for name in values}
    values = {name: one.clone() for name, one in mean.items()}
    print(sum(one.sum().item() for one in values.values()))
print(len(mean))
"""
    assert "storage-pinned" not in {one.slug for one in record_program(text, tmp_path).findings}


def test_what_is_installed_beside_the_interpreter_is_a_librarys(monkeypatch):
    folders = ["/opt/shared/lib/python3/site-packages", "/home/me/project"]
    monkeypatch.setattr(sys, "path", [*sys.path, *folders])
    monkeypatch.setattr(
        sysconfig, "get_paths", lambda: dict.fromkeys(sysconfig.get_path_names(), "/x")
    )
    found = sites._library_folders()
    import torch

    assert "/opt/shared/lib/python3/site-packages/" in found
    assert "/home/me/project/" not in found
    assert any(torch.__file__.startswith(one) for one in found)


SUMMED = """\
import torch

torch.manual_seed(0)
w, total = torch.ones(4, requires_grad=True), 0
for batch in range(8):
    loss = (w * torch.randn(4)).pow(2).mean()
    loss.backward()
    total += loss.data
    if batch % 4 == 0 and batch:
        print(total.item() / 4)
        total = 0
"""


def test_a_sum_whose_last_turns_nobody_reads_is_no_copy(tmp_path):
    assert [one.slug for one in record_program(SUMMED, tmp_path).findings] == []


ROUNDS = """\
import copy

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(400, 400) for _ in range(4)])
opt = torch.optim.SGD(model.parameters(), lr=0.01)


class Server:
    def __init__(self):
        self.latest = copy.deepcopy(model.state_dict())
        self.past = []

    def local(self):
        model.load_state_dict(self.latest)
        opt.zero_grad()
        model(torch.randn(8, 400)).pow(2).mean().backward()
        opt.step()
        return copy.deepcopy(model.state_dict())

    def mean(self, states):
        summed = {name: 0 for name in states[0]}
        for state in states:
            for name in summed:
                summed[name] = summed[name] + state[name] / len(states)
        return summed

    def turn(self):
        states = [self.local() for _ in range(2)]
        self.latest = self.mean(states)
        {keep}


server = Server()
for _ in range(4):
    server.turn()
model.load_state_dict(server.latest)
print(model(torch.ones(1, 400)).sum().item())
"""


def test_what_each_round_replaces_is_kept_once(tmp_path):
    """And what each round adds is kept for nothing."""
    for keep, told in (("pass", []), ("self.past.append(states)", ["storage-pinned"])):
        found = record_program(ROUNDS.replace("{keep}", keep), tmp_path).findings
        assert [one.slug for one in found if one.slug == "storage-pinned"] == told


LATE = """\
import torch
from torch import nn

class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 8)
        self.last = nn.Linear(8, 1)
    def forward(self, x):
        return self.last(self.second(self.first(x)).relu())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = None
    def forward(self, x):
        if self.head is None:
            self.head = Head()
        return self.head(self.body(x))

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    net(torch.randn(8, 4)).pow(2).mean().backward()
    opt.step()
"""


def test_layers_that_one_function_makes_too_late_are_one_finding(tmp_path):
    (found,) = record_program(LATE, tmp_path).findings
    assert (found.slug, found.subject) == ("parameter-stale", "net.head.first.weight")
    assert {step.site.line for step in found.evidence} >= {7, 8, 9, 24}


NORMED = """\
import torch
from torch import nn


def normalize(module, input):
    module.weight = module.weight_orig / module.weight_orig.norm()


model = nn.Linear(4, 4)
weight = model.weight
del model._parameters["weight"]
model.register_parameter("weight_orig", weight)
model.register_buffer("weight", weight)
model.register_forward_pre_hook(normalize)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    model(torch.ones(2, 4)).pow(2).sum().backward()
    for p in model.parameters():
        {clip}
    opt.step()
"""


@pytest.mark.parametrize(
    "clip",
    [
        "p.grad.data.copy_(p.grad.data.clamp(-0.1, 0.1))",
        "p.grad.copy_(p.grad.clamp(-0.1, 0.1))",
        "p.grad.data.clamp_(-1, 1)",
        "p.grad.data[0] = 0",
        "p.grad.view(-1)[0] = 0",
        "p.grad.detach().mul_(0.5)",
    ],
)
def test_gradients_changed_in_place_and_a_weight_normed_for_each_pass(clip, tmp_path):
    assert record_program(NORMED.format(clip=clip), tmp_path).findings == []


STATE = """\
import copy

import torch
from torch import nn


def run(net, state, steps):
    opt = torch.optim.Adam(net.parameters(), lr=1e-2)
    if state is not None:
        opt.load_state_dict({loaded})
    for _ in range(steps):
        opt.zero_grad()
        net(torch.ones(2, 4)).pow(2).sum().backward()
        opt.step()
    return opt


state = None
for _ in range(3):
    opt = run(nn.Linear(4, 4), state, 2)
    state = {kept}
    run(nn.Linear(4, 4), state, 5)
    print(state["state"][0]["step"].item())
"""


@pytest.mark.parametrize(
    ("loaded", "kept", "told"),
    [
        ("state", "opt.state_dict()", [10]),
        ("state", "copy.deepcopy(opt.state_dict())", [10]),
        ("copy.deepcopy(state)", "opt.state_dict()", []),
    ],
)
def test_an_optimizer_goes_on_in_the_state_that_it_loaded(loaded, kept, told, tmp_path):
    found = record_program(STATE.format(loaded=loaded, kept=kept), tmp_path).findings
    warned = [one for one in found if one.severity != "note"]
    assert [(one.slug, one.site.line) for one in warned] == [("alias-write", line) for line in told]


LED = """\
import torch
from torch import nn


class Agent:
    def __init__(self):
        self.actor = nn.Linear(3, 1)
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=1e-3)
        self.critic, self.critic_target = nn.Linear(4, 1), nn.Linear(4, 1)
        self.critic_optim = torch.optim.Adam(self.critic.parameters(), lr=1e-3)

    def update(self):
        s, a, r = torch.randn(8, 3), torch.randn(8, 1), torch.randn(8, 1)
        target = r + 0.9 * self.critic_target(torch.cat([s, self.actor(s)], 1))
        self.critic_optim.zero_grad()
        (self.critic(torch.cat([s, a], 1)) - target).pow(2).mean().backward()
        self.critic_optim.step()
        self.actor_optim.zero_grad()
        (-self.critic(torch.cat([s, self.actor(s)], 1))).mean().backward()
        self.actor_optim.step()
        for t, p in zip(self.critic_target.parameters(), self.critic.parameters()):
            t.data.copy_(t.data * 0.99 + p.data * 0.01)


agent = Agent()
for _ in range(5):
    agent.update()
"""


def test_a_target_that_values_are_written_to_is_held_by_no_optimizer_on_purpose(tmp_path):
    found = record_program(LED, tmp_path).findings
    assert [(one.slug, one.severity) for one in found] == [("gradient-discarded", "note")]


TAKEN = """\
import torch
from torch import nn


def requires_grad(parameters, flag):
    for p in parameters:
        p.requires_grad = flag


def train(model):
    parameters = model.parameters()
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    for i in range(3):
        requires_grad(parameters, False)
        model(torch.rand(2, 4)).sum().backward()
        requires_grad(parameters, True)
        model.zero_grad()
        model(torch.ones(2, 4)).pow(2).sum().backward()
        optimizer.step()


train(nn.Linear(4, 4))
"""


def test_an_optimizer_that_had_gone_through_an_iterator_is_named_first(tmp_path):
    found = record_program(TAKEN, tmp_path).findings
    (one,) = [one for one in found if "iterator" in one.message]
    assert "line 12 has gone through it, and line 14 finds nothing left" in one.message
