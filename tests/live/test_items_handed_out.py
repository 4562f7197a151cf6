"""Items that a data set changes as it hands them out.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

HEAD = """\
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)

class Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(8, 6)
        self.asked, self.ones = torch.zeros(8), torch.ones(8, 6)
        self.filled, self.numbers = torch.empty(8, 6), torch.zeros(8, 6)
        self.filled[:] = self.rows
        for index in range(8):
            self.numbers[index, 0] = float(index)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        GET

def noisy(row):
    row += 0.1 * torch.randn_like(row)  #CALLED
    return row

net, rows = nn.Linear(6, 1), Rows()
for epoch in range(3):
    for batch in DataLoader(rows, batch_size=4):
        batch = batch[0] * batch[1][:, None] if isinstance(batch, list) else batch
        print(net(batch).sum())
"""

GETS = {
    "noise on a row": """\
row = self.rows[index]
        row += 0.1 * torch.randn_like(row)  #! alias-write rows.rows
        return row""",
    "a function that writes what it is given": """\
return noisy(self.rows[index])""",
    "values computed from what is there": """\
row = self.rows[index]
        row[::2] = row[::2] + 1  #! alias-write rows.rows
        return row""",
    "a copy of the row": """\
row = self.rows[index].clone()
        row += 0.1 * torch.randn_like(row)
        return row""",
    "a function that is given a copy": """\
return noisy(self.rows[index].clone())""",
    "a row that is filled when it is asked for": """\
row = self.rows[index]
        row[:] = index
        return row""",
    "a count of how often a row was asked for": """\
times = self.asked[index]
        times += 1
        return self.rows[index] / float(times)""",
    "a count that is handed out with the row": """\
times = self.asked[index]
        times += 1
        return self.rows[index] * times""",
    "counts that are handed out themselves": """\
times = self.asked[index]
        times.add_(2)
        return self.rows[index], times""",
    "a weight of ones that is less each time": """\
weight = self.ones[index]
        weight *= 0.9
        return self.rows[index] * weight""",
    "a blank table that rows were put into": """\
row = self.filled[index]
        row += 1  #! alias-write rows.filled
        return row""",
    "a blank table that noise adds up in": """\
row = self.ones[index]
        row += 0.1 * torch.randn(6)  #! alias-write rows.ones
        return row""",
    "a blank table that numbers were put into": """\
row = self.numbers[index]
        row /= 255  #! alias-write rows.numbers
        return row""",
    "a walk whose next state is asked for": """\
self.rows[index] += 0.1 * torch.randn(6)
        return self.rows[index]""",
}


@pytest.mark.parametrize("name", GETS)
def test_what_a_data_set_hands_out(name, tmp_path):
    text = HEAD.replace("GET", GETS[name])
    called = name == "a function that writes what it is given"
    check_program(text.replace("#CALLED", "#! alias-write rows.rows" if called else ""), tmp_path)


SHARED = """
class Graph:
    def __init__(self, x, y):
        self.x, self.y = x, y

class Graphs(Dataset):
    def __init__(self):
        self.graphs = [Graph(torch.randn(5, 6), torch.arange(5)) for _ in range(6)]

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        graph = copy.copy(self.graphs[index])
        WRITE
        return graph

graphs = Graphs()
for epoch in range(3):
    for index in range(len(graphs)):
        graph = graphs[index]
        print(net(graph.x).sum() + graph.y.sum())
"""

WRITES = {
    "graph.y[::2] = (graph.y[::2] + 1) % 4  #! alias-write graphs.graphs[0].y",
    "graph.y = (graph.y + 1) % 4",
}


@pytest.mark.parametrize("write", sorted(WRITES))
def test_a_shallow_copy_that_a_data_set_hands_out(write, tmp_path):
    text = HEAD.replace("GET", "return self.rows[index]") + SHARED
    check_program(text.replace("WRITE", write), tmp_path)


WALK = """
class Walk:
    def __init__(self):
        self.place = torch.zeros(6)

    def __iter__(self):
        return self

    def __next__(self):
        place = self.place
        place += 0.1 * torch.randn(6)
        return place

for _, place in zip(range(8), Walk()):
    print(net(place).sum())
"""


def test_an_iterator_whose_next_state_is_asked_for(tmp_path):
    check_program(HEAD.replace("GET", "return self.rows[index]") + WALK, tmp_path)
