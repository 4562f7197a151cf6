"""Histories that are moved along at each step, read seldom or at each step."""

import pytest

from programs import check_program, says

FOUND = {
    "a roll, of which the oldest entry is read": """
        import torch

        class Line:
            def __init__(self, n, m):
                self.past = torch.zeros(n, m)

            def push(self, x):
                self.past = torch.roll(self.past, -1, dims=0)  #! slow-copy self.past (note)
                self.past[-1] = x

        line, x = Line(60, 900), torch.ones(900)
        for step in range(40):
            late = line.past[0]
            x = 0.9 * x + 0.1 * torch.cos(late)
            line.push(x)
        print(x.sum().item())
    """,
    "a roll to the front, along the last dimension, by a function that hands it back": """
        import torch

        def pushed(track, x):
            track = track.roll(1, -1)  #! slow-copy track (note)
            track[..., 0] = x
            return track

        track, total = torch.zeros(40, 16, 50), 0.0
        for t in range(50):
            track = pushed(track, torch.full((40, 16), float(t)))
            if t % 10 == 9:
                total += track.std().item()
        print(total)
    """,
    "a join along another dimension": """
        import torch

        class Memory:
            def __init__(self):
                self.seen = {"a": torch.zeros(64, 20, 30), "b": torch.zeros(64, 20, 30)}

            def add(self, key, x):
                old = self.seen[key]
                new = x[:, None]
                self.seen[key] = torch.cat((old[:, 1:], new), 1)  #! slow-copy self.seen[key] (note)

        memory, n = Memory(), 0.0
        for i in range(30):
            for key in "ab":
                memory.add(key, torch.full((64, 30), float(i)))
            if i % 9 == 8:
                n += memory.seen["a"].mean().item() + memory.seen["b"].mean().item()
        print(n)
    """,
    "a join with the newest in front": """
        import torch

        trail = torch.zeros(100, 40, 8)
        with torch.no_grad():
            for i in range(24):
                trail = torch.cat([torch.full((1, 40, 8), i * 1.0), trail[:-1]])  #! slow-copy trail (note)
                print(trail[3, 0, 0].item())
        print(trail.sum().item())
    """,
    "a part assigned to the places beside it": """
        import torch

        class Recent:
            def __init__(self):
                self.rows = torch.zeros(128, 300)

            def add(self, row):
                self.rows[:-1] = self.rows[1:].clone()  #! slow-copy recent.rows (note)
                self.rows[-1] = row

        recent = Recent()
        for i in range(60):
            recent.add(torch.rand(300))
            if i % 20 == 19:
                print(recent.rows.mean(0).norm().item())
    """,
    "what is rolled copied back, and the new one put in through a view": """
        import torch

        line = torch.zeros(32, 4, 256)
        for i in range(40):
            line.copy_(line.roll(-1, 0))  #! slow-copy line (note)
            line[-1].copy_(torch.rand(4, 256))
            print(line[0, 0, 0].item())
        print(line.sum().item())
    """,
    "entries that begin anew are set to zero by their numbers": """
        import torch

        with torch.inference_mode():
            net, past = torch.nn.Linear(10, 4), torch.zeros(128, 25, 10)
            for step in range(40):
                ended = torch.randperm(128)[:5]
                past[ended] = 0.0
                past = torch.roll(past, shifts=-1, dims=1)  #! slow-copy past (note)
                past[:, -1] = torch.rand(128, 10)
                if step % 8 == 0:
                    print(net(past).sum().item())
    """,
}

RIGHT = {
    "the whole window is read at each step": """
        import torch

        net, past = torch.nn.Conv1d(30, 8, 5), torch.zeros(16, 30, 60)
        with torch.no_grad():
            for step in range(40):
                past = torch.roll(past, -1, 2)
                past[:, :, -1] = torch.rand(16, 30)
                print(net(past).mean().item())
    """,
    "the whole window is read at every second step": """
        import torch

        past, total = torch.zeros(50, 64, 20), 0.0
        for step in range(40):
            past = torch.cat([past[:, 1:], torch.rand(50, 1, 20)], 1)
            if step % 2:
                total += past.var().item()
        print(total)
    """,
    "each window is kept as a sample": """
        import torch

        past, samples = torch.zeros(16, 50, 32), []
        for step in range(30):
            past = torch.roll(past, -1, 1)
            past[:, -1] = torch.rand(16, 32)
            samples.append(past)
        print(torch.stack(samples[10:]).mean().item())
    """,
    "each window is stored as one row of a memory": """
        import torch

        past, store = torch.zeros(8, 60, 40), torch.empty(30, 8, 60, 40)
        for step in range(30):
            past = torch.cat([past[:, 1:], torch.rand(8, 1, 40)], 1)
            store[step] = past
        print(store[5:].mean().item())
    """,
    "a quarter of it is read at each step": """
        import torch

        past = torch.zeros(80, 300)
        for step in range(30):
            past[:-1] = past[1:].clone()
            past[-1] = torch.rand(300)
            print(past[-20:].mean().item())
    """,
    "a gradient goes through it": """
        import torch

        w, past = torch.nn.Parameter(torch.ones(300)), torch.zeros(100, 300)
        optimizer = torch.optim.SGD([w], lr=0.01)
        for step in range(12):
            past = torch.cat([past[1:], (w * torch.rand(300))[None]])
        past.sum().backward()
        optimizer.step()
        print(w.sum().item())
    """,
    "neighbours on a ring are computed with": """
        import torch

        u = torch.rand(200, 200)
        for step in range(40):
            left, right = torch.roll(u, 1, 0), torch.roll(u, -1, 0)
            u = u + 0.1 * (left + right - 2 * u)
            u[0] = 0.0
        print(u.sum().item())
    """,
    "what moves on with the wind, all of it computed": """
        import torch

        u = torch.rand(300, 200)
        for step in range(40):
            u = torch.roll(u, 1, 0)
            u[0] = 1.0
            u *= 0.99
        print(u.sum().item())
    """,
    "windows of attention are shifted and shifted back": """
        import torch

        x = torch.rand(4, 32, 32, 24)
        for layer in range(20):
            y = torch.roll(x, (-4, -4), (1, 2))
            y[:, 0] = 0.0
            x = torch.roll(torch.softmax(y, -1), (4, 4), (1, 2))
        print(x.sum().item())
    """,
    "an array on the same memory is read": """
        import torch

        past = torch.zeros(100, 300)
        seen, total = past.numpy(), 0.0
        for step in range(30):
            past[:-1] = past[1:].clone()
            past[-1] = torch.rand(300)
            total += float(seen.mean())
        print(total)
    """,
    "an array is made of it at each step": """
        import torch

        past, total = torch.zeros(100, 300), 0.0
        for step in range(30):
            past = torch.roll(past, -1, 0)
            past[-1] = torch.rand(300)
            total += past.numpy().mean()
        print(total)
    """,
    "each one is saved": """
        import io
        import torch

        past = torch.zeros(100, 30, 12)
        for step in range(20):
            past = torch.roll(past, -1, 1)
            past[:, -1] = torch.rand(100, 12)
            torch.save(past, io.BytesIO())
    """,
    "the one before is read beside the next": """
        import torch

        past, total = torch.zeros(100, 300), 0.0
        for step in range(30):
            before = past
            past = torch.cat([past[1:], torch.rand(1, 300)])
            if step % 4 == 0:
                past = past.clone()
            total += (before[-50:] - past[-51:-1]).sum().item()
        print(total)
    """,
    "a small one, and one that is moved a few times": """
        import torch

        small, few = torch.zeros(8, 4), torch.zeros(100, 300)
        for step in range(60):
            small = torch.roll(small, -1, 0)
            small[-1] = torch.rand(4)
            if step % 10 == 0:
                few = torch.roll(few, -1, 0)
                few[-1] = torch.rand(300)
        print(small.sum().item(), few.sum().item())
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_a_history_that_is_moved_and_seldom_read(name, tmp_path):
    check_program(FOUND[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_moved_and_read(name, tmp_path):
    recording = check_program(RIGHT[name], tmp_path)
    assert not says(recording, "to add one entry")
