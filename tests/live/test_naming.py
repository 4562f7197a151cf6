"""Tensors are called what their user would write in the running program."""

import sys

import pytest
import torch

from programs import record_program
from tether.record.session import Session
from tether.record.sites import user_frames

PROGRAMS = {
    "a module's parameter": (
        """
        import torch
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"a": nn.Linear(2, 1)}))
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        model[1]["a"](model[0](torch.ones(1, 2))).sum().backward()
        opt.step()
        """,
        {"model.0.weight", "model.0.bias", "model.1.a.weight", "model.1.a.bias"},
    ),
    "from outside, not through self": (
        """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.h0 = nn.Parameter(torch.zeros(2))
        class Agent:
            def __init__(self):
                self.net = Net()
                self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
            def train(self):
                (self.net.h0 * 2).sum().backward()
                self.opt.step()
        agent = Agent()
        agent.train()
        """,
        {"agent.net.h0"},
    ),
    "a local of a function that has returned": (
        """
        import torch
        from torch import nn
        def main():
            model = nn.Linear(2, 1, bias=False)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            for p in model.parameters():
                p.data.mul_(1)
            model(torch.ones(1, 2)).sum().backward()
            opt.step()
        main()
        """,
        {"model.weight"},
    ),
    "a plain variable": (
        """
        import torch
        w = torch.ones(2, requires_grad=True)
        opt = torch.optim.SGD([w], lr=0.1)
        w.sum().backward()
        opt.step()
        """,
        {"w"},
    ),
    "in containers, dataclasses and slots": (
        """
        import dataclasses, torch
        @dataclasses.dataclass
        class State:
            weight: torch.Tensor
        class Slotted:
            __slots__ = ("bias",)
        state, slotted = State(torch.ones(2, requires_grad=True)), Slotted()
        slotted.bias = torch.ones(2, requires_grad=True)
        table = {"k": [torch.ones(2, requires_grad=True)]}
        opt = torch.optim.SGD([state.weight, slotted.bias, table["k"][0]], lr=0.1)
        (state.weight + slotted.bias + table["k"][0]).sum().backward()
        opt.step()
        """,
        {"state.weight", "slotted.bias", "table['k'][0]"},
    ),
}


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_trained_tensor_has_the_name_its_user_would_write(title, tmp_path):
    program, expected = PROGRAMS[title]
    recording = record_program(program, tmp_path)
    assert {row.name for row in recording.gradients} == expected


def test_a_tied_weight_has_its_shortest_name_and_the_others(tmp_path):
    recording = record_program(
        """
        import torch
        from torch import nn
        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.tok = nn.Embedding(4, 2)
                self.head = nn.Linear(2, 4, bias=False)
                self.head.weight = self.tok.weight
        lm = LM()
        opt = torch.optim.SGD(lm.parameters(), lr=0.1)
        (lm.tok.weight.detach() * 2).sum().requires_grad_().backward()
        opt.step()
        """,
        tmp_path,
    )
    (finding,) = [one for one in recording.findings if one.severity == "warning"]
    assert finding.subject == "lm.tok.weight"
    assert "lm.head.weight" in finding.also


def test_a_property_is_not_run_to_find_a_name(tmp_path):
    recording = record_program(
        """
        import torch
        class Trap:
            @property
            def weight(self):
                raise SystemExit("a property was run")
            def __getattr__(self, name):
                raise SystemExit("an attribute was asked for")
        trap = Trap()
        w = torch.ones(2, requires_grad=True)
        opt = torch.optim.SGD([w], lr=0.1)
        w.sum().backward()
        opt.step()
        """,
        tmp_path,
    )
    assert recording.error is None
    assert recording.trace.outcome == "finished"


def test_what_started_the_program_has_none_of_its_variables():
    """Else a search would go through all of pytest's objects, and its time would be over."""
    seen = []

    def look():
        seen.extend(one.f_code.co_name for one in user_frames(sys._getframe(1)))

    program = compile("def f():\n    look()\nf()\n", "<program>", "exec")
    exec(program, {"__name__": "__main__", "look": look})
    assert seen == ["f", "<module>"]


def test_a_recording_in_a_variable_is_not_gone_through():
    """What it holds is facts by the thousand: a search would be over before the model's turn."""
    session = Session()
    naming = session.recorder.naming
    naming.search([("session", session), ("holder", [session])])
    assert not {name for _, name in naming.facts}
    weight = torch.ones(2)
    serial = session.recorder.tape.who.serial(weight)
    session.recorder.left_behind = weight
    naming.search([("session", session), ("weight", weight)])
    assert set(naming.facts) == {(serial, "weight")}


def test_what_a_users_hook_keeps_has_a_name_and_what_a_librarys_hook_keeps_has_none(tmp_path):
    recording = record_program(
        """
        import queue, torch
        class Keeper:
            def __init__(self):
                self.seen = torch.zeros(2)
            def note(self, module, inputs, output):
                self.seen += output.detach().sum(0)
        model = torch.nn.Linear(2, 2)
        def hooked():
            own = queue.LifoQueue()  # an object of a library
            own.scale = torch.ones(2)
            own.scale.mul_(2)
            keeper = Keeper()
            model.register_forward_hook(keeper.note)
            model.finished = own.task_done  # a library's own method
        hooked()
        for _ in range(4):
            model(torch.ones(1, 2))
        """,
        tmp_path,
    )
    names = {one.name for one in recording.trace.names}
    assert any(name.endswith("__self__.seen") for name in names)
    assert not any(name.endswith("__self__.scale") for name in names)
