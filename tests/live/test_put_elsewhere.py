"""Calls that copy a tensor to put a few elements, and what becomes of the old one."""

import pytest
import torch

from programs import check_program, says
from tether.operations.rows import ROWS
from tether.operations.table import in_place, operation

FOUND = {
    "a cache by positions, in a list": """
        import torch

        class Cache:
            def __init__(self, layers):
                self.keys = [torch.zeros(4, 2, 200, 32) for _ in range(layers)]

            def update(self, layer, at, new):
                self.keys[layer] = self.keys[layer].index_copy(2, at, new)  #! slow-copy self.keys[layer] (note)
                return self.keys[layer][:, :, : int(at) + 1]

        with torch.no_grad():
            cache, total = Cache(2), 0.0
            for step in range(20):
                for layer in range(2):
                    total += cache.update(layer, torch.tensor([step]), torch.rand(4, 2, 1, 32)).sum().item()
        print(total)
    """,
    "counts by a function of torch, handed back": """
        import torch

        def counted(counts, words):
            counts = torch.scatter_add(counts, 0, words, torch.ones(len(words)))  #! slow-copy counts (note)
            return counts

        counts = torch.zeros(30_000)
        for batch in range(20):
            counts = counted(counts, torch.randint(0, 30_000, (64,)))
        print(counts.max().item())
    """,
    "sums of rows, as an attribute": """
        import torch

        class Totals:
            def __init__(self, n):
                self.sums = torch.zeros(n, 64)

            def add(self, who, what):
                self.sums = self.sums.index_add(0, who, what)  #! slow-copy self.sums (note)

        totals = Totals(2_000)
        for batch in range(12):
            totals.add(torch.randint(0, 2_000, (32,)), torch.rand(32, 64))
        print(totals.sums.norm().item())
    """,
    "one step of a track at a time": """
        import torch

        track = torch.zeros(100, 3_000)
        for t in range(100):
            track = torch.slice_scatter(track, torch.rand(1, 3_000), 0, t, t + 1)  #! slow-copy track (note)
        print(track.mean().item())
    """,
    "zeros that get a few ones": """
        import torch

        for batch in range(10):
            labels = torch.randint(0, 1_000, (200, 1))
            ones = torch.zeros(200, 1_000).scatter(1, labels, 1.0)  #! slow-copy ones (note)
            print((ones * torch.rand(200, 1_000)).sum().item())
    """,
    "elements by their numbers in all dimensions": """
        import torch

        grid = torch.zeros(300, 300)
        for step in range(20):
            i, j = torch.randint(0, 300, (40,)), torch.randint(0, 300, (40,))
            grid = grid.index_put((i, j), torch.rand(40))  #! slow-copy grid (note)
        print(grid.sum().item())
    """,
}

RIGHT = {
    "the old one is read later": """
        import torch

        state = torch.zeros(1_000, 64)
        for step in range(20):
            new = state.index_copy(0, torch.tensor([step]), torch.rand(1, 64))
            print((new - state).norm().item())
            state = new
    """,
    "each is kept": """
        import torch

        boards = [torch.zeros(300, 300)]
        for step in range(20):
            boards.append(boards[-1].index_put((torch.tensor([step]), torch.tensor([3])), torch.ones(1)))
        print(torch.stack(boards).sum().item())
    """,
    "several are made of one": """
        import torch

        start = torch.zeros(500, 200)
        for move in range(30):
            after = start.index_fill(0, torch.tensor([move]), 1.0)
            print(after.sum().item())
    """,
    "a gradient goes through it": """
        import torch

        w = torch.nn.Parameter(torch.ones(64))
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(10):
            memory = torch.zeros(800, 64)
            for i in range(4):
                memory = memory.index_copy(0, torch.tensor([i]), w[None] * i)
            loss = memory.square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(w.sum().item())
    """,
    "what it was made of was saved for the way back": """
        import torch

        w, state = torch.nn.Parameter(torch.ones(64, 64)), torch.rand(800, 64)
        losses = []
        for step in range(10):
            losses.append((state @ w).mean())
            state = state.index_copy(0, torch.tensor([step]), torch.rand(1, 64))
        torch.stack(losses).sum().backward()
        print(w.grad.sum().item())
    """,
    "most of it is put anew": """
        import torch

        rows = torch.zeros(500, 128)
        for step in range(20):
            who = torch.randperm(500)[:400]
            rows = rows.index_copy(0, who, torch.rand(400, 128))
        print(rows.sum().item())
    """,
    "the caller's own stays as it was": """
        import torch

        def marked(x, at):
            return x.index_fill(0, at, 0.0)

        images = [torch.rand(500, 60) for _ in range(20)]
        for image in images:
            print(marked(image, torch.tensor([1, 2])).sum().item())
        print(sum(images).sum().item())
    """,
    "a view of the old one lives": """
        import torch

        whole, firsts = torch.zeros(500, 128), []
        for step in range(20):
            firsts.append(whole[:400])
            whole = whole.index_add(0, torch.tensor([0, step]), torch.rand(2, 128))
        print(torch.stack(firsts).sum().item())
    """,
    "a part of itself is put": """
        import torch

        rows = torch.rand(500, 128)
        for step in range(20):
            rows = rows.index_copy(0, torch.tensor([step]), rows[step + 1 : step + 2])
        print(rows.sum().item())
    """,
    "under a transform, which refuses the write": """
        import torch

        def put(x, at):
            for _ in range(3):
                x = x + 1
                x = x.index_fill(0, at, 0.0)
            return x

        for step in range(6):
            print(torch.func.vmap(put, (0, 0))(torch.rand(4, 64, 64), torch.randint(0, 64, (4, 1))).sum().item())
    """,
    "of a small one, and a few times": """
        import torch

        small, large = torch.zeros(40), torch.zeros(1_000, 200)
        for step in range(40):
            small = small.index_fill(0, torch.tensor([step]), 1.0)
            if step % 10 == 0:
                large = large.index_fill(0, torch.tensor([step]), 1.0)
        print(small.sum().item(), large.sum().item())
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_a_few_elements_are_put_and_the_old_tensor_goes(name, tmp_path):
    recording = check_program(FOUND[name], tmp_path)
    assert says(recording, "elements at most")


@pytest.mark.parametrize("name", RIGHT)
def test_the_old_tensor_is_wanted(name, tmp_path):
    recording = check_program(RIGHT[name], tmp_path)
    assert not says(recording, "elements at most")


@pytest.mark.parametrize("name", [name for name in ROWS if operation(name).puts])
def test_the_call_in_place_is_one_of_pytorchs(name):
    way = in_place(name)
    assert hasattr(torch.Tensor, way) if way else not hasattr(torch.Tensor, f"{name}_")
