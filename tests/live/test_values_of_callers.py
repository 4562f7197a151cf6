"""A value that leaves the tensors is followed to where it goes: not to another caller or field.

The line by which it leaves ends with ``#! left``, the one that uses it with ``#! used``.
"""

import textwrap

import pytest

from programs import record_program
from tether.analysis.gradients.cuts import Cuts
from tether.report.document.text import render

START = """
import collections, random, torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0); random.seed(0)
MOVES = ["north", "east", "south", "west"]
walk = nn.Sequential(nn.Embedding(4, 4), nn.Linear(4, 4))
gauge = nn.Linear(2, 1)
opt = torch.optim.SGD([*walk.parameters(), *gauge.parameters()], lr=0.1)
x = torch.randn(6, 2)
def train(loss):
    opt.zero_grad(); loss.backward(); opt.step()
def number(move):
    return MOVES.index(move)
def numbers(moves):
    rows = torch.zeros(len(moves)).long()
    for at in range(len(moves)):
        rows[at] = number(moves[at])
    return rows
def scaled(value, by=2.0):
    return max(value, 0.5) / by
"""

LISTED = {
    "a number that the training hands to a helper": """
        for _ in range(3):
            level = gauge(x).mean().item()  #! left
            weight = torch.tensor(scaled(level))
            train((gauge(x) * weight).sum())  #! used
        """,
    "a helper of a helper, from within a comprehension": """
        def doubled(value):
            return scaled(value) * 2
        def step():
            levels = [one.item() for one in gauge(x)]  #! left
            weights = [torch.tensor(doubled(one)) for one in levels]
            train(sum((gauge(x) * weight).sum() for weight in weights))  #! used
        for _ in range(3):
            step()
        """,
    "a helper by which it leaves, and another caller that prints": """
        def level(net):
            return net(x).mean().item()  #! left
        for _ in range(3):
            print(level(gauge))
            train((gauge(x) * level(gauge)).sum())  #! used
        """,
    "a method that keeps it for another one": """
        class Meter:
            def __init__(self):
                self.seen = []
            def see(self, value):
                self.seen.append(scaled(value))
            def weight(self):
                return torch.tensor(sum(self.seen) / len(self.seen))
        meter = Meter()
        for _ in range(3):
            meter.see(gauge(x).mean().item())  #! left
            train((gauge(x) * meter.weight()).sum())  #! used
        """,
    "one field of several that a batch is made of": """
        class Memory:
            def __init__(self):
                self.rows = []
            def put(self, row):
                self.rows.append(row)
            def batch(self):
                places, levels = [], []
                for row in self.rows:
                    place, level = row
                    places.append([place, 1.0])
                    levels.append([level])
                return torch.tensor(places), torch.tensor(levels)
        memory = Memory()
        for at in range(4):
            memory.put((float(at), gauge(x[at]).exp().item()))  #! left
        place, before = memory.batch()
        for _ in range(3):
            now = gauge(place)
            train((now.exp() / before).sum())  #! used
        """,
    "columns of rows": """
        rows = [(float(at), gauge(x[at]).exp().item()) for at in range(4)]  #! left
        place, before = zip(*rows)
        place, before = torch.tensor([place, place]).T, torch.tensor(before)
        for _ in range(3):
            now = gauge(place)
            train((now.exp().view(-1) / before).sum())  #! used
        """,
    "a number that is at hand as an error comes": """
        for name in "a12":
            try:
                level = gauge(x).mean().item()  #! left
                level = int(name)
            except ValueError:
                print(name)
            train((gauge(x) * torch.tensor(float(level))).sum())  #! used
        """,
}

NOT_LISTED = {
    "moves that are drawn and go back into the net, and a helper that training uses too": """
        def stroll(steps):
            move = "north"
            for _ in range(steps):
                odds = walk(numbers([move])).data.view(-1).exp()
                move = MOVES[torch.multinomial(odds, 1)[0]]
            return move
        for _ in range(4):
            print(stroll(5))
            rows = numbers(["south", "west", "east"])
            train(F.cross_entropy(walk(rows), rows))
        """,
    "the same without a function around what is drawn": """
        for _ in range(4):
            move = "north"
            for _ in range(5):
                move = MOVES[torch.multinomial(walk(numbers([move])).data.view(-1).exp(), 1)[0]]
            print(move)
            rows = numbers(["south", "west", "east"])
            train(F.cross_entropy(walk(rows), rows))
        """,
    "a number that is scaled to be printed": """
        for at in range(3):
            print(scaled(gauge(x).mean().item()))
            train((gauge(x) * torch.tensor(scaled(at))).sum())
        """,
    "a tensor made by a helper that a report uses too": """
        def on_gauge(value):
            return torch.tensor([scaled(value)])
        for at in range(3):
            print(on_gauge(gauge(x).mean().item()))
            train((gauge(x) * on_gauge(at)).sum())
        """,
    "a helper by which values of two nets leave": """
        def level(net):
            return net(x).mean().item()
        fixed = nn.Linear(2, 1).requires_grad_(False)
        for _ in range(3):
            print(level(gauge))
            train((gauge(x) * level(fixed)).sum())
        """,
    "a helper that is handed to another function": """
        for _ in range(3):
            places = MOVES[gauge(x).argmax() % 4], MOVES[walk(numbers(["east"])).argmax()]
            print(list(map(numbers, [places])))
            rows = numbers(["south", "west", "east"])
            train(F.cross_entropy(walk(rows), rows))
        """,
    "a helper that calls itself": """
        def shares(value, times):
            return [value] if times == 0 else [value, *shares(value / 2, times - 1)]
        for _ in range(3):
            print(shares(gauge(x).mean().item(), 3))
            train((gauge(x) * torch.tensor(shares(1.0, 3)).sum()).sum())
        """,
    "records of which another field is read": """
        Record = collections.namedtuple("Record", "place level")
        kept = []
        for at in range(4):
            kept.append(Record(float(at), gauge(x[at]).item()))
        for _ in range(3):
            some = random.sample(kept, 2)
            place = torch.tensor([[one.place, 1.0] for one in some])
            train(gauge(place).sum())
            print([one.level for one in some])
        """,
    "rows of which one column is read": """
        rows = [(float(at), gauge(x[at]).item()) for at in range(4)]
        random.shuffle(rows)
        for _ in range(3):
            place = torch.tensor([[row[0], 1.0] for row in random.sample(rows, 2)])
            train(gauge(place).sum())
        print([level for place, level in rows])
        """,
}

CUT = {
    "records that a function made which is not the program's": """
        Record = collections.namedtuple("Record", "place level")
        for _ in range(3):
            kept = [Record(float(at), gauge(x[at]).item()) for at in range(4)]
            some = random.sample(kept, 2)
            level = torch.tensor([one.level for one in some], requires_grad=True)
            train(level.sum() + walk(numbers(["east"])).sum())
        """,
    "a helper that another function stands around": """
        def noted(function):
            def inner(*given):
                print(function.__name__)
                return function(*given)
            return inner
        @noted
        def loss_of(level):
            return torch.tensor(scaled(level), requires_grad=True)
        for _ in range(3):
            print(loss_of(0.0))
            loss = loss_of(gauge(x).mean().item())
            train(loss + walk(numbers(["east"])).sum())
        """,
    "a number that is at hand as an error comes": """
        for _ in range(3):
            try:
                value = gauge(x).sum().item()
                int("no number")
            except ValueError:
                loss = torch.tensor(value, requires_grad=True)
            train(loss + walk(numbers(["east"])).sum())
        """,
}


def lines_with(text, mark):
    return [at for at, line in enumerate(text.splitlines(), 1) if line.endswith(mark)]


@pytest.mark.parametrize("name", LISTED)
def test_it_is_listed_with_the_line_that_uses_it(name, tmp_path):
    text = START + textwrap.dedent(LISTED[name])
    found = record_program(text, tmp_path).history.get(Cuts).found
    assert [one.site.line for one in found] == lines_with(text, "#! left")
    assert [one.entered.line for one in found] == lines_with(text, "#! used")


@pytest.mark.parametrize("name", NOT_LISTED)
def test_another_callers_value_is_not(name, tmp_path):
    text = START + textwrap.dedent(NOT_LISTED[name])
    assert record_program(text, tmp_path).history.get(Cuts).found == []


@pytest.mark.parametrize("name", CUT)
def test_a_parameter_without_a_gradient_is_told_all_the_same(name, tmp_path):
    report = render(record_program(START + textwrap.dedent(CUT[name]), tmp_path).document())
    assert "gradient-cut" in report
    assert "gradient-unused" not in report


def test_all_parameters_are_named_that_a_line_goes_through(tmp_path):
    text = START + textwrap.dedent("""
        net = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30)))
        slow = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30))).requires_grad_(False)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            train(((net(x) - slow(x)) ** 2).sum())
            for one, other in zip(slow.parameters(), net.parameters()):
                one.data.copy_(one.data * 0.9 + other.data * 0.1)
        """)
    (found,) = record_program(text, tmp_path).history.get(Cuts).found
    assert len(found.names) == 60
