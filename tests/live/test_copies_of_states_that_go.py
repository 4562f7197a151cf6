"""States that are copied from models which go: the last one is there at the end, as any variable.

Needless where each run had a model of its own that nothing wrote again; needed where one model is
trained on, or the copy is what is kept of it.
"""

import pytest

from programs import check_program, record_program

HEAD = """
import copy
import torch
from torch import nn

torch.manual_seed(0)

def fit(net, turns=2):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(turns):
        optimizer.zero_grad()
        loss = net(torch.rand(8, 60)).pow(2).mean()
        loss.backward()
        optimizer.step()
    return float(loss)

def read(states):
    return sum(float(one["weight"].sum()) for one in states)

"""

FOUND = {
    "of stations, each with a net of its own": """
        def station():
            net = nn.Linear(60, 200)
            fit(net)
            return net.state_dict()

        kept = []
        for turn in range(4):
            state = station()
            kept.append(copy.deepcopy(state))  #! needless-copy kept[0]['weight'] (note)
        print(read(kept))
    """,
    "of members of an ensemble": """
        members = {}
        for name in "abcd":
            net = nn.Linear(60, 200)
            fit(net)
            members[name] = {key: one.clone() for key, one in net.state_dict().items()}  #! needless-copy members['a']['weight'] (note)
        print(read(members.values()))
    """,
}

QUIET = {
    "one net, after each season": """
        net, kept = nn.Linear(60, 200), []
        for turn in range(4):
            fit(net)
            kept.append(copy.deepcopy(net.state_dict()))
        print(read(kept))
    """,
    "one net, at the end alone": """
        net = nn.Linear(60, 200)
        for turn in range(4):
            loss = fit(net)
            if turn == 3:
                kept = copy.deepcopy(net.state_dict())
        print(read([kept]))
    """,
    "the best one of each seed": """
        found = []
        for seed in range(4):
            net, least, best = nn.Linear(60, 200), 9e9, None
            for epoch in range(4):
                loss = fit(net)
                if loss < least:
                    least, best = loss, copy.deepcopy(net.state_dict())
            found.append(best)
        print(read(found))
    """,
    "a new net now and then, trained on in the meantime": """
        kept = []
        for turn in range(6):
            if turn % 2 == 0:
                net = nn.Linear(60, 200)
            fit(net)
            kept.append(copy.deepcopy(net.state_dict()))
        print(read(kept))
    """,
    "a net that is trained on, last of all": """
        kept = []
        for turn in range(4):
            net = nn.Linear(60, 200)
            fit(net)
            kept.append(copy.deepcopy(net.state_dict()))
        fit(net)
        print(read(kept))
    """,
    "once": """
        net = nn.Linear(60, 200)
        fit(net)
        kept = copy.deepcopy(net.state_dict())
        print(read([kept]))
    """,
    "each part of a table that is filled on": """
        table, kept = torch.rand(8, 500), []
        for turn in range(8):
            table[turn] *= 2
            kept.append(table[turn].clone())
        print(sum(float(one.sum()) for one in kept))
    """,
}


def _program(text):
    lines = text.strip("\n").splitlines()
    return HEAD + "\n".join(line.removeprefix("        ") for line in lines).rstrip() + "\n"


@pytest.mark.parametrize("text", FOUND.values(), ids=FOUND)
def test_found(text, tmp_path):
    check_program(_program(text), tmp_path)


@pytest.mark.parametrize("text", QUIET.values(), ids=QUIET)
def test_quiet(text, tmp_path):
    recording = record_program(_program(text), tmp_path)
    assert recording.error is None
    assert [one.message for one in recording.findings if one.slug == "needless-copy"] == []
