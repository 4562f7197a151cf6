"""The table that says of each line whether its copies were needed."""

from programs import record_program
from tether.report.document.text import render

TWICE_ON_A_LINE = """\
import torch

paint = torch.ones(3, 3, requires_grad=True)
left, right = torch.rand(4, 4), torch.rand(4, 4)


def lay(x):
    return x.t().contiguous()


for n in range(3):
    lay(paint * n).view(-1).sum().backward()
    with torch.no_grad():
        print(lay(paint * n).view(-1).sum())
a, b = left.t().contiguous(), right.t().contiguous()
print(a.view(-1) + b.view(-1))
"""


def test_why_a_copy_was_needed_is_told_once_for_a_line(tmp_path):
    document = record_program(TWICE_ON_A_LINE, tmp_path).document(show_all=True)
    shown = render(document, width=100)
    rows = [line.split()[:2] for line in shown.split("\n") if " yes " in line]
    assert rows == [["8", "yes"], ["15", "yes"]]
