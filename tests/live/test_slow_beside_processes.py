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


WRITTEN_ELSEWHERE = {
    "a table that is filled from one that another process counts in": "there.copy_(counts); print(there.sum())",
    "a state that is loaded from a model that another process trains": (
        "other.load_state_dict(model.state_dict())"
    ),
    "a conversion of what another process counts": "print(counts.double().sum())",
    "a copy that is taken each round": "print(counts.clone().mul(here).sum())",
    "sums of the same places": "print((counts.exp() * counts.cos() * here).sum())",
    "a state that goes through a stream": """
        stream = io.BytesIO()
        torch.save(counts, stream)
        stream.seek(0)
        print(torch.load(stream).sum())
        """,
}

WRITER = """
import io
counts, here, there = (torch.zeros(600, 600) for _ in range(3))

def count(counts, weight, asked, done):
    for _ in range(8):
        asked.acquire()
        with torch.no_grad():
            counts.add_(1)
            weight.add_(1)
        done.release()

SHARED
asked, done = fork.Semaphore(0), fork.Semaphore(0)
writer = fork.Process(target=count, args=(counts, model.weight, asked, done))
writer.start()
for step in range(8):
    BODY
    here.add_(1)
    asked.release()
    done.acquire()
writer.join()
"""


def written_elsewhere(name, shared):
    body = textwrap.dedent(WRITTEN_ELSEWHERE[name]).strip().replace("\n", "\n    ")
    return START + WRITER.replace("SHARED", shared).replace("BODY", body)


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


@pytest.mark.parametrize("name", WRITTEN_ELSEWHERE)
def test_what_another_process_writes_is_not_called_the_same(name, tmp_path):
    text = written_elsewhere(name, "counts.share_memory_(); model.share_memory()")
    assert not told(text, tmp_path)


@pytest.mark.parametrize("name", WRITTEN_ELSEWHERE)
def test_of_memory_of_its_own_it_is_told(name, tmp_path):
    """The child has the memory as it was when it was forked off: what it writes is its own."""
    assert told(written_elsewhere(name, ""), tmp_path)
