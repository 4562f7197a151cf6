"""``--sample``: the first steps, then ever rarer ones, and what happens seldom."""

import gc
import os
import re

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack

from tether.facts import Gap
from tether.record import recorded_steps
from tether.record.session import Session
from tether.report.recording import Recording
from warm import tether


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x).detach())


def heard_steps(session, run):
    """The numbers of the steps that were recorded while `run(step)` called `step` many times."""
    heard, done = [], []

    def step(optimizer):
        if session.recorder.tape.active:
            heard.append(len(done))
        done.append(optimizer)
        optimizer.step()

    session.start()
    run(step)
    session.mute()
    return heard


def sgd():
    return torch.optim.SGD(nn.Linear(1, 1).parameters())


def test_the_first_steps_are_recorded_and_then_one_after_each_power_of_two():
    session, one = Session(sample=True), sgd()
    heard = heard_steps(session, lambda step: [step(one) for _ in range(300)])
    assert heard == [*range(recorded_steps.FIRST), 8, 16, 32, 64, 128, 256]
    assert Gap("sampled", "14 of 300") in session.recorder.tape.gap_facts()


def test_a_stretch_holds_a_step_of_each_optimizer_whose_turn_comes():
    often, seldom = sgd(), sgd()

    def run(step):
        for _ in range(60):
            for _ in range(5):
                step(often)
            step(seldom)

    heard = heard_steps(Session(sample=True), run)
    assert [number for number in heard if number >= 64] == [
        number for start in (64, 128, 256) for number in range(start, start + 6)
    ]


def test_optimizers_that_each_step_once_make_no_stretch_longer():
    session = Session(sample=True)
    assert heard_steps(session, lambda step: [step(sgd()) for _ in range(100)])[8:] == [
        8, 16, 32, 64,
    ]  # fmt: skip


def test_what_is_seldom_called_is_recorded_with_the_step_after_it():
    session, net = Session(sample=True), Net()
    one = torch.optim.SGD(net.parameters())
    kept = []

    def run(step):
        for number in range(200):
            net.train()  # called in every round: no door
            step(one)
            if number == 150:
                kept.append(net.state_dict())

    assert heard_steps(session, run)[-2:] == [128, 151]


def test_nothing_is_left_in_place_between_stretches_but_the_doors_and_nothing_afterwards():
    save, train = torch.save, nn.Module.train
    session, one = Session(sample=True), sgd()
    session.start()
    for _ in range(20):
        one.step()
    assert not _get_current_function_mode_stack()
    assert nn.Module.train is not train
    assert nn.Module.train.__wrapped__ is train
    session.mute()
    assert (torch.save, nn.Module.train) == (save, train)


class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_program_that_is_left_within_a_stretch_is_the_one_that_goes():
    session, one = Session(sample=True), sgd()
    session.start()
    for _ in range(14):
        one.step()
    with Mode() as mode:
        one.step()
        one.step()
        assert session.recorder.tape.active
        assert _get_current_function_mode_stack()[-1] is mode
    (left,) = _get_current_function_mode_stack()
    assert left is not mode
    session.mute()
    assert not _get_current_function_mode_stack()


PROGRAM = """\
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)

    def forward(self, x):
        return self.head(self.body(x).detach())


torch.manual_seed(0)
net, history = Net(), []
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(400):
    x = torch.randn(8, 4)
    copy = x.clone()
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss)
    if step % 50 == 20:
        best = net.state_dict()
net.load_state_dict(best)
print(float(net(torch.ones(1, 4))), copy.shape)
"""


def test_the_report_finds_what_is_wrong_in_every_step_and_what_a_state_ties(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = tether("run", "--sample", "--output-format", "concise", "train.py", folder=tmp_path)
    told = done.stdout + done.stderr
    found = set(re.findall(r"train\.py:(\d+):\d+: ([a-z-]+)", told))
    assert found >= {("10", "gradient-cut"), ("23", "graph-retained"), ("25", "alias-write")}
    assert "needless-copy" not in told  # a step that was not recorded may have written it


def test_the_report_says_how_much_of_the_run_was_recorded(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = tether("run", "--sample", "train.py", folder=tmp_path)
    bare = tether("run", "-q", "--no-children", "train.py", folder=tmp_path)
    told = " ".join(done.stderr.split())
    assert "of 400 optimizer steps were recorded (--sample)" in told
    assert done.stdout == bare.stdout


def test_sample_and_steps_exclude_each_other(tmp_path):
    (tmp_path / "train.py").write_text(PROGRAM)
    done = tether("run", "--sample", "--steps", "1:2", "train.py", folder=tmp_path)
    assert done.returncode == 2
    assert "--sample and --steps exclude each other" in done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a fork is asked for")
def test_a_forked_process_is_not_recorded_as_it_steps():
    session, one = Session(sample=True), sgd()
    session.start()
    for _ in range(15):
        one.step()
    child = os.fork()
    if child == 0:
        for _ in range(30):
            one.step()
        os._exit(int(session.recorder.tape.active))
    assert os.waitpid(child, 0)[1] == 0
    session.mute()


def test_tensors_that_came_and_went_between_stretches_leave_no_facts():
    session, net = Session(sample=True), Net()
    one = torch.optim.SGD(net.parameters())
    session.start()
    for _ in range(1000):
        one.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        one.step()
    gc.collect()
    recording = Recording(session.stop({"net": net}))
    assert len(recording.trace.events) < 400
    assert {row.status for row in recording.gradients} == {"none", "reached"}
