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


BY_A_TYPE = """\
import numpy as np
import torch

heights = np.linspace(0, 1, 5000)
depths = np.linspace(0, 1, 5000, dtype=np.float32)
bytes_read = bytearray(16)
torch.Tensor(heights)
torch.Tensor(depths)
torch.FloatTensor([1.0, 2.0, 3.0])
torch.as_tensor(heights)
torch.as_tensor(heights, dtype=torch.float32)
torch.as_tensor([4.0, 5.0])
torch.asarray(bytes_read, dtype=torch.uint8)
own = torch.Tensor([6.0, 7.0])
torch.from_numpy(own.numpy())
torch.as_tensor(own.numpy())
"""


def test_what_a_tensor_is_made_of_is_copied_or_shared_as_memory_has_it(tmp_path):
    copies = record_program(BY_A_TYPE, tmp_path).copies
    rows = {one.site.line: (one.memory, one.bytes) for one in copies if one.operation != "numpy"}
    assert rows == {
        7: ("owns", 20_000),
        8: ("shares", 0),
        9: ("owns", 12),
        10: ("shares", 0),
        11: ("owns", 20_000),
        12: ("owns", 8),
        13: ("shares", 0),
        14: ("owns", 8),
        15: ("shares", 0),
        16: ("shares", 0),
    }


WITH_AND_WITHOUT_A_GRAPH = """\
import torch

weight = torch.ones(3, requires_grad=True)
marks = torch.arange(3)
marks.to(torch.int32)
marks.detach()
with torch.no_grad():
    (weight * 2).cpu()
    weight.clone()
weight.clone()
weight.detach()
weight.long()
torch.as_tensor(weight)
torch.tensor([weight[0], weight[1]])
torch.rand(3).clone()
weight.new_tensor([1.0, 2.0, 3.0])
torch.rand(3).new_tensor([weight[0], weight[1]])
weight.to(marks)
marks.to(weight)
"""


def test_a_gradient_is_cut_only_where_there_is_one(tmp_path):
    copies = record_program(WITH_AND_WITHOUT_A_GRAPH, tmp_path).copies
    assert {one.site.line: one.gradient for one in copies} == {
        5: "none", 6: "none", 8: "none", 9: "cuts", 10: "keeps", 11: "cuts", 12: "cuts",
        13: "keeps", 14: "cuts", 15: "none", 16: "none", 17: "cuts", 18: "cuts", 19: "none",
    }  # fmt: skip


OF_A_LIST = """\
import torch

depths = torch.rand(3) * 2
levels = depths.new_tensor([0.1, 0.2, 0.3])
print((depths - levels).sum())
same = depths.new_tensor(depths)
print((depths - same).sum())
"""


def test_what_is_made_of_a_list_takes_nothing_of_the_tensor_that_makes_it(tmp_path):
    copies = record_program(OF_A_LIST, tmp_path).copies
    assert {one.site.line: one.reason for one in copies} == {
        4: "",
        6: "line 7 compares it with `depths`",
    }
