"""What nothing read, in programs that have other processes: what those cannot have read either."""

import textwrap

import pytest

from programs import record_program

START = """
import copy, torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

fork = mp.get_context("fork")
data = TensorDataset(torch.rand(8, 600))
model, other = torch.nn.Linear(600, 600), torch.nn.Linear(600, 600)
state = copy.deepcopy(other.state_dict())
tall = torch.rand(3, 400, 30)

def run(target, *given):
    process = fork.Process(target=target, args=given)
    process.start()
    process.join()
"""

FOUND = {
    "a copy filled anew, beside a loader's workers": """
        for step in range(4):
            for x, in DataLoader(data, 4, num_workers=1):
                model(x)
            probe = copy.deepcopy(model)  #!
            probe.load_state_dict(state)
            print(probe(x).sum())
        """,
    "a copy that a process is given when it has other values": """
        def show(probe):
            print(probe.weight.sum())
        for step in range(4):
            probe = copy.deepcopy(model)  #!
            probe.load_state_dict(state)
            run(show, probe)
            print(probe.bias.sum())
        """,
    "a basis that is larger than is used, beside a loader's workers": """
        for step in range(4):
            for x, in DataLoader(data, 4, num_workers=1):
                print(x.sum())
            u, s, v = torch.linalg.svd(tall)  #!
            print(s.sum())
        """,
    "values lent for an evaluation, beside a loader's workers": """
        for step in range(4):
            for x, in DataLoader(data, 4, num_workers=1):
                model(x)
            with torch.no_grad():
                own = model.weight.clone()  #!
                model.weight.copy_(state["weight"])
                print(model(x).sum())
                model.weight.copy_(own)
        """,
}

QUIET = {
    "a copy that a process reads before it is filled": """
        def show():
            print(probe.weight.sum(), probe.bias.sum())
        for step in range(4):
            probe = copy.deepcopy(model)
            run(show)
            probe.load_state_dict(state)
            print(probe(torch.rand(1, 600)).sum())
        """,
    "a basis that a process reads whole": """
        def show():
            print(u.sum())
        for step in range(4):
            u, s, v = torch.linalg.svd(tall)
            run(show)
            print(s.sum())
        """,
    "values that a process computes with while they are lent": """
        def show():
            print(model(torch.rand(1, 600)).sum())
        for step in range(4):
            with torch.no_grad():
                own = model.weight.clone()
                model.weight.copy_(state["weight"])
                run(show)
                print(model(torch.rand(1, 600)).sum())
                model.weight.copy_(own)
        """,
    "a model in memory that others show": """
        model.share_memory()
        def show(model):
            print(model.weight.sum())
        process = fork.Process(target=show, args=(model,))
        process.start()
        for step in range(4):
            with torch.no_grad():
                own = model.weight.clone()
                model.weight.copy_(state["weight"])
                print(model(torch.rand(1, 600)).sum())
                model.weight.copy_(own)
        process.join()
        """,
}


def told(text, folder):
    recording = record_program(text, folder)
    assert recording.error is None
    return [one.site.line for one in recording.findings if one.slug == "slow-copy"]


@pytest.mark.parametrize("name", FOUND)
def test_what_no_other_process_reads_is_told(name, tmp_path):
    text = START + textwrap.dedent(FOUND[name])
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("#!")]
    assert told(text, tmp_path) == marked


@pytest.mark.parametrize("name", QUIET)
def test_what_another_process_may_read_is_not(name, tmp_path):
    assert told(START + textwrap.dedent(QUIET[name]), tmp_path) == []
