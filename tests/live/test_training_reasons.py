"""What is said of parameters that did not train is true as it is worded."""

from pathlib import Path

import pytest

import tether
from programs import record_program
from warm import python

HEAD = """
import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
"""


def told(tmp_path, body):
    """Return severity, message and lines of what is said of `w`."""
    found = record_program(HEAD + body, tmp_path).findings
    return [
        (one.severity, one.message, [step.site.line for step in one.evidence])
        for one in found
        if one.slug in ("parameter-unmoved", "gradient-zero")
    ]


def test_what_is_written_over_was_changed_by_its_steps(tmp_path):
    (_, message, lines) = told(
        tmp_path,
        """start = torch.full((3,), 2.0)
for _ in range(3):
    opt.zero_grad()
    (w * w).sum().backward()
    opt.step()
    with torch.no_grad():
        w.copy_(start)
""",
    )[0]
    assert "The steps of `w` are undone" in message
    assert "never changed" not in message
    assert 12 in lines


PASSES = """
for _ in range({times}):
    (w * w).sum().backward()
{after}
"""


@pytest.mark.parametrize(
    ("times", "after", "severity"),
    [
        (2, "", "warning"),  # gradients made again and again, and never read
        (1, "", "note"),
        (2, "print(w.grad)", None),  # they are what was wanted
    ],
)
def test_no_step_is_a_warning_where_nothing_reads_the_gradients(tmp_path, times, after, severity):
    found = told(tmp_path, PASSES.format(times=times, after=after))
    assert [one[0] for one in found] in ([severity], ["note"] if severity is None else [severity])
    if severity is None:
        assert "warning" not in [one[0] for one in found]


def test_ways_that_cancel_are_told_only_where_no_hook_acts(tmp_path):
    body = """{hook}
for _ in range(2):
    opt.zero_grad()
    ((w * 3) - (w * 3)).sum().backward()
    opt.step()
"""
    (_, message, lines) = told(tmp_path, body.format(hook=""))[0]
    assert "adds up to zero" in message
    assert 9 in lines
    hooked = told(tmp_path, body.format(hook="w.register_hook(lambda gradient: gradient * 2)"))
    assert not any("adds up" in one[1] for one in hooked)


def test_the_way_to_a_line_ends_with_the_programs_own_file(tmp_path):
    """What started the program, such as the installed command, is no line of it."""
    (tmp_path / "program.py").write_text(
        "import torch\n\n"
        "w = torch.ones(3, requires_grad=True)\n"
        "opt = torch.optim.SGD([w], lr=0.1)\n\n\n"
        "def loss():\n    return w.detach().sum() + 0 * w.sum().detach()\n\n\n"
        "try:\n    loss().backward()\nexcept RuntimeError:\n    pass\n"
    )
    command = tmp_path / "command.py"
    command.write_text("from tether.cli.main import main\n\nmain()\n")
    out = tmp_path / "out.tether"
    done = python(str(command), "run", "-o", str(out), "program.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    trace = tether.load(out).trace
    files = {Path(trace.sites[at].file).name for one in trace.callers for at in one.above}
    assert files == {"program.py"}


def findings(tmp_path, text):
    """Return slug, severity, message and lines of what is said of a program."""
    return [
        (one.slug, one.severity, one.message, [step.site.line for step in one.evidence])
        for one in record_program(text, tmp_path).findings
    ]


ENCODER = """
import torch

encoder, decoder = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
chosen = list(decoder.parameters())
opt = torch.optim.SGD([*encoder.parameters(), *chosen], lr=0.1)
for _ in range(4):
    opt.zero_grad()
    loss = decoder(encoder(torch.ones(5, 3))).pow(2).sum()
    {backward}
    opt.step()
"""


@pytest.mark.parametrize(
    "backward",
    [
        "loss.backward(inputs=chosen)",
        "for p, g in zip(chosen, torch.autograd.grad(loss, chosen)): p.grad = g",
    ],
)
def test_what_backward_was_not_asked_for_is_no_cut(tmp_path, backward):
    ((slug, severity, message, lines),) = findings(tmp_path, ENCODER.format(backward=backward))
    assert (slug, severity) == ("parameter-unmoved", "warning")
    assert "`encoder.weight` and 1 more never changed" in message
    assert "at line 10 asks for the gradients of other tensors only" in message
    assert {5, 10} <= set(lines)


def test_asking_for_all_of_them_says_nothing(tmp_path):
    everything = "loss.backward(inputs=[*encoder.parameters(), *chosen])"
    assert not findings(tmp_path, ENCODER.format(backward=everything))


WORKERS = """
import torch

shared = torch.nn.Linear(3, 1, bias=False)
workers = [torch.nn.Linear(3, 1, bias=False) for _ in range(2)]
opt = torch.optim.SGD(shared.parameters(), lr=0.1)
for step in range(6):
    worker = workers[step % 2]
    worker.load_state_dict(shared.state_dict())
    {clear}.zero_grad()
    worker(torch.ones(4, 3)).pow(2).sum().backward()
    shared.weight.grad = worker.weight.grad
    opt.step()
"""


def test_a_gradient_that_lives_on_as_anothers_is_used_again(tmp_path):
    found = findings(tmp_path, WORKERS.format(clear="opt"))
    ((_, severity, message, lines),) = [one for one in found if one[0] == "gradient-accumulated"]
    assert severity == "note"
    assert "line 12 makes one tensor the gradient of `shared.weight` and of `workers." in message
    assert "Line 10 clears it for `shared.weight` alone" in message
    assert {10, 11, 13} <= set(lines)
    assert not findings(tmp_path, WORKERS.format(clear="worker"))


LEARNING_TO_LEARN = """
import torch

w = torch.ones(3, requires_grad=True)
rate = torch.full((3,), 0.1, requires_grad=True)
opt = torch.optim.SGD([w, rate], lr=0.1)
for _ in range(3):
    {loop}
"""

ADAPTED = """opt.zero_grad()
    inner = (w * torch.rand(3)).pow(2).sum()
    (grad,) = torch.autograd.grad(inner, w{how})
    fast = w - 0.1 * grad
    (fast * torch.rand(3)).pow(2).sum().backward()
    opt.step()"""

ATTACKED = """opt.zero_grad()
    x = torch.rand(3, requires_grad=True)
    (grad,) = torch.autograd.grad((w * x).pow(2).sum(), x)
    (w * (x + 0.1 * grad.sign())).pow(2).sum().backward()
    opt.step()"""


def test_an_update_inside_a_loss_that_backward_takes_for_a_constant(tmp_path):
    text = LEARNING_TO_LEARN.format(loop=ADAPTED.format(how=""))
    ((_, severity, message, lines),) = [one for one in findings(tmp_path, text) if "lost" in one[0]]
    assert severity == "note"
    assert "changes `w` by it" in message
    assert lines == [10, 11, 12]
    whole = LEARNING_TO_LEARN.format(loop=ADAPTED.format(how=", create_graph=True"))
    assert not [one for one in findings(tmp_path, whole) if "lost" in one[0]]
    attack = LEARNING_TO_LEARN.format(loop=ATTACKED)  # of an input, which nothing trains
    assert not [one for one in findings(tmp_path, attack) if "lost" in one[0]]


def test_the_lines_between_a_cut_and_its_term_are_named(tmp_path):
    text = (
        HEAD
        + """
data = torch.rand(3)
for _ in range(3):
    opt.zero_grad()
    with torch.no_grad():
        known = w * data
    halved = known / 2
    apart = (halved - known).pow(2).sum()
    loss = (w - 1).pow(2).sum() + apart
    loss.backward()
    opt.step()
"""
    )
    rows = text.splitlines()
    ((_, _, _, lines),) = [one for one in findings(tmp_path, text) if "lost" in one[0]]
    assert 1 + rows.index("    halved = known / 2") in lines


def test_the_line_that_clears_too_seldom_is_named(tmp_path):
    text = (
        HEAD
        + """
for epoch in range(2):
    opt.zero_grad()
    for _ in range(4):
        w.pow(2).sum().backward()
        opt.step()
"""
    )
    clears = 1 + text.splitlines().index("    opt.zero_grad()")
    ((_, _, _, lines),) = [one for one in findings(tmp_path, text) if "accumulated" in one[0]]
    assert clears in lines


def test_gradients_that_the_program_overwrites_are_its_own(tmp_path):
    text = """
import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    w.pow(2).sum().backward()
    w.grad.copy_(2 * w.detach())
    opt.step()
"""
    assert not [one for one in findings(tmp_path, text) if one[0] == "gradient-accumulated"]


def test_a_step_by_another_optimizer_leaves_a_value_as_it_is(tmp_path):
    text = """
import torch

generator, critic = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
first = torch.optim.SGD(critic.parameters(), lr=0.1)
second = torch.optim.SGD(generator.parameters(), lr=0.1)
for _ in range(4):
    fake = generator(torch.ones(3, 2))
    first.zero_grad()
    critic(fake.detach()).sum().backward()
    first.step()
    second.zero_grad()
    (-critic(fake)).sum().backward()
    second.step()
"""
    assert not [one for one in findings(tmp_path, text) if one[0].startswith("gradient-")]


MASTERS = """
import torch

model = torch.nn.Linear(3, 1, bias=False).to(torch.bfloat16)
masters = [p.detach().float().requires_grad_() for p in model.parameters()]
opt = torch.optim.SGD(masters, lr=0.1)
for _ in range(3):
    model.zero_grad()
    model(torch.ones(4, 3, dtype=torch.bfloat16)).pow(2).sum().backward()
    for master, p in zip(masters, model.parameters()):
        master.grad = p.grad.float()
    opt.step()
    with torch.no_grad():
        for master, p in zip(masters, model.parameters()):
            {back}
"""


def test_a_gradient_given_to_a_copy_whose_values_never_come_back(tmp_path):
    found = findings(tmp_path, MASTERS.format(back="p = master.to(p.dtype)"))
    ((_, severity, message, lines),) = [one for one in found if one[0] == "parameter-unmoved"]
    assert severity == "note"
    assert "`model.weight` never changed: its gradient is given to `masters[0]`" in message
    assert {4, 5, 12, 15} <= set(lines)
    back = findings(tmp_path, MASTERS.format(back="p.copy_(master)"))
    assert not [one for one in back if one[0] == "parameter-unmoved"]


def test_each_result_of_a_call_holds_what_it_is_computed_from(tmp_path):
    """A call with several results is no web: `b` goes into the second only."""
    text = """
import torch

a = torch.ones(1, requires_grad=True)
b = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([a, b], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    x, y = torch.broadcast_tensors(a, b)
    {loss}.sum().backward()
    opt.step()
"""
    ((slug, _, message, lines),) = findings(tmp_path, text.format(loss="(x * 2)"))
    assert slug == "gradient-unused"
    assert "`b` got no gradient" in message
    assert 9 in lines
    assert not findings(tmp_path, text.format(loss="(x * y)"))


STEPS = """
import torch
from torch.optim import Optimizer


class Sign(Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    {leave}
                p.add_(p.grad.sign(), alpha=-group["lr"])


a, b, c = (torch.nn.Parameter(torch.ones(3)) for _ in range(3))
opt = Sign([a, b, c])
for _ in range(4):
    opt.zero_grad()
    (a * c).sum().backward()
    opt.step()
"""


def test_a_step_that_ends_before_it_comes_to_a_parameter(tmp_path):
    found = findings(tmp_path, STEPS.format(leave="return"))
    ((_, severity, message, lines),) = [one for one in found if one[0] == "parameter-unmoved"]
    assert severity == "warning"
    assert "`c` never changed: the step never writes it" in message
    assert "the gradient of `b`, which is None" in message
    assert 14 in lines
    going_on = findings(tmp_path, STEPS.format(leave="continue"))
    assert not [one for one in going_on if one[0] == "parameter-unmoved"]


CHANGES = """
kept = torch.zeros(3)
for _ in range(3):
    {before}
    opt.zero_grad()
    w.pow(2).sum().backward()
    {after}
    opt.step()
"""


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("if w.grad is not None: w.grad.mul_(0.5)", "pass", True),  # the step had used it by then
        ("pass", "w.grad.mul_(0.5)", False),
        ("if w.grad is not None: kept.add_(w.grad.mul_(0.5))", "pass", False),
        ("if w.grad is not None: old = w.grad.mul_(0.5)", "kept.add_(old) if _ else None", False),
        ("if w.grad is not None: w.grad.mul_(0.5).add_(1).clamp_(0, 1)", "pass", True),
    ],
)
def test_a_change_of_a_gradient_that_nothing_uses_is_lost(tmp_path, before, after, lost):
    found = findings(tmp_path, HEAD + CHANGES.format(before=before, after=after))
    discarded = [one for one in found if one[0] == "gradient-discarded"]
    assert bool(discarded) is lost
    for _, severity, message, lines in discarded:
        assert severity == "warning"
        assert "The gradient of `w` was changed at line 9 and cleared at line 10" in message
        assert {9, 10, 13} <= set(lines)


FIRST = """
import torch


class Scale(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(2))
        self.ready = False

    @torch.no_grad()
    def begin(self, x):
        self.scale.copy_(1 / x.std(0))
        {mark} = True

    def forward(self, x):
        if not self.ready:
            self.begin(x)
        return x * self.scale


model = Scale()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    opt.zero_grad()
    model(torch.randn(8, 2)).pow(2).sum().backward()
    opt.step()
"""


def test_what_writes_over_a_parameter_is_told_with_the_condition_that_leads_there(tmp_path):
    found = findings(tmp_path, FIRST.format(mark="self.done"))
    ((_, severity, _, lines),) = [one for one in found if one[0] == "parameter-unmoved"]
    assert severity == "note"
    assert {9, 13, 17, 18} <= set(lines)
    once = findings(tmp_path, FIRST.format(mark="self.ready"))
    assert not [one for one in once if one[0] == "parameter-unmoved"]


def test_a_step_that_never_ran_is_told_with_what_decides_about_it(tmp_path):
    text = """
import torch


class Guard:
    def __init__(self):
        self.seen = 0.0

    def fine(self, loss):
        if loss > 2 * self.seen:
            return False
        self.seen = loss
        return True


def update(opt):
    opt.step()


guard = Guard()
w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    opt.zero_grad()
    loss = w.pow(2).sum()
    loss.backward()
    if guard.fine(loss.item()):
        update(opt)
"""
    ((_, severity, message, lines),) = findings(tmp_path, text)
    assert severity == "warning"
    assert "no step of it ever ran" in message
    assert {10, 17, 27} <= set(lines)


def test_what_was_put_back_by_another_is_not_undone(tmp_path):
    """The inner of two swaps finds the average there; the outer one gives the values back."""
    text = """
import torch

w = torch.ones(3, requires_grad=True)
average = w.detach().clone()
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(4):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
    with torch.no_grad():
        average.lerp_(w, 0.1)
        outer = w.clone()
        w.copy_(average)
        inner = w.clone()
        w.copy_(inner)
        w.copy_(outer)
"""
    assert not [one for one in findings(tmp_path, text) if one[0] == "parameter-unmoved"]


HANDED_ON = """
import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    x, _ = torch.broadcast_tensors(w * 3, torch.ones(2, 3, requires_grad=True)[0])
    {hook}
    loss = (x * 2).sum()
    loss = {other} + loss
    loss.backward()
    opt.step()
"""


def test_ways_that_cancel_at_a_value_are_told_by_the_lines_that_use_it(tmp_path):
    (_, severity, message, lines) = next(
        one
        for one in findings(tmp_path, HANDED_ON.format(hook="", other="(-2 * x).sum()"))
        if one[0] == "gradient-zero"
    )
    assert severity == "note"
    assert "come back to mul at line 8 over several ways are not zero" in message
    assert {8, 10, 11} <= set(lines)
    hooked = "x.register_hook(lambda gradient: gradient * 0)"
    found = findings(tmp_path, HANDED_ON.format(hook=hooked, other="x.sum()"))
    assert not any("several ways" in one[2] for one in found)


ONE_ELEMENT = """
import torch
from torch import nn


class Gains(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5, 1))

    def forward(self, sound):
        return sound * self.weight


net = nn.utils.weight_norm(Gains())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(6):
    opt.zero_grad()
    (net(torch.rand(5, 30)) - 2).pow(2).mean().backward()
    opt.step()
"""


def test_what_normalizes_one_element_is_not_said_to_be_zero_by_its_values(tmp_path):
    recording = record_program(ONE_ELEMENT, tmp_path)
    (found,) = [one for one in recording.findings if one.slug == "gradient-zero"]
    said = " ".join((found.message, *(one.text for one in found.evidence)))
    assert "weight_v" in found.message
    assert "_weight_norm gives back only zeros over its input 1" in said
    assert "values of this run" not in said
    assert " lay between" not in said, "what was saved of others is no reason"
    assert "normalizes a single element" in found.fix.text


FACTOR = """
import torch
gain, level = torch.nn.Parameter(torch.ones(3)), torch.{made}(3)
opt = torch.optim.SGD([gain], lr=0.1)
for step in range(6):
    opt.zero_grad()
    {loss}.backward()
    opt.step()
"""


def test_a_saved_value_is_named_where_it_is_the_reason(tmp_path):
    text = FACTOR.format(made="zeros", loss="(gain * level).sum()")
    (found,) = [one for one in record_program(text, tmp_path).findings if "zero" in one.slug]
    said = " ".join(one.text for one in found.evidence)
    assert "what it saved as other lay between 0 and 0" in said


CACHED = """
import torch
from torch.nn.utils import parametrize


class Squared(torch.nn.Module):
    def forward(self, x):
        return x + 2


layer = torch.nn.Linear(3, 2)
parametrize.register_parametrization(layer, "weight", Squared())
opt = torch.optim.SGD(layer.parameters(), lr=0.1)


def update(x):
    opt.zero_grad()
    loss = layer(x).sum()
    loss.backward()
    opt.step()


with {outside}:
    for _ in range(3):
        with {inside}:
            update(torch.ones(4, 3))
"""


def test_a_value_that_a_context_keeps_is_told_with_the_line_that_opens_it(tmp_path):
    contexts = ("parametrize.cached()", "torch.enable_grad()")
    found = findings(tmp_path, CACHED.format(outside=contexts[0], inside=contexts[1]))
    (lines,) = [one[3] for one in found if one[0] == "gradient-stale"]
    assert {8, 20, 23} <= set(lines)
    found = findings(tmp_path, CACHED.format(outside=contexts[1], inside=contexts[0]))
    assert not [one for one in found if one[0] == "gradient-stale"]


LOADED = """
import torch
from torch import nn
head, body = nn.Linear(3, 1), nn.Linear(3, 3)
{before}
body.load_state_dict({{"weight": torch.zeros(3, 3), "bias": torch.zeros(3)}})
wanted = filter(lambda p: p.requires_grad, body.parameters())
print(sum(p.numel() for p in wanted))
opt = torch.optim.SGD([{{"params": wanted}}, {{"params": head.parameters()}}], lr=0.1)
for _ in range(3):
    opt.zero_grad()
    head(body(torch.ones(2, 3)) + 1).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize("before", ["", "nn.Linear(3, 3)(torch.ones(3)).sum().backward()"])
def test_what_was_loaded_before_its_first_gradient_did_not_train(tmp_path, before):
    text = LOADED.format(before=before)
    unmoved = [one for one in findings(tmp_path, text) if one[0] == "parameter-unmoved"]
    ((_, severity, message, lines),) = unmoved
    assert (severity, "no optimizer holds it" in message) == ("warning", True)
    assert {
        text.splitlines().index(one) + 1 for one in text.splitlines() if "filter" in one
    } <= set(lines)


def test_a_rate_of_zero_that_was_loaded_is_told_with_the_line_that_loads_it(tmp_path):
    text = """
import torch

w = torch.ones(3, requires_grad=True)
before = torch.optim.SGD([w], lr=0.0)
opt = torch.optim.SGD([w], lr=0.1)
opt.load_state_dict(before.state_dict())
for _ in range(3):
    opt.zero_grad()
    w.pow(2).sum().backward()
    opt.step()
"""
    (found,) = record_program(text, tmp_path).findings
    assert found.slug == "parameter-unmoved"
    assert 7 in {one.site.line for one in found.evidence}


BY_HAND = """\
import torch

torch.manual_seed(0)
m, x = torch.nn.Linear(8, 1), torch.randn(16, 8)
for step in range(4):
    m(x).pow(2).mean().backward()
    with torch.no_grad():
        ps = list(m.parameters())
        {update}
        {after}
"""

UPDATES = {
    "for p in ps: p -= 0.1 * p.grad",
    "for p in ps: p.data -= 0.1 * p.grad.data",
    "for p in ps: p.copy_(p - 0.1 * p.grad / (1e-3 + p.grad.norm()))",
    "torch._foreach_add_(ps, [p.grad for p in ps], alpha=-0.1)",
}

CLEARED = {
    "m.zero_grad()",
    "for p in ps: p.grad = None",
    "for p in ps: p.grad.zero_()",
    "for p in ps: p.grad.data.fill_(0)",
    "for p in ps: p.grad.numpy()[:] = 0",
    "for p in ps: p.grad *= 0.9",
    "for p in ps: p.grad = torch.zeros_like(p)",
}


@pytest.mark.parametrize("update", sorted(UPDATES))
def test_updates_by_hand_use_what_is_never_cleared(tmp_path, update):
    text = BY_HAND.format(update=update, after="pass")
    ((_, severity, message, _),) = findings(tmp_path, text)
    assert severity == "warning"
    assert "3 updates at line 9 use again" in message


WHERE_WORST = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
heights, kinds = torch.rand(40, 6), torch.randint(3, (40,))
shift = torch.zeros(40, 6)
for turn in range(6):
    shift.requires_grad = True
    guess = model((heights + shift).clamp(0, 2).exp().log())
    torch.nn.functional.cross_entropy(guess, kinds).backward()
    slope = shift.grad.detach()
    right = guess.softmax(1).max(1)[1] == kinds
    shift.data[right] = torch.clamp(shift + 0.1 * torch.sign(slope), -0.5, 0.5)[right]
    {after}
"""


def test_a_mask_of_the_outputs_does_not_hide_an_update_by_a_gradient(tmp_path):
    ((slug, _, message, _),) = findings(tmp_path, WHERE_WORST.format(after="pass"))
    assert slug == "gradient-accumulated"
    assert "updates at line 13 use again" in message
    cleared = WHERE_WORST.format(after="shift.grad = None")
    assert findings(tmp_path, cleared) == []


@pytest.mark.parametrize("after", sorted(CLEARED))
def test_updates_by_hand_that_clear_are_right(tmp_path, after):
    text = BY_HAND.format(update="for p in ps: p -= 0.1 * p.grad", after=after)
    assert not [one for one in findings(tmp_path, text) if one[0] == "gradient-accumulated"]


WINDOWS = """\
import torch

torch.manual_seed(0)
m, x = torch.nn.Linear(8, 1), torch.randn(16, 8)
opt = torch.optim.SGD(m.parameters(), lr=0.1)
for epoch in range(3):
    for step in range({passes}):
        if {clears}: opt.zero_grad()
        m(x).pow(2).mean().backward()
        {read}
        if (step + 1) % 4 == 0: opt.step()
    {after}
"""


def left_over(tmp_path, clears="step % 4 == 0", passes=7, read="pass", after="pass"):
    text = WINDOWS.format(clears=clears, passes=passes, read=read, after=after)
    return [one for one in findings(tmp_path, text) if "were left over" in one[2]]


def test_passes_that_an_epoch_leaves_over_are_told(tmp_path):
    ((slug, severity, message, lines),) = left_over(tmp_path)
    assert (slug, severity) == ("gradient-discarded", "note")
    assert "6 more passes were left over, 2 times" in message
    assert 8 in lines


@pytest.mark.parametrize(
    "one",
    [
        {"passes": 8},
        {"after": "opt.step()"},
        # What is left over counts for the next epoch.
        {"clears": "epoch + step and sum(p.grad.abs().sum() for p in m.parameters()) == 0"},
        # Read before it is cleared, as to know how large it is.
        {"read": "norm = sum(p.grad.norm() for p in m.parameters())"},
    ],
)
def test_windows_that_lose_nothing_are_right(tmp_path, one):
    assert not left_over(tmp_path, **one)


COUNTED = """\
import torch

torch.manual_seed(0)
m, x = torch.nn.Linear(8, 1), torch.randn(16, 8)
opt, seen, since = torch.optim.SGD(m.parameters(), lr=0.1), 0, 0
for epoch in range({epochs}):
    {begin}
    for step in range({passes}):
        m(x).pow(2).mean().backward()
        {read}
        seen, since = seen + 1, since + 1
        if {due}:
            opt.step()
            opt.zero_grad()
            since = 0
    {end}
"""


def counted(tmp_path, begin="m.zero_grad()", due="seen % 4 == 0", **others):
    parts = {"epochs": 4, "passes": 6, "read": "pass", "end": "pass"} | others
    text = COUNTED.format(begin=begin, due=due, **parts)
    return [one for one in findings(tmp_path, text) if "use a part of them alone" in one[2]]


def test_windows_that_go_on_over_a_clearing_are_told(tmp_path):
    ((slug, severity, message, lines),) = counted(tmp_path)
    assert (slug, severity) == ("gradient-discarded", "note")
    assert "has 4 passes of backward at line 9 before it, and 2 of the steps" in message
    assert "line 7 clears what 4 passes gave" in message
    assert {7, 9, 13} <= set(lines)


@pytest.mark.parametrize(
    "one",
    [
        {"passes": 8},
        {"begin": "pass"},
        # The count begins anew, and so it is told of what is left over.
        {"begin": "m.zero_grad(); since = 0", "due": "since == 4"},
        {"end": "opt.step() if since else None; since = 0", "due": "since == 4"},
        # Once may be meant.
        {"epochs": 2},
        {"due": "seen % 4 == 0 or step == 5"},
        # Read before it is cleared, as to know how large it is.
        {"read": "norm = sum(p.grad.norm() for p in m.parameters())"},
        # One pass for each step, and an epoch that begins by clearing.
        {"due": "True"},
    ],
)
def test_windows_of_which_nothing_is_cleared_are_right(tmp_path, one):
    assert not counted(tmp_path, **one)


ADJOINT = """
import torch


class Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx, field, start, *parameters):
        ctx.field = field
        ctx.save_for_backward(start, *parameters)
        return start + 0.1 * field(start)

    @staticmethod
    def backward(ctx, gradient):
        start, *parameters = ctx.saved_tensors
        with torch.enable_grad():
            start = start.detach().requires_grad_()
            moved = start + 0.1 * ctx.field(start)
        wanted = [start, *(one for one in parameters if one.requires_grad)]
        given = list(torch.autograd.grad(moved, wanted, gradient))
        others = [given.pop(1) if one.requires_grad else None for one in parameters]
        return None, given[0], *others


net = torch.nn.Linear(3, 3)
rate, offset = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
opt = torch.optim.SGD([*net.parameters(), rate, offset], lr=0.1)
{before}
for _ in range(3):
    opt.zero_grad()
    {scaled}
    out = Solve.apply(lambda x: net(x) * scale, torch.ones(4, 3) + offset, {handed})
    out.pow(2).sum().backward()
    opt.step()
"""


@pytest.mark.parametrize("scaled", ["scale = rate", "scale = rate.exp()"])
def test_what_a_function_computes_with_and_is_not_handed(tmp_path, scaled):
    program = ADJOINT.format(before="", scaled=scaled, handed="*net.parameters()")
    ((slug, severity, message, lines),) = findings(tmp_path, program)
    assert (slug, severity) == ("parameter-unmoved", "warning")
    assert "`rate` never changed: Solve.apply at line 31 computes with it" in message
    assert lines[0] == 31


@pytest.mark.parametrize(
    ("before", "handed"),
    [
        ("", "*net.parameters(), rate"),
        ("rate.requires_grad_(False); opt.param_groups[0]['params'].pop(2)", "*net.parameters()"),
    ],
)
def test_what_a_function_is_handed_or_is_frozen(tmp_path, before, handed):
    program = ADJOINT.format(before=before, scaled="scale = rate", handed=handed)
    assert not [one for one in findings(tmp_path, program) if one[1] != "note"]


def test_the_table_has_what_no_optimizer_got(tmp_path):
    text = """\
import torch
from torch import nn

body, scale = nn.Linear(3, 1), nn.Linear(1, 1)


def build(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


opt = build(body)
for _ in range(3):
    opt.zero_grad()
    scale(body(torch.rand(8, 3))).pow(2).mean().backward()
    opt.step()
"""
    recording = record_program(text, tmp_path)
    rows = {one.name: (one.status, one.changed) for one in recording.gradients}
    assert rows["scale.weight"] == ("reached", False)
    assert rows["body.weight"] == ("reached", True)
    (found,) = [one for one in recording.findings if one.subject == "scale.weight"]
    assert text.splitlines().index("opt = build(body)") + 1 in [
        one.site.line for one in found.evidence
    ]
