"""Copies in programs that have other processes: what those may read or write, and what they cannot.

A forked process has every memory as it was then, and as its own. What it does with those is heard
in it; what it cannot reach is judged as in any program. The answer stands on the line that copies.
"""

import textwrap

import pytest

from test_needless_spellings import check_needs

START = """
import threading, torch, numpy as np
import torch.multiprocessing as mp
from multiprocessing import Array
from torch.utils.data import DataLoader, Dataset, TensorDataset

fork = mp.get_context("fork")
x, w = torch.randn(40, 10), torch.ones(10, 3)

def run(target, *given):
    process = fork.Process(target=target, args=given)
    process.start()
    process.join()

class Rows(Dataset):
    def __init__(self, source, copy):
        self.source, self.copy = source, copy
    def __len__(self):
        return len(self.copy)
    def __getitem__(self, n):
        return self.copy[n]
"""

FOUND = {
    "beside a loader's workers": """
        for x, in DataLoader(TensorDataset(x), 20, num_workers=2):
            kept = w.clone()  #? no
            print((x @ kept).sum())
        """,
    "of batches that workers sent": """
        for epoch in range(2):
            for x, in DataLoader(TensorDataset(x), 10, num_workers=2):
                y = x.clone()  #? no
                print((y @ w).sum())
            x = torch.randn(40, 10)
        """,
    "that workers read": """
        rows = Rows(x, x.clone())  #? no
        for batch in DataLoader(rows, 20, num_workers=2):
            print((batch @ w).sum())
        print(x.sum())
        """,
    "made when the process was there": """
        ours, theirs = fork.Pipe()
        def add(theirs):
            theirs.recv()
            x.add_(1)
        process = fork.Process(target=add, args=(theirs,))
        process.start()
        y = x.clone()  #? no
        ours.send(1)
        process.join()
        print((y @ w).sum(), x.sum())
        """,
    "whose source alone the process writes": """
        y = x.clone()  #? no
        run(lambda: x.add_(1))
        print((y @ w).sum(), x.sum())
        """,
    "gone when the process is forked off": """
        def summed():
            y = x.clone()  #? no
            return (y @ w).sum()
        print(summed())
        run(lambda: x.add_(1))
        print(x.sum())
        """,
    "sent on as another tensor": """
        queue = fork.SimpleQueue()
        y = x.clone()  #? no
        z = (y @ w)
        queue.put(z)
        run(lambda: queue.get().add_(1))
        print(y.sum(), x.sum())
        """,
}

NEEDED = {
    "of memory that another process writes": """
        x.share_memory_()
        y = x.clone()  #? unknown another process
        run(lambda: x.add_(1))
        print((y @ w).sum())
        """,
    "that workers write": """
        class Noisy(Rows):
            def __getitem__(self, n):
                return self.copy[n].add_(self.source[n])
        rows = Noisy(x, x.clone())  #? unknown a forked process
        for batch in DataLoader(rows, 20, num_workers=2):
            print((batch @ w).sum())
        print(x.sum())
        """,
    "read beside its source that the process writes": """
        y = x.clone()  #? unknown a forked process
        run(lambda: print((y - x.add_(1)).sum()))
        print((y @ w).sum())
        """,
    "written by a thread of the process": """
        y = x.clone()  #? unknown a forked process
        def work():
            thread = threading.Thread(target=lambda: print(y.add_(1).sum(), x.sum()))
            thread.start()
            thread.join()
        run(work)
        print((y @ w).sum(), x.sum())
        """,
    "written through an array of the process": """
        y = x.clone()  #? unknown a forked process
        def work():
            y.numpy()[:] = 0
            print(x.sum())
        run(work)
        print((y @ w).sum(), x.sum())
        """,
    "that the process trains": """
        y = x.clone().requires_grad_()
        z = y.detach().clone()  #? unknown not all
        run(lambda: (y * w[:, 0]).sum().backward())
        print((z @ w).sum(), y.sum())
        """,
    "of a mapped file": """
        open("rows.bin", "wb").write(bytes(1600))
        rows = torch.from_numpy(np.memmap("rows.bin", np.float32, "r+", shape=(40, 10)))
        y = rows.clone()  #? unknown another process
        run(lambda: rows.add_(1))
        print((y @ w).sum())
        """,
    "of an array for several processes": """
        rows = torch.frombuffer(Array("f", 400).get_obj(), dtype=torch.float32).view(40, 10)
        y = rows.clone()  #? unknown another process
        run(lambda: rows.add_(1))
        print((y @ w).sum())
        """,
    "of a buffer that a worker fills again": """
        class Filled(Rows):
            def __getitem__(self, n):
                return self.copy.copy_(self.source + n)
        rows = DataLoader(Filled(x, torch.zeros(40, 10)), None, num_workers=1)
        for n, batch in enumerate(rows):
            y = batch.clone()  #? unknown another process
            print((y @ w).sum())
            if n == 4:
                break
        """,
    "of a batch, and written": """
        for x, in DataLoader(TensorDataset(x), 10, num_workers=2):
            y = x.clone()  #? unknown who sent
            del x
            print((y.add_(1) @ w).sum())
        """,
    "of batches, and kept": """
        kept = []
        for x, in DataLoader(TensorDataset(x), 10, num_workers=2):
            kept.append(x.clone())  #? unknown it lets memory go
        print(sum((y @ w).sum() for y in kept))
        """,
    "of a batch that came back to who had sent it": """
        queue = fork.SimpleQueue()
        queue.put(x)
        batch = queue.get()
        y = batch.clone()  #? unknown another process
        x.add_(1)
        run(lambda: print(w.sum()))
        print((y @ w).sum())
        """,
    "sent to a process that writes it": """
        queue = fork.SimpleQueue()
        y = x.clone()  #? unknown another process
        queue.put(y)
        run(lambda: queue.get().add_(1))
        print((y @ w).sum(), x.sum())
        """,
    "that the process lays out anew": """
        y = x.t().clone(memory_format=torch.contiguous_format)  #? unknown layout
        run(lambda: print(y.view(-1).sum()))
        print((y + 1).sum(), x.sum())
        """,
}

SPAWNED = """
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset

def add(rows, queue):
    rows.add_(1)
    queue.put(rows.sum().item())

if __name__ == "__main__":
    x, w = torch.randn(40, 10), torch.ones(10, 3)
    y = w.clone()  #? no
    for batch, in DataLoader(TensorDataset(x), 20, num_workers=1, multiprocessing_context="spawn"):
        z = batch.clone()  #? unknown another process
        print((z @ y).sum())
    one, other = x.clone(), x + 1  #? unknown another process
    context = mp.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=add, args=(x, queue))
    process.start()
    print(queue.get())
    process.join()
    last = other.clone()  #? no
    print((one @ w).sum(), x.sum(), (last @ w).sum(), other.sum(), w.sum())
"""


@pytest.mark.rest
def test_copies_beside_processes_that_were_started_anew(tmp_path):
    check_needs(SPAWNED, tmp_path)


@pytest.mark.parametrize("name", FOUND)
def test_a_copy_that_no_other_process_needs(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    check_needs(START + textwrap.dedent(FOUND[name]), tmp_path)


@pytest.mark.parametrize("name", NEEDED)
def test_a_copy_that_another_process_may_need(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    check_needs(START + textwrap.dedent(NEEDED[name]), tmp_path)
