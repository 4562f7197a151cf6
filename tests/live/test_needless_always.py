"""Joins and choices that gave what was there: which say so for any data, and which for these."""

import pytest

from programs import check_program, record_program

FOUND = {
    "keys of a sentence, gathered for beams that all have them": """
        import torch
        from torch import nn

        @torch.no_grad()
        def search(encoder, scorer, source, width, turns):
            n = len(source)
            memory = encoder(source.repeat_interleave(width, 0))
            keys = memory.view(n * width, 20, 4, 16).transpose(1, 2)
            state, base = torch.zeros(n * width, 64), torch.arange(n)[:, None] * width
            for turn in range(turns):
                weights = (keys @ state.view(-1, 4, 16, 1)).softmax(2)
                read = (weights * keys).sum(2).flatten(1)
                state = torch.tanh(read + state + turn)
                scores = scorer(state).view(n, width, -1) + torch.rand(n, width, 1)
                picked = scores.flatten(1).topk(width).indices // scores.shape[-1] + base
                state = state[picked.flatten()]
                keys = keys[picked.flatten()]  #! needless-copy keys (note)
            return state

        torch.manual_seed(0)
        print(search(nn.Linear(64, 64), nn.Linear(64, 9), torch.randn(3, 20, 64), 5, 14).sum())
    """,
    "rows expanded and laid out, chosen of by take_along_dim": """
        import torch

        torch.manual_seed(0)
        table = torch.randn(4, 1, 200).expand(4, 6, 200).contiguous()
        for turn in range(12):
            order = torch.rand(4, 6, 1).argsort(1).expand(4, 6, 200)
            table = table.take_along_dim(order, 1)  #! needless-copy table (note)
            print(table.sum())
    """,
    "a list of one that is written out": """
        import torch

        def joined(x, more):
            parts = [x]
            if more:
                parts.append(x.flip(0))
            return torch.cat(parts)  #! needless-copy torch.cat(parts) (note)

        for n in (50, 60, 70):
            x = torch.ones(n, 40)
            print(joined(x, False).sum(), x.mean())
    """,
    "lists of a loop that had one tensor each": """
        import torch

        def by_size(images):
            groups = {}
            for image in images:
                groups.setdefault(image.shape[-1], []).append(image)
            return {size: torch.cat(some) for size, some in groups.items()}  #! needless-copy batches[41] (note)

        for turn in range(10):
            batches = by_size([torch.rand(1, 3, 40 + turn % 2, 40 + turn % 2)])
            print(sum(one.sum() for one in batches.values()))
    """,
    "everything by numbers of a size": """
        import torch

        for n in (50, 60):
            x = torch.ones(n, 40)
            all_of_it = x[torch.arange(len(x))]  #! needless-copy all_of_it (note)
            print(all_of_it.sum(), x.mean())
    """,
    "rows that are counted off, in each of many runs": """
        import torch

        readings = torch.rand(50, 40)
        for hour in range(2, 20):
            since = readings.index_select(0, torch.arange(hour))  #! needless-copy since (note)
            print(since.mean(), readings.sum())
    """,
    "rows that were counted off once": """
        import torch

        readings, first = torch.rand(50, 40), torch.arange(8) + 4
        for hour in range(20):
            some = readings[first]  #! needless-copy some (note)
            print(some.mean() + hour, readings.sum())
    """,
    "everything by numbers in the text": """
        import torch

        x = torch.randn(3, 400)
        for turn in range(3):
            rows = x[[0, 1, 2]]  #! needless-copy rows (note)
            print(rows.sum() + turn, x.mean())
    """,
}

QUIET = {
    "rows that were alike by their values": """
        import torch

        torch.manual_seed(0)
        for turn in range(12):
            state = torch.zeros(6, 200) + torch.arange(200.0)
            order = torch.rand(6).argsort()
            rows = state.index_select(0, order)
            print(rows.sum())
    """,
    "beams that part later": """
        import torch

        torch.manual_seed(0)
        cache = torch.randn(3, 1, 300).repeat_interleave(4, 1).flatten(0, 1)
        for turn in range(12):
            order = (torch.rand(3, 4).argsort(1) + torch.arange(3)[:, None] * 4).flatten()
            cache = cache.index_select(0, order)
            if turn > 9:
                cache = cache + torch.randn(12, 1)
            print(cache.sum())
    """,
    "a few runs": """
        import torch

        torch.manual_seed(0)
        cache = torch.randn(3, 1, 300).repeat_interleave(4, 1).flatten(0, 1)
        for turn in range(3):
            order = (torch.rand(3, 4).argsort(1) + torch.arange(3)[:, None] * 4).flatten()
            cache = cache.index_select(0, order)
            print(cache.sum())
    """,
    "with a gradient, which is added up where it comes from": """
        import torch

        torch.manual_seed(0)
        w = torch.randn(3, 1, 300, requires_grad=True)
        for turn in range(12):
            rows = w.repeat_interleave(4, 1).flatten(0, 1)
            order = (torch.rand(3, 4).argsort(1) + torch.arange(3)[:, None] * 4).flatten()
            (rows.index_select(0, order[:]) * torch.randn(12, 1)).sum().backward()
            print(w.grad.sum())
    """,
    "batches of a set that filled one": """
        import torch

        def scored(net, rows, size=64):
            found = []
            for at in range(0, len(rows), size):
                found.append(net(rows[at : at + size]).detach())
            return torch.cat(found, 0)

        net = torch.nn.Linear(100, 40)
        for n in (54, 6) * 8:
            scores = scored(net, torch.ones(n, 100))
            print(scores.argmax(1).sum())
    """,
    "a list of all, in a comprehension, a method, or somewhere else": """
        import torch

        class Kept:
            def __init__(self):
                self.rows = []

            def add(self, row):
                self.rows.append(row)

            def all(self):
                return torch.cat(self.rows)

        def joined(parts):
            return torch.cat(parts)

        for turn in range(12):
            x = torch.randn(30, 50)
            kept = Kept()
            kept.add(x)
            print(joined([x]).sum(), joined([one for one in x.split(64)]).sum(), kept.all().sum())
            print(torch.cat([part * 1 for part in x.split(64)]).sum(), x.mean())
            print(torch.cat(x.split(64)).sum(), torch.cat(tuple(one for one in [x])).sum())
    """,
    "places that data decide": """
        import torch

        answers = torch.rand(3, 300)
        labels = [0, 1, 2]
        ends = [i for i in range(1, len(labels)) if labels[i] != labels[i - 1]]
        ends = torch.LongTensor(ends + [len(labels)]) - 1
        chosen = answers[ends]
        rows = [n for n, label in enumerate(labels) if label >= 0]
        again = answers[rows]
        print(chosen.diag().mean(), again.sum(), answers.sum())
        order = torch.rand(3).add(torch.arange(3)).argsort()
        print(answers.index_select(0, order).sum(), answers.mean())
    """,
    "stations that reported one after the other, this time": """
        import torch

        class Map:
            def __init__(self):
                self.readings = torch.rand(50, 40)
                self.reported = []

            def level(self, station):
                self.reported.append(station)
                seen = torch.LongTensor(self.reported[:-1])
                return self.readings.index_select(0, seen).sum() + self.readings[seen].mean()

        stations, on = list(range(30)), Map()
        for station in stations:
            print(on.level(station), on.readings.sum())
    """,
    "frames in order, as the loader happens to give them": """
        import torch
        from torch.utils.data import DataLoader

        frames = torch.rand(64, 200)
        for turn in range(3):
            for numbers in DataLoader(list(range(64)), batch_size=16):
                some = frames[numbers]
                print(some.mean(), frames.sum())
    """,
    "lengths that were sorted already": """
        import torch

        torch.manual_seed(0)
        for turn in range(12):
            lengths = torch.tensor(sorted([int(n) for n in torch.randint(5, 40, (8,))]))
            rows = torch.rand(8, 200)
            ordered = rows[lengths.argsort(stable=True)]
            print(ordered.mean(), rows.sum())
    """,
    "numbers that a file has": """
        import io
        import numpy as np
        import torch

        file = io.BytesIO()
        np.save(file, np.arange(10, 30))
        readings = torch.rand(60, 100)
        for turn in range(12):
            file.seek(0)
            rows = readings[torch.from_numpy(np.load(file))]
            print(rows.mean(), readings.sum())
    """,
}


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_found(program, tmp_path):
    recording = check_program(program, tmp_path)
    assert len([one for one in recording.findings if one.slug == "needless-copy"]) == 1


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_quiet(program, tmp_path):
    recording = record_program(program, tmp_path)
    assert recording.error is None
    assert [one.message for one in recording.findings if one.slug == "needless-copy"] == []
