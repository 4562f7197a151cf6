"""An optimizer that never steps is no stale one of another net with the same shapes."""

from programs import record_program

PROGRAM = """\
import torch

torch.manual_seed(0)
kept = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(kept.parameters())
asked = torch.nn.Linear(4, 4)
for _ in range(3):
    asked(torch.randn(2, 4)).sum().backward()
    STEPPED
print(asked.weight.grad.norm().item())
"""


def _told(stepped, folder):
    text = PROGRAM.replace("STEPPED", stepped)
    return [one for one in record_program(text, folder).findings if one.severity != "note"]


def test_it_is_told_of_nothing(tmp_path):
    assert not _told("pass", tmp_path)


def test_one_that_steps_is(tmp_path):
    (found,) = _told("optimizer.step()", tmp_path)
    assert (found.slug, found.site.line) == ("parameter-stale", 5)
