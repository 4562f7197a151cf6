"""Copies that a variable has for longer than any line can read them, and copies that may be read.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

START = """\
import copy
import torch
from torch import nn

torch.manual_seed(0)
x = torch.randn(16, 64)


def made():
    net = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 1))
    return net, torch.optim.SGD(net.parameters(), lr=0.01)


def stepped(net, opt):
    loss = net(x).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()


@torch.no_grad()
def scored(net):
    return net(x).sum().item()


"""

FOUND = {
    "a model copied for each evaluation": """\
def main(net, opt):
    for step in range(6):
        stepped(net, opt)
        if step % 2:
            snapshot = copy.deepcopy(net)  #! needless-copy snapshot (note)
            score = scored(snapshot)
            print(step, score)


main(*made())
""",
    "a model copied first, and computed with in the loop itself": """\
def main(net, opt, rounds=3):
    best = 0.0
    while rounds:
        rounds -= 1
        frozen = copy.deepcopy(net)  #! needless-copy frozen (note)
        with torch.inference_mode():
            for row in x.split(4):
                out = frozen(row)
                best = max(best, out.sum().item())
        for _ in range(2):
            stepped(net, opt)
    print(best)


main(*made())
""",
    "a tensor copied before it is moved": """\
def main(state):
    for step in range(4):
        before = state.clone()  #! needless-copy before (note)
        size = before.norm()
        print(step, size.item())
        state.mul_(0.9)
    print(state.sum().item())


main(torch.randn(64, 64))
""",
}

QUIET = {
    "a copy that a later step is compared with": """\
def main(net, opt):
    for step in range(4):
        before = copy.deepcopy(net)
        stepped(net, opt)
        print(scored(before) - scored(net))


main(*made())
""",
    "a copy that a line reads which did not run": """\
def main(net, opt):
    for step in range(4):
        before = copy.deepcopy(net)
        score = scored(before)
        stepped(net, opt)
        if scored(net) > score + 1e6:
            net.load_state_dict(before.state_dict())


main(*made())
""",
    "a copy that is put back after all": """\
def main(net, opt):
    for step in range(4):
        saved = copy.deepcopy(net)
        score = scored(saved)
        stepped(net, opt)
    if score > 1e6:
        net.load_state_dict(saved.state_dict())
    print(scored(net))


main(*made())
""",
    "a copy that its own statement steps beside": """\
def compared(old, net, opt):
    first = scored(old)
    stepped(net, opt)
    return scored(net) - first


def main(net, opt):
    for step in range(4):
        old = copy.deepcopy(net)
        score = compared(old, net, opt)
        print(score)


main(*made())
""",
    "a copy that an object keeps": """\
class Judge:
    def __call__(self, net):
        self.net = net
        return scored(net)


def main(net, opt, judge):
    for step in range(4):
        snapshot = copy.deepcopy(net)
        score = judge(snapshot)
        stepped(net, opt)
        print(score)


main(*made(), Judge())
""",
    "a copy that what is made of it has": """\
class Reader:
    def __init__(self, net):
        self.net = net


def main(net, opt):
    for step in range(4):
        snapshot = copy.deepcopy(net)
        reader = Reader(snapshot)
        print(scored(snapshot))
        stepped(net, opt)
        if step > 10:
            print(scored(reader.net))


main(*made())
""",
    "copies of which the best is kept": """\
def main(net, opt):
    best, kept = 1e9, None
    for step in range(4):
        snapshot = copy.deepcopy(net)
        score = scored(snapshot)
        if score < best:
            best, kept = score, snapshot
        stepped(net, opt)
    print(best)


main(*made())
""",
    "a copy in another mode": """\
def main(net, opt):
    net = nn.Sequential(net, nn.Dropout(0.5))
    for step in range(4):
        stepped(net, opt)
        probe = copy.deepcopy(net)
        probe.eval()
        print(scored(probe))


main(*made())
""",
    "a copy that is trained a little": """\
def main(net, opt):
    for step in range(4):
        probe = copy.deepcopy(net)
        stepped(probe, torch.optim.SGD(probe.parameters(), lr=0.01))
        print(scored(probe))
        stepped(net, opt)


main(*made())
""",
    "a tensor whose copy a closure reads": """\
def main(state):
    for step in range(4):
        before = state.clone()
        print(before.norm().item())
        later = lambda: before.sum()
        state.mul_(0.9)
    print(state.sum().item())


main(torch.randn(64, 64))
""",
    "a variable of the whole program": """\
def report():
    print(before.norm().item())


state = torch.randn(64, 64)
for step in range(4):
    before = state.clone()
    print(before.sum().item())
    state.mul_(0.9)
    if step > 10:
        report()
""",
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_a_copy_that_no_line_can_read_any_more_is_not_needed(program, tmp_path):
    recording = check_program(START + program, tmp_path)
    told = [str(one.message) for one in recording.findings if one.slug == "needless-copy"]
    assert ["nothing reads it any more" in one for one in told] == [True]


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_a_copy_that_may_be_read_is(program, tmp_path):
    findings = check_program(START + program, tmp_path).findings
    assert "needless-copy" not in {one.slug for one in findings}
