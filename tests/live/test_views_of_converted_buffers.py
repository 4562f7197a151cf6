"""Views of a module's buffer that a conversion leaves behind, and views that are taken again.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.zeros(2, 3))
        {attributes}

    def forward(self, x):
        with torch.no_grad():
            {writes}
        return x * {reads}


"""

RUN = """\
for _ in range(3):
    counter(torch.rand(4, 3, dtype=counter.table.dtype)).sum()
print({name: one.sum().item() for name, one in counter.state_dict().items()})
"""

ROWS = {
    "attributes": "self.sums, self.counts = self.table[0], self.table[1]",
    "writes": "self.sums.add_(x.sum(0)); self.counts.add_(len(x))",
    "reads": "(self.sums / self.counts)",
}
ANEW = ROWS | {
    "attributes": "pass",
    "writes": "self.table[0].add_(x.sum(0)); self.table[1].add_(len(x))",
    "reads": "(self.table[0] / self.table[1])",
}

TOLD = {
    "by double()": "counter = Counter().double()  #! tie-lost counter.sums\n",
    "by to(), a line later": "counter = Counter()\ncounter.to(torch.float64)"
    "  #! tie-lost counter.sums\n",
}


@pytest.mark.parametrize("made", TOLD.values(), ids=TOLD)
def test_views_that_are_written_on_are_told_of(made, tmp_path):
    found = check_program(HEAD.format(**ROWS) + made + RUN, tmp_path)
    assert "is a view of what `counter.table` was" in found.findings[0].message


RIGHT = {
    "rows that are taken each time": HEAD.format(**ANEW) + "counter = Counter().double()\n" + RUN,
    "no conversion": HEAD.format(**ROWS) + "counter = Counter()\n" + RUN,
    "a conversion that had nothing to do": HEAD.format(**ROWS)
    + "counter = Counter().to(torch.float32)\n"
    + RUN,
    "rows that are only read, as the table is": HEAD.format(**ROWS | {"writes": "pass"})
    + "counter = Counter().double()\n"
    + RUN,
}


@pytest.mark.parametrize("text", RIGHT.values(), ids=RIGHT)
def test_of_views_that_are_none_or_stay_nothing_is_said(text, tmp_path):
    check_program(text, tmp_path)
