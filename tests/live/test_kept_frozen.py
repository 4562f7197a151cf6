"""Parameters that trained and were frozen, with an optimizer that goes on, and right look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

START = """\
import itertools
from contextlib import contextmanager

import torch
from torch import nn

torch.manual_seed(0)
enc, critic, actor = nn.Linear(4, 6), nn.Linear(6, 1), nn.Linear(6, 6)
opt = torch.optim.Adam([*enc.parameters(), *critic.parameters()], 1e-2)
actor_opt = torch.optim.Adam(actor.parameters(), 1e-2)


def train(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


def learn(x):
    opt.zero_grad()
    critic(torch.tanh(enc(x))).pow(2).mean().backward()
    opt.step()


def act(x):
    actor_opt.zero_grad()
    (-critic(actor(enc(x).detach())).mean()).backward()
    actor_opt.step()


"""

STAYS = {
    "an iterator, and a helper with a flag": """\
def switch(ps, on):
    for p in ps:
        p.requires_grad_(on)  #! parameter-frozen critic.weight


frozen = critic.parameters()
for _ in range(6):
    learn(torch.randn(8, 4))
    switch(frozen, False)
    act(torch.randn(8, 4))
    switch(frozen, True)
""",
    "a chain, in comprehensions": """\
ps = itertools.chain(critic.parameters())
for _ in range(6):
    learn(torch.randn(8, 4))
    [p.requires_grad_(False) for p in ps]  #! parameter-frozen critic.weight
    act(torch.randn(8, 4))
    [p.requires_grad_() for p in ps]
""",
    "let go at the end of a try": """\
ps = filter(lambda p: p.dim() > 0, critic.parameters())
def update(x):
    for p in ps:
        p.requires_grad = False  #! parameter-frozen critic.weight
    try:
        act(x)
    finally:
        for p in ps:
            p.requires_grad = True
for _ in range(6):
    learn(torch.randn(8, 4))
    update(torch.randn(8, 4))
""",
    "never let go, and frozen in each round": """\
def update(x):
    for p in critic.parameters():
        p.requires_grad = False  #! parameter-frozen critic.weight
    act(x)
for _ in range(6):
    learn(torch.randn(8, 4))
    update(torch.randn(8, 4))
""",
    "all that an optimizer holds": """\
g, d = nn.Linear(3, 4), nn.Linear(4, 1)
gopt, dopt = torch.optim.SGD(g.parameters(), .1), torch.optim.SGD(d.parameters(), .1)
for _ in range(6):
    fake = g(torch.randn(8, 3))
    dopt.zero_grad()
    (d(fake) - d(torch.randn(8, 4))).mean().backward()
    dopt.step()
    d.requires_grad_(False)  #! parameter-frozen d.weight
    gopt.zero_grad()
    (-d(g(torch.randn(8, 3)))).mean().backward()
    gopt.step()
""",
    "once, for another's loss": """\
for i in range(6):
    learn(torch.randn(8, 4))
    if i == 0:
        critic.requires_grad_(False)  #! parameter-frozen critic.weight (note)
    act(torch.randn(8, 4))
""",
    "single loss, frozen to evaluate": """\
parts = map(lambda p: p, critic.parameters())
for _ in range(6):
    learn(torch.randn(8, 4))
    for p in parts:
        p.requires_grad = False  #! parameter-frozen critic.weight
    print(critic(torch.ones(2, 6)).sum().item())
    for p in parts:
        p.requires_grad = True
""",
}

RIGHT = {
    "works": """\
for i in range(6):
    learn(torch.randn(8, 4))
    for p in critic.parameters():
        p.requires_grad = False
    act(torch.randn(8, 4))
    for p in critic.parameters():
        p.requires_grad = True
""",
    "wgan works, ends frozen": """\
for i in range(6):
    for p in critic.parameters():
        p.requires_grad = True
    learn(torch.randn(8, 4))
    for p in critic.parameters():
        p.requires_grad = False
    act(torch.randn(8, 4))
""",
    "progressive freezing": """\
for epoch in range(6):
    if epoch == 2:
        critic.requires_grad_(False)
    for _ in range(3):
        learn(torch.randn(8, 4))
""",
    "progressive freezing, asked each epoch": """\
for epoch in range(6):
    if epoch >= 2:
        for p in critic.parameters():
            p.requires_grad = False
    for _ in range(3):
        learn(torch.randn(8, 4))
        act(torch.randn(8, 4))
""",
    "layer by layer, all off then one on": """\
net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
o = torch.optim.SGD(net.parameters(), .1)
for stage in range(4):
    for p in net.parameters():
        p.requires_grad = False
    for p in net[stage].parameters():
        p.requires_grad = True
    for _ in range(3):
        train(o, net(torch.randn(8, 4)).pow(2).mean())
""",
    "layer by layer, stage changes between": """\
net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
o = torch.optim.SGD(net.parameters(), .1)
for stage in range(4):
    for _ in range(3):
        train(o, net(torch.randn(8, 4)).pow(2).mean())
    part = net[stage]
    for p in part.parameters():
        p.requires_grad = False
    part = net[min(stage + 1, 3)] if stage < 2 else net[3]
    for p in part.parameters():
        p.requires_grad = True
""",
    "an unfreeze that is scheduled and does not come": """\
for epoch in range(6):
    if epoch == 1:
        critic.requires_grad_(False)
    if epoch == 50:
        critic.requires_grad_(True)
    learn(torch.randn(8, 4))
""",
    "a phase, then the end": """\
ps = list(critic.parameters())
def phase():
    for p in ps:
        p.requires_grad = False
    for _ in range(5):
        learn(torch.randn(8, 4))
        act(torch.randn(8, 4))
    for p in ps:
        p.requires_grad = True
for _ in range(2):
    learn(torch.randn(8, 4))
phase()
""",
    "an iterator, the last round": """\
ps = critic.parameters()
for _ in range(5):
    learn(torch.randn(8, 4))
for p in ps:
    p.requires_grad = False
act(torch.randn(8, 4))
for p in ps:
    p.requires_grad = True
print(critic(torch.randn(2, 6)))
""",
    "context manager works": """\
@contextmanager
def frozen(m):
    for p in m.parameters():
        p.requires_grad = False
    yield
    for p in m.parameters():
        p.requires_grad = True
for _ in range(5):
    learn(torch.randn(8, 4))
    with frozen(critic):
        act(torch.randn(8, 4))
""",
    "context manager, long phase at the end": """\
@contextmanager
def frozen(m):
    for p in m.parameters():
        p.requires_grad = False
    yield
    for p in m.parameters():
        p.requires_grad = True
for _ in range(2):
    learn(torch.randn(8, 4))
with frozen(critic):
    for _ in range(5):
        learn(torch.randn(8, 4))
""",
    "pretrained, then frozen, other optimizer": """\
for _ in range(3):
    learn(torch.randn(8, 4))
critic.requires_grad_(False)
for _ in range(5):
    act(torch.randn(8, 4))
""",
    "gan toggle requires grad by helper": """\
def toggle(m, on):
    for p in m.parameters():
        p.requires_grad = on
for _ in range(5):
    toggle(critic, True)
    learn(torch.randn(8, 4))
    toggle(critic, False)
    act(torch.randn(8, 4))
""",
    "an optimizer for each part, one frozen": """\
a = torch.optim.SGD(enc.parameters(), .1)
b = torch.optim.SGD(critic.parameters(), .1)
for epoch in range(6):
    if epoch == 2:
        critic.requires_grad_(False)
    a.zero_grad()
    b.zero_grad()
    critic(enc(torch.randn(8, 4))).pow(2).mean().backward()
    a.step()
    b.step()
""",
    "wgan, both loops over an iterator that the first used up": """\
ps = (p for p in critic.parameters())
for _ in range(6):
    for q in ps:
        q.requires_grad = True
    learn(torch.randn(8, 4))
    for p in ps:
        p.requires_grad = False
    act(torch.randn(8, 4))
""",
    "the loss is computed without it since": """\
for i in range(6):
    x = torch.randn(8, 4)
    h = enc(x) if i else critic(enc(x))
    train(opt, h.pow(2).mean())
    critic.requires_grad_(False)
    act(x)
""",
    "frozen or let go by the phase": """\
for i in range(6):
    if i % 6 < 2:
        critic.requires_grad_(True)
    else:
        critic.requires_grad_(False)
    learn(torch.randn(8, 4))
""",
}


@pytest.mark.parametrize("text", STAYS.values(), ids=STAYS)
def test_what_stays_frozen_while_its_optimizer_goes_on(text, tmp_path):
    check_program(START + text, tmp_path)


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_what_is_let_go_again_or_frozen_for_good_is_not_told(text, tmp_path):
    recording = record_program(START + text, tmp_path)
    assert recording.error is None
    found = [one for one in recording.findings if one.slug == "parameter-frozen"]
    assert [one for one in found if "no longer trains" in one.message] == []


def test_the_line_that_was_to_let_it_go_is_told_with_what_it_goes_over(tmp_path):
    recording = record_program(START + STAYS["single loss, frozen to evaluate"], tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "parameter-frozen"]
    first = START.count("\n")
    assert "5 steps since then had no gradient, after 1 step that had one" in found.message
    assert f"was to be on again at line {first + 8}" in found.message
    lines = {one.site.line - first for one in found.evidence}
    assert {1, 5, 7, 8} <= lines


def test_a_line_that_freezes_again_says_so(tmp_path):
    text = START + STAYS["never let go, and frozen in each round"]
    (found,) = [
        one for one in record_program(text, tmp_path).findings if one.slug == "parameter-frozen"
    ]
    assert "runs again later, where it is frozen already" in found.evidence[0].text
