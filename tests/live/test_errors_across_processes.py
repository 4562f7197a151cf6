"""Errors about graphs on the way between processes: which tensor, and the lines behind them.

Each broken program marks lines that the finding must name, at its site or in its evidence:
``#! line``; the subject is given beside it.
"""

import textwrap

import pytest

from programs import record_program

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

KEPT = """
import torch
from torch.utils.data import DataLoader, Dataset


class Embedded(Dataset):
    def __init__(self, encoder, waves):
        self.targets = torch.arange(len(waves))
        self.latent = encoder(waves)  #! line

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        row = self.latent[index]  #! line
        return row * 2, self.targets[index]


def fit():
    encoder = torch.nn.Linear(5, 3)
    held = Embedded(encoder, torch.randn(8, 5))
    for batch, target in DataLoader(held, batch_size=4, num_workers=1):  #! line
        print(batch.sum(), target)


fit()
"""
TABLE = """
import torch
from torch.utils.data import DataLoader, TensorDataset

body = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh())
points = body(torch.randn(12, 4))  #! line
feed = DataLoader(TensorDataset(points, torch.ones(12)), batch_size=3, num_workers=2)
for point, weight in feed:  #! line
    print(point, weight)
"""
PAIRS = """
import torch
from torch.utils.data import DataLoader

scale = torch.full((3,), 2.0, requires_grad=True)
rows = (torch.randn(6, 3) * scale).unbind()  #! line
pairs = [(row, number) for number, row in enumerate(rows)]
for row, number in DataLoader(pairs, batch_size=2, num_workers=1):  #! line
    print(row, number)
"""
DICTS = """
import torch
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, front):
        self.cache = {"audio": self.prepare(front), "size": 4}  #! line

    def prepare(self, front):
        raw = torch.randn(4, 7)
        return front(raw).tanh()  #! line

    def __len__(self):
        return self.cache["size"]

    def __getitem__(self, index):
        return {"audio": self.cache["audio"][index], "index": index}  #! line


def main():
    clips = Clips(torch.nn.Linear(7, 2))
    loader = DataLoader(clips, batch_size=2, num_workers=1)
    try:
        next(iter(loader))  #! line
    except RuntimeError as error:
        print(type(error))


main()
"""
PER_ITEM = """
import torch
from torch.utils.data import DataLoader, Dataset


class Encoded(Dataset):
    def __init__(self, net):
        self.net = net
        self.raw = torch.randn(6, 4)

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.net(self.raw[index])  #! line


net = torch.nn.Linear(4, 2, bias=False)
for code in DataLoader(Encoded(net), batch_size=3, num_workers=1):  #! line
    print(code)
"""
ARRAY = """
import torch
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self, frames):
        self.frames = frames

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, index):
        frame = self.frames[index]
        return self.export(frame)

    def export(self, frame):
        return frame.numpy()  #! line


gain = torch.nn.Parameter(torch.ones(2))
stack = torch.randn(4, 2) * gain  #! line
for frame in DataLoader(Frames(stack), batch_size=2, num_workers=1):  #! line
    print(frame)
"""
SPAWNED = """
import torch
from torch.utils.data import DataLoader, Dataset


class Notes(Dataset):
    def __init__(self, net):
        self.pitch = net(torch.randn(6, 4))  #! line

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return self.pitch[index]


def run():
    notes = Notes(torch.nn.Linear(4, 4))
    loader = DataLoader(notes, num_workers=1, multiprocessing_context="spawn")
    for pitch in loader:  #! line
        print(pitch)


if __name__ == "__main__":
    run()
"""
QUEUE = """
import multiprocessing
import time

import torch

weight = torch.ones(3, requires_grad=True)
message = (weight * 2).exp()  #! line
mailbox = multiprocessing.Queue()
mailbox.put(message)  #! line
time.sleep(0.3)
"""
ARGUMENTS = """
import torch
import torch.multiprocessing


def work(rank, shared):
    print(rank, shared)


def main():
    net = torch.nn.Linear(2, 2)
    prior = net(torch.ones(1, 2))  #! line
    torch.multiprocessing.spawn(work, args=(prior,), nprocs=1)  #! line


if __name__ == "__main__":
    main()
"""
MAPPED = """
import multiprocessing

import torch


def score(part):
    return float(part.sum())


tower = torch.nn.Linear(3, 2)
parts = torch.split(tower(torch.ones(4, 3)), 2)  #! line
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(score, parts))  #! line
"""
RETURNED = """
import multiprocessing

import torch

tower = torch.nn.Linear(3, 2, bias=False)


def embed(x):
    return tower(x)  #! line


with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(embed, [torch.ones(3)]))  #! line
"""
PIPE = """
import multiprocessing

import torch

rate = torch.tensor([0.5], requires_grad=True)
plan = rate.expand(3)  #! line
near, far = multiprocessing.Pipe()
near.send({"plan": plan})  #! line
"""

BROKEN = [
    (KEPT, "held.latent"), (TABLE, "points"), (PAIRS, "rows[0]"), (DICTS, "clips.cache['audio']"),
    (PER_ITEM, "net.weight"), (ARRAY, "stack"), (SPAWNED, "notes.pitch"), (QUEUE, "message"),
    (ARGUMENTS, "prior"), (MAPPED, "parts[0]"), (RETURNED, "tower.weight"), (PIPE, "plan"),
]  # fmt: skip


def marked(text):
    lines = textwrap.dedent(text).splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("#! line")}


def told(recording):
    return [one for one in recording.findings if one.slug == "tie-error"]


@pytest.mark.parametrize(("program", "subject"), BROKEN)
def test_the_tensor_and_its_lines_are_named(program, subject, tmp_path):
    found = told(record_program(program, tmp_path))
    assert len(found) == 1, found
    [one] = found
    assert subject in (one.subject, *one.also)
    lines = {one.site.line} | {each.site.line for each in one.evidence}
    assert marked(program) <= lines, (marked(program), sorted(lines))
    assert "out=" not in one.fix.text


@pytest.mark.rest
def test_what_the_other_process_said_is_told_without_its_traceback(tmp_path):
    recording = record_program(KEPT, tmp_path)
    [raised] = [one for one in recording.trace.raised if one.fatal]
    assert raised.elsewhere.startswith("stack(): functions with out=")
    [one] = told(recording)
    assert "Traceback" not in one.message
    assert "`held.latent` requires grad" in one.message


def test_the_users_lines_of_a_workers_traceback_are_facts(tmp_path):
    recording = record_program(ARRAY, tmp_path)
    [raised] = [one for one in recording.trace.raised if one.fatal]
    lines = [recording.trace.sites[one].line for one in raised.lines]
    assert lines == [15, 18]


UNRELATED = KEPT.replace("row * 2, self", "[][index], self")

QUIET = [
    KEPT.replace("encoder(waves)", "encoder(waves).detach()"),
    KEPT.replace("row * 2", "row.detach() * 2"),
    KEPT.replace("num_workers=1", "num_workers=0").replace("row * 2", "row.detach()"),
    TABLE.replace("points = body(", "with torch.no_grad():\n    points = body("),
    PER_ITEM.replace("        return self.net(", "        with torch.no_grad():\n            "
                     "return self.net("),
    SPAWNED.replace("torch.randn(6, 4))", "torch.randn(6, 4)).detach()"),
    QUEUE.replace(".exp()", ".exp().detach()"),
    MAPPED.replace("[1]", "[2]").replace("torch.split(tower(", "torch.split(tower.eval()(")
    .replace("pool.map(score, parts)", "pool.map(score, [one.detach() for one in parts])"),
    PIPE.replace('"plan": plan', '"plan": plan.detach().clone()'),
    UNRELATED,
]  # fmt: skip


@pytest.mark.parametrize("program", QUIET)
def test_what_crosses_without_a_graph_is_no_error(program, tmp_path):
    assert told(record_program(program, tmp_path)) == []


def test_a_memory_that_a_worker_reads_without_its_graph_is_not_blamed(tmp_path):
    text = """
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Mixed(Dataset):
        def __init__(self, net):
            self.hidden = net(torch.randn(4, 3))
            self.noise = torch.nn.Parameter(torch.zeros(3))

        def __len__(self):
            return 4

        def __getitem__(self, index):
            return self.hidden.detach()[index] + self.noise


    mixed = Mixed(torch.nn.Linear(3, 3))
    for base in DataLoader(mixed, batch_size=2, num_workers=1):
        print(base)
    """
    [one] = told(record_program(text, tmp_path))
    assert one.subject == "mixed.noise"
    assert "hidden" not in one.message


@pytest.mark.rest
def test_a_tensor_that_a_sample_makes_itself_is_of_no_name(tmp_path):
    text = """
    import torch
    from torch.utils.data import DataLoader, Dataset


    class Made(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return torch.ones(2, requires_grad=True) * index


    for row in DataLoader(Made(), batch_size=2, num_workers=1):
        print(row)
    """
    [one] = told(record_program(text, tmp_path))
    assert (one.subject, one.site.line) == ("the call", 14)
    assert "a sample has a tensor that requires grad" in one.message


def test_an_error_that_is_of_no_tie_is_not_explained(tmp_path):
    text = KEPT.replace("row * 2", "row.view(7)")
    assert not [one for one in told(record_program(text, tmp_path)) if "latent" in one.message]
