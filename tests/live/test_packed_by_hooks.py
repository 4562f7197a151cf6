"""What a program's hooks on saved tensors keep, written before backward asks for it.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program, record_program

START = """\
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks

torch.manual_seed(0)
sound = torch.randn(6, 8)
filters = nn.Linear(8, 8)
head = nn.Linear(8, 2)
opt = torch.optim.SGD([*filters.parameters(), *head.parameters()], lr=0.1)

"""

RUN = """
for step in range(3):
    with HOOKS:
        loud = torch.tanh(filters(sound))
        loss = head(loud * 2).pow(2).mean()
    WRITE
    opt.zero_grad()
    loss.backward()
    opt.step()
    AFTER
print(loss.item())
"""

MUL = "loud.detach().mul_(0.5)  #! untracked-write loud"

FOUND = {
    "a detached tensor": (
        "def keep(tensor):\n    return tensor.detach()\n", "saved_tensors_hooks(keep, lambda x: x)",
    ),
    "an array": (
        ("def keep(tensor):\n    return tensor.shape, tensor.detach().cpu().numpy()\n"
        "def give(kept):\n    return torch.from_numpy(kept[1]).reshape(kept[0])\n"),
        "saved_tensors_hooks(keep, give)",
    ),
    "an array of which a tensor is made anew": (
        "def keep(tensor):\n    return tensor.detach().numpy()\n", "saved_tensors_hooks(keep, torch.tensor)",
    ),
    "a table, by numbers": (
        ("kept = {}\n"
        "def keep(tensor):\n    kept[len(kept)] = tensor.detach()\n    return len(kept) - 1\n"),
        "saved_tensors_hooks(keep, kept.__getitem__)",
    ),
    "a conversion to the type that it has": (
        "", "saved_tensors_hooks(lambda x: x.detach().float(), lambda x: x)",
    ),
    "a class of hooks": (
        ("class Store(saved_tensors_hooks):\n"
        "    def __init__(self):\n        super().__init__(self.pack, self.unpack)\n"
        "    def pack(self, tensor):\n"
        "        if tensor.numel() < 20:\n            return tensor.clone()\n"
        "        return tensor.detach()\n"
        "    def unpack(self, kept):\n        return kept\n"),
        "Store()",
    ),
}  # fmt: skip

RIGHT = {
    "a clone": ("", "saved_tensors_hooks(lambda x: x.detach().clone(), lambda x: x)"),
    "a copy of the array": (
        "", "saved_tensors_hooks(lambda x: x.detach().numpy().copy(), torch.from_numpy)",
    ),
    "a smaller type": (
        "", "saved_tensors_hooks(lambda x: (x.dtype, x.half()), lambda x: x[1].to(x[0]))",
    ),
    "PyTorch's own": ("", "save_on_cpu()"),
    "a file": (
        ("import io\n"
        "def keep(tensor):\n    file = io.BytesIO()\n    torch.save(tensor, file)\n    return file\n"
        "def give(file):\n    file.seek(0)\n    return torch.load(file)\n"),
        "saved_tensors_hooks(keep, give)",
    ),
    "a table of copies, by numbers": (
        ("kept = {}\n"
        "def keep(tensor):\n    kept[len(kept)] = tensor.clone()\n    return len(kept) - 1\n"),
        "saved_tensors_hooks(keep, kept.__getitem__)",
    ),
}  # fmt: skip

DETACHED = ("", "saved_tensors_hooks(lambda x: x.detach(), lambda x: x)")

QUIET = {
    "nothing is written": ("pass", "pass"),
    "written after the pass": ("pass", "loud.detach().mul_(0.5)"),
    "what nobody saved is written": ("sound.neg()", "sound.mul_(1.01)"),
    "a copy is written": ("quiet = loud.detach().clone().mul_(0.5)", "pass"),
}


def _program(hooks, write, after="pass"):
    functions, context = hooks
    run = RUN.replace("HOOKS", context).replace("WRITE", write).replace("AFTER", after)
    return START + functions + run


def _untracked(text, tmp_path):
    recording = record_program(text, tmp_path)
    assert recording.error is None
    return [one for one in recording.findings if one.slug == "untracked-write"]


@pytest.mark.parametrize("hooks", FOUND.values(), ids=FOUND)
def test_what_a_hook_keeps_without_a_copy_is_written(hooks, tmp_path):
    check_program(_program(hooks, MUL), tmp_path)


@pytest.mark.parametrize("hooks", RIGHT.values(), ids=RIGHT)
def test_a_hook_that_copies_is_right(hooks, tmp_path):
    assert not _untracked(_program(hooks, "loud.detach().mul_(0.5)"), tmp_path)


@pytest.mark.parametrize(("write", "after"), QUIET.values(), ids=QUIET)
def test_what_is_not_written_before_it_is_asked_for_is_right(write, after, tmp_path):
    assert not _untracked(_program(DETACHED, write, after), tmp_path)


def test_weights_that_a_step_writes_under_a_later_pass(tmp_path):
    text = (
        START
        + """
with saved_tensors_hooks(lambda x: x.detach(), lambda x: x):
    first, second = (head(filters(sound)).pow(2).mean() for _ in range(2))  #! gradient-stale filters.weight
first.backward()
opt.step()  #! untracked-write head.weight
second.backward()
"""
    )
    check_program(text, tmp_path)


def test_a_part_that_nobody_saved_is_written(tmp_path):
    text = (
        START
        + """
both = torch.randn(2, 6, 8)
with saved_tensors_hooks(lambda x: x.detach(), lambda x: x):
    loss = filters(both[0]).pow(2).mean()
both[1].zero_()
loss.backward()
print(both.sum())
"""
    )
    assert not _untracked(text, tmp_path)


def test_values_that_batches_are_normed_by(tmp_path):
    text = (
        START
        + """
norm = nn.BatchNorm1d(8)
with saved_tensors_hooks(lambda x: x.detach(), lambda x: x):
    one, two = (norm(filters(sound + n)).pow(2).mean() for n in range(2))
(one + two).backward()
"""
    )
    assert not _untracked(text, tmp_path)


def test_the_line_of_the_hook_is_told(tmp_path):
    hooks = FOUND["a detached tensor"]
    (found,) = check_program(_program(hooks, MUL), tmp_path).findings
    lines = [one.site.line for one in found.evidence]
    text = _program(hooks, MUL).splitlines()
    assert text.index("    return tensor.detach()") + 1 in lines
    assert "`keep`" in str(found)


def test_hooks_run_as_ever(tmp_path):
    text = (
        START
        + """
seen = []
def keep(tensor):
    seen.append(("keep", type(tensor).__name__, tensor._version))
    return tensor.detach()
def give(kept):
    seen.append(("give", kept.shape))
    return kept
hooks = saved_tensors_hooks(keep, give)
with hooks:
    loss = torch.tanh(filters(sound)).sum()
loss.backward()
assert hooks.pack_hook is keep and hooks.unpack_hook is give
assert [one[0] for one in seen].count("keep") == [one[0] for one in seen].count("give") > 0
def refuse(tensor):
    raise ValueError("full")
try:
    with saved_tensors_hooks(refuse, give):
        torch.tanh(filters(sound))
except ValueError as error:
    assert str(error) == "full"
else:
    raise AssertionError("not raised")
"""
    )
    recording = record_program(text, tmp_path)
    assert recording.error is None
    assert not [gap for gap in recording.trace.gaps if gap.code == "failed"]
