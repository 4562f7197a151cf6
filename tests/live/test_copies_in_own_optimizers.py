"""Copies that the step of a program's own optimizer makes, and drops again."""

import pytest

from programs import record_program

PROGRAM = """\
import torch, torch.nn as nn

class Own(torch.optim.{base}):
    {init}
    @torch.no_grad()
    def step(self{closure}):
{body}

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8))
opt = Own(net.parameters(), lr=0.01)
x = torch.randn(64, 64)
def again(clears):
    if clears:
        opt.zero_grad()
    with torch.enable_grad():
        loss = net(x).pow(2).mean()
        loss.backward()
    return loss
for n in range(6):
    opt.zero_grad()
    net(x).pow(2).mean().backward()
    {call}
"""
INIT = """def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
"""


def record(folder, body, *, base="Optimizer", closure="", call="opt.step()"):
    lines = "\n".join(f"        {line}" for line in body.strip("\n").split("\n"))
    init = INIT if base == "Optimizer" else "one = 1\n"
    text = PROGRAM.format(base=base, init=init, closure=closure, body=lines, call=call)
    recording = record_program(text, folder)
    assert recording.error is None
    return [one.subject.strip("`") for one in recording.findings if one.slug == "needless-copy"]


NEEDLESS = {
    "a gradient that is cloned to be read": """
for group in self.param_groups:
    for p in group["params"]:
        g = p.grad.clone()
        p.add_(g, alpha=-group["lr"])
""",
    "converted to the format that it has": """
for p in self.param_groups[0]["params"]:
    g = p.grad.data.to(torch.float32, copy=True)
    kept = self.state[p]
    if not kept:
        kept["square"] = torch.zeros_like(p)
    kept["square"].mul_(0.9).addcmul_(g, g, value=0.1)
    p.addcdiv_(g, kept["square"].sqrt().add_(1e-8), value=-0.01)
""",
    "all of them, in a list": """
params = self.param_groups[0]["params"]
g = [p.grad.detach().clone() for p in params]
norm = torch.stack([one.norm() for one in g]).norm()
for p, one in zip(params, g):
    p.sub_(0.01 * one / norm)
""",
}  # fmt: skip

RIGHT = {
    "the copy is decayed in place": """
for p in self.param_groups[0]["params"]:
    g = p.grad.clone()
    g.add_(p, alpha=0.1)
    p.sub_(0.01 * g)
""",
    "the gradient is scaled, and held against the copy": """
for p in self.param_groups[0]["params"]:
    g = p.grad.clone()
    p.grad.mul_(0.5)
    p.sub_(0.01 * (g + p.grad))
""",
    "the copy is kept for the next step": """
for p in self.param_groups[0]["params"]:
    last = self.state[p].get("last", p.grad)
    p.sub_(0.01 * (p.grad + last))
    self.state[p]["last"] = p.grad.clone()
""",
    "the parameter is put back": """
for p in self.param_groups[0]["params"]:
    old = p.clone()
    p.sub_(0.01 * p.grad)
    p.lerp_(old, 0.5)
""",
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDLESS)
def test_needless(name, tmp_path):
    found = record(tmp_path, NEEDLESS[name])
    assert len(found) == 1
    assert found[0] in ("g", "p.grad.detach().clone()")


@pytest.mark.parametrize("name", RIGHT)
def test_right(name, tmp_path):
    assert record(tmp_path, RIGHT[name]) == []


@pytest.mark.parametrize("clears", [True, False])
def test_another_pass_adds_to_gradients_that_were_not_let_go(tmp_path, clears):
    body = """
first = [p.grad.clone() for p in self.param_groups[0]["params"]]
closure()
for p, g in zip(self.param_groups[0]["params"], first):
    p.sub_(0.01 * (p.grad + g))
"""
    call = f"opt.step(lambda: again({clears}))"
    found = record(tmp_path, body, closure=", closure", call=call)
    assert found == (["first[0]"] if clears else [])


def test_a_step_of_pytorchs_own_within(tmp_path):
    body = """
first = [p.grad.clone() for p in self.param_groups[0]["params"]]
self.other = getattr(self, "other", None) or torch.optim.SGD(self.param_groups[0]["params"], 0.01)
self.other.step()
print(sum(one.sum() for one in first))
"""
    assert record(tmp_path, body) == []
