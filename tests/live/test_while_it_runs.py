"""What `tether view --web` shows while a program runs: of a right program, no finding at any moment."""

import shutil
import sys
from pathlib import Path

import pytest

from tether.cli.serving import Watched
from tether.record import autosave
from tether.record.running import Program, run
from tether.record.session import Session

RIGHT = Path(__file__).parents[1] / "laws" / "right"

TWO_IN_TURN = """\
import torch
made, judged = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)
first = torch.optim.SGD(made.parameters(), lr=0.1)
second = torch.optim.SGD(judged.parameters(), lr=0.1)
for _ in range(3):
    fake = made(torch.randn(5, 2))
    second.zero_grad()
    judged(fake.detach()).square().mean().backward()  #  now `made` has no gradient yet
    second.step()
    first.zero_grad()
    judged(fake).square().mean().backward()
    first.step()
"""

KEPT_FOR_LATER = """\
import torch
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
start = model.weight.detach().clone()
losses = []
for _ in range(4):
    loss = model(torch.randn(4, 3)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
print((model.weight - start).norm().item(), torch.stack(losses).mean().item())
"""

NEVER_USED = """\
import torch
model = torch.nn.Linear(3, 1)
extra = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD([*model.parameters(), *extra.parameters()], lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.ones(4, 3)).square().mean().backward()
    optimizer.step()
"""


class Running:
    """A program that has not ended."""

    def poll(self):
        return None


def moments(file, folder, monkeypatch):
    """Run a program, and return its recording as it was after each batch."""
    kept, flush = [], autosave.Autosave.flush

    def flushed(self):
        flush(self)
        kept.append(shutil.copyfile(self.path, folder / f"{len(kept):03}.tether"))

    monkeypatch.setattr(autosave, "EVERY", 0.0)
    monkeypatch.setattr(autosave.Autosave, "flush", flushed)
    monkeypatch.setattr(sys, "argv", [str(file)])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    run(Program("script", str(file)), Session(), lambda _: 0, str(folder / "run.tether"))
    assert len(kept) >= 3
    return kept


def shown(files):
    """Return how many findings each moment's page has."""
    counts = []
    for file in files:
        watched = Watched(str(file), {}, Running())
        watched.look()
        assert watched.version == 1
        assert watched.state == "running"
        counts.append(watched.findings)
    return counts


@pytest.mark.parametrize(
    "program",
    [TWO_IN_TURN, KEPT_FOR_LATER, *(RIGHT / f"{one}.py" for one in ("two_models", "generations"))],
    ids=["two in turn", "kept for later", "two models", "generations"],
)
def test_a_right_program_shows_no_finding_at_any_moment(program, tmp_path, monkeypatch):
    file = tmp_path / "program.py"
    file.write_text(program if isinstance(program, str) else program.read_text())
    files = moments(file, tmp_path, monkeypatch)
    assert not any(shown(files[:: max(1, len(files) // 8)]))


def test_a_wrong_one_shows_its_finding_before_it_ends(tmp_path, monkeypatch):
    file = tmp_path / "program.py"
    file.write_text(NEVER_USED)
    assert shown(moments(file, tmp_path, monkeypatch))[-1] == 1


def test_what_only_costs_is_shown_when_the_program_has_ended(tmp_path, monkeypatch):
    file = tmp_path / "program.py"
    file.write_text(f"{KEPT_FOR_LATER}for _ in range(9):\n    print(start.clone().sum())\n")
    files = moments(file, tmp_path, monkeypatch)
    assert not any(shown(files))
    over = Watched(str(tmp_path / "run.tether"), {})
    over.look()
    assert over.findings == 1
