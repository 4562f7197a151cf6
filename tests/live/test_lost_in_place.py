"""Writes whose values are nowhere: into a passing copy, over their own operand, into a lone view.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = "import torch\n\ntorch.manual_seed(0)\n"

CALLS = """

for _ in range(3):
    data = torch.randn(6, 7)
    print(change(data).sum())
"""

LOST = {
    "an index of an index, beside a return": """
def change(x):
    table = x.clone()
    low = table < 0
    table[low][torch.rand(int(low.sum())) < 0.8] = 9.0  #! alias-write table
    return table
""",
    "a method of a choice, beside a return": """
def change(x):
    table = x * 1
    table[table < 0].zero_()  #! alias-write table
    return table
""",
    "one of several names that are returned": """
def change(x):
    rows, marks = x.clone(), x > 0
    rows[[0, 2]][:, 0] = 1.0  #! alias-write rows
    return torch.stack([rows, marks * 1.0])
""",
    "an update of a choice": """
def change(x):
    table = x * 1
    table[table < 0][:2] += 5.0  #! alias-write table
    return table
""",
    "each column by the first": """
def change(x):
    x -= x[:, :1]  #! values-lost data
    return x
""",
    "each column by the one before": """
def change(x):
    later = x[:, 1:]
    later += x[:, :-1]  #! values-lost later
    return x
""",
    "each row by an expanded one": """
def change(x):
    return x.mul_(x[2].expand_as(x))  #! values-lost data
""",
    "an alpha, by a keyword": """
def change(x):
    x.add_(x[:, 3:4], alpha=2)  #! values-lost data
    return x
""",
    "a view put on other memory": """
def reorder(table, row, order):
    rows = table.view(2, 3, 7)[:, row]
    rows.data = rows.data.index_select(0, order)  #! values-lost data


def change(x):
    for row in range(3):
        reorder(x, row, torch.tensor([1, 0]))
    return x
""",
    "a row that is set": """
def change(x):
    row = x[0]
    row.set_(row * 2)  #! values-lost data
    return x
""",
}

KEPT = {
    "the copy is returned": """
def change(x):
    return x[x > 0].mul_(2)
""",
    "the copy has a name, which is returned": """
def change(x):
    table = x * 1
    positive = table[table > 0].mul_(2)
    return positive
""",
    "the copy stands in a dict": """
def change(x):
    found = {"rows": x[[0, 1]]}
    found["rows"][0] = 1.0
    return found["rows"]
""",
    "a view of a view": """
def change(x):
    table = x * 1
    table[1:][0] = 5.0
    return table
""",
    "a part of the columns by another": """
def change(x):
    x[:, :3] -= x[:, 3:6]
    return x
""",
    "all but the first by the first": """
def change(x):
    x[:, 1:] -= x[:, :1]
    return x
""",
    "a copy of the first": """
def change(x):
    x -= x[:, :1].clone()
    return x
""",
    "the same elements": """
def change(x):
    return x.mul_(x.view(7, 6).view(6, 7))
""",
    "a last column, which is written last": """
def change(x):
    x -= x[:, -1:]
    return x
""",
    "a view that is read once more": """
def change(x):
    row = x[0]
    row.data = torch.rand(7)
    return x + row
""",
    "a view that is freed": """
def change(x):
    row = x[0]
    row.data = torch.empty(0)
    return x
""",
    "a parameter that is filled": """
weight = torch.nn.Parameter(torch.ones(6, 7))


def change(x):
    weight.data = weight.data * 0.9
    return x * weight
""",
}


@pytest.mark.parametrize("text", LOST.values(), ids=LOST)
def test_what_is_lost_is_told(text, tmp_path):
    check_program(HEAD + text + CALLS, tmp_path)


@pytest.mark.parametrize("text", KEPT.values(), ids=KEPT)
def test_what_is_kept_is_not(text, tmp_path):
    check_program(HEAD + text + CALLS, tmp_path)


VIEWS = {
    "a slice": ("self.table[2:5]", "b.seen, b.table[2:5]", "(3, 4)"),
    "another shape": ("self.table.view(-1)", "b.seen.view(8, 4), b.table", "(32,)"),
    "an expanded one": ("self.table[0].expand(3, 4)", "b.seen[1], b.table[0]", "(3, 4)"),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_that_is_to_follow_may_be_seen_to_do_so(name, tmp_path):
    view, both, shape = VIEWS[name]
    check_program(
        f"""\
import torch


class Bank:
    def __init__(self):
        self.table = torch.zeros(8, 4)
        self.seen = {view}

    def put(self, row, x):
        self.table[row].mul_(0.5).add_(x)

    def score(self, x):
        return (self.seen * x).sum()


b = Bank()
for row in range(8):
    b.put(row % 3, torch.ones(4))
    print(b.score(torch.ones{shape}))
print("follows", torch.equal({both}))
""",
        tmp_path,
    )


def test_a_view_that_was_to_stay_is_compared_with_what_it_is_of(tmp_path):
    check_program(
        """\
import torch

x = torch.rand(4, 4)
for _ in range(4):
    old = x.view(4, 4)  #! alias-write old
    x.mul_(0.5)
    if torch.equal(old, x):
        print("nothing changed")
""",
        tmp_path,
    )
