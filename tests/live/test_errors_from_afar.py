"""An error is told with the lines that led to it, however far from the call that PyTorch refused.

The line that a program names with ``#!`` has to be among those that the finding shows.
"""

import pytest

from programs import record_program

PROGRAMS = {
    "a state that a module keeps is carried into the next pass": (
        """
        import torch
        from torch import nn
        class Tracker(nn.Module):
            def __init__(self):
                super().__init__()
                self.cell, self.memory = nn.GRUCell(3, 4), None
            def forward(self, x):
                state = self.cell(x, self.memory)
                self.memory = state  #!
                return state
        tracker = Tracker()
        optimizer = torch.optim.SGD(tracker.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            tracker(torch.randn(2, 3)).sum().backward()
            optimizer.step()
        """,
        "tracker.memory",
    ),
    "an entry of a dictionary is carried": (
        """
        import torch
        from torch import nn
        class Agent:
            def __init__(self):
                self.net, self.carry = nn.Linear(3, 3), {}
            def act(self, who, x):
                known = self.carry.get(who, torch.zeros(3))
                out = torch.tanh(self.net(x) + known)
                self.carry[who] = out  #!
                return out
        agent = Agent()
        for _ in range(3):
            agent.act("left", torch.randn(3)).sum().backward()
        """,
        "agent.carry['left']",
    ),
    "a module that is copied keeps what its forward computed": (
        """
        import copy, torch
        from torch import nn
        class Head(nn.Module):
            def __init__(self):
                super().__init__()
                self.lin, self.logits = nn.Linear(3, 2), None
            def forward(self, x):
                scores = self.lin(x)
                self.logits = scores  #!
                return scores.softmax(-1)
        def best_of(model):
            return copy.deepcopy(model)
        def fit():
            model = nn.Sequential(nn.Linear(3, 3), Head())
            model(torch.randn(2, 3)).sum().backward()
            return best_of(model)
        fit()
        """,
        "model.1.logits",
    ),
    "features made in inference mode, shown by a view": (
        """
        import torch
        from torch import nn
        def features(body, rows):
            with torch.inference_mode():
                return torch.cat([body(one) for one in rows.split(4)])  #!
        kept = features(nn.Linear(3, 5), torch.randn(8, 3))
        probe = nn.Linear(5, 1)
        def step(start):
            return probe(kept[start : start + 2]).sum()
        step(0).backward()
        """,
        "",
    ),
    "a function that is decorated makes them": (
        """
        import torch
        from torch import nn
        @torch.inference_mode()  #!
        def embed(table, ids):
            return table(ids)
        rows = embed(nn.Embedding(6, 4), torch.arange(6))
        nn.Linear(4, 2)(rows.view(2, 12)[:, :4]).sum().backward()
        """,
        "",
    ),
}


@pytest.mark.parametrize("title", PROGRAMS)
def test_the_line_that_led_to_an_error_is_shown(title, tmp_path):
    text, subject = PROGRAMS[title]
    recording = record_program(text, tmp_path)
    assert recording.error is not None
    (found,) = [one for one in recording.findings if one.slug == "tie-error"]
    shown = {step.site.line for step in found.evidence} | {found.site.line}
    lines = recording.trace.sources[found.site.file].splitlines()
    wanted = next(number for number, line in enumerate(lines, 1) if "#!" in line)
    assert wanted in shown
    if subject:
        assert found.subject == subject


def test_what_the_message_does_not_speak_of_is_not_told(tmp_path):
    recording = record_program(PROGRAMS["features made in inference mode, shown by a view"][0],
                               tmp_path)  # fmt: skip
    (found,) = [one for one in recording.findings if one.slug == "tie-error"]
    assert not [one for one in found.evidence if "probe.weight" in str(one.text)]
    assert "is an inference tensor" in str(found.message)
