"""Elements that living memory keeps several times over: frames, windows, heads, tables."""

import pytest

from programs import check_program, record_program

FOUND = {
    "frames stacked whole as they come": """
        import collections
        import numpy as np
        import torch

        draw = np.random.default_rng(0)

        class Memory:
            def __init__(self):
                self.seen = collections.deque(maxlen=5000)

            def add(self, state, action):
                self.seen.append((state, action))  #! slow-copy memory.seen (note)

        def play(memory, last):
            last.append(draw.random((24, 24), dtype=np.float32))
            memory.add(np.stack(last), int(draw.integers(3)))

        memory = Memory()
        last = collections.deque([np.zeros((24, 24), np.float32)] * 4, maxlen=4)
        w = torch.zeros(24)
        for turn in range(900):
            play(memory, last)
            if turn % 4 == 0:
                state, action = memory.seen[int(draw.integers(len(memory.seen)))]
                w = w + torch.from_numpy(state).mean((0, 1)) * action
        print(w.sum())
    """,
    "frames stacked along the last dimension, in an array made beforehand": """
        import numpy as np
        import torch

        draw = np.random.default_rng(0)

        def main():
            states = np.zeros((800, 32, 32, 4), dtype=np.uint8)
            frames = [draw.integers(0, 255, (32, 32), dtype=np.uint8) for _ in range(4)]
            w = torch.zeros(4)
            for turn in range(4 * 800):
                frames = frames[1:] + [draw.integers(0, 255, (32, 32), dtype=np.uint8)]
                states[turn % 800] = np.stack(frames, axis=-1)  #! slow-copy states (note)
                if turn % 8 == 0:
                    w = w + torch.from_numpy(states[: turn % 800 + 1][-1:]).float().mean((0, 1, 2))
            print(w)

        main()
    """,
    "windows of a series, stacked": """
        import torch

        torch.manual_seed(0)
        series = torch.randn(6000, 2)
        windows = torch.stack([series[i : i + 48] for i in range(5950)])  #! slow-copy windows (note)
        net = torch.nn.Linear(2, 1)
        opt = torch.optim.SGD(net.parameters(), lr=1e-4)
        for step in range(60):
            batch = windows[torch.randint(len(windows), (16,))]
            loss = net(batch).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
    "heads repeated before they are kept": """
        import torch
        import torch.nn.functional as F

        torch.manual_seed(0)

        class Past:
            def __init__(self):
                self.keys = torch.zeros(2, 8, 512, 64)

            def put(self, at, keys):
                self.keys[:, :, at : at + keys.shape[2]] = keys

        def widen(x, times):
            return x.repeat_interleave(times, dim=1)  #! slow-copy past.keys (note)

        @torch.no_grad()
        def decode(past):
            project = torch.nn.Linear(64, 128)
            x = torch.randn(2, 1, 64)
            for at in range(200):
                keys = project(x).view(2, 1, 2, 64).transpose(1, 2)
                past.put(at, widen(keys, 4))
                q = torch.randn(2, 8, 1, 64)
                seen = past.keys[:, :, : at + 1]
                x = F.scaled_dot_product_attention(q, seen, seen).mean(1)
            return x

        past = Past()
        print(decode(past).sum())
    """,
    "one table copied for each worker": """
        import numpy as np
        import torch

        draw = np.random.default_rng(1)

        class Worker:
            def __init__(self, table, start):
                self.start = start
                self.table = np.array(table)

            def batch(self, step):
                at = (self.start + 7 * step) % 900
                return torch.from_numpy(self.table[at : at + 16])

        table = draw.normal(size=(2000, 64)).astype(np.float32)
        workers = [Worker(table, 100 * n) for n in range(6)]  #! slow-copy workers (note)
        net = torch.nn.Linear(64, 1)
        opt = torch.optim.SGD(net.parameters(), lr=1e-4)
        for step in range(60):
            loss = net(workers[step % 6].batch(step)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    """,
}


@pytest.mark.parametrize("name", FOUND)
def test_what_is_kept_several_times_is_told(name, tmp_path):
    check_program(FOUND[name], tmp_path)


def test_windows_that_are_joined_and_all_kept_are_told_once(tmp_path):
    program = """
        import torch

        window, kept = torch.zeros(256, 32), []
        for step in range(60):
            window = torch.cat([window[1:], torch.randn(1, 32)])
            kept.append(window)
        print(torch.stack(kept).sum())
    """
    recording = record_program(program, tmp_path)
    found = [one for one in recording.findings if one.slug == "slow-copy"]
    assert [(one.subject, one.site.line) for one in found] == [("kept", 6)]
    assert "distinct" in found[0].message


QUIET = {
    "frames kept once and stacked when sampled": """
        import numpy as np
        import torch

        draw = np.random.default_rng(0)
        frames = []
        w = torch.zeros(24)
        for turn in range(900):
            frames.append(draw.random((24, 24), dtype=np.float32))
            if turn > 4 and turn % 4 == 0:
                at = int(draw.integers(4, len(frames)))
                w = w + torch.from_numpy(np.stack(frames[at - 4 : at])).mean((0, 1))
        print(w.sum())
    """,
    "windows that are views": """
        import numpy as np
        import torch

        torch.manual_seed(0)
        series = torch.randn(6000, 2)
        windows = series.unfold(0, 48, 1)
        parts = [series[i : i + 48] for i in range(5950)]
        rolled = np.lib.stride_tricks.sliding_window_view(series.numpy(), 48, axis=0)
        total = torch.zeros(2)
        for step in range(300):
            total = total + windows[step].mean(1) + parts[step].mean(0)
        print(total, rolled.shape)
    """,
    "rows that are the same for want of anything in them": """
        import numpy as np
        import torch

        torch.manual_seed(0)
        hot = torch.nn.functional.one_hot(torch.randint(0, 10, (40_000,))).float()
        room = np.zeros((500, 64, 64), np.float32)
        labels = [torch.randint(0, 2, (8,)) for _ in range(3000)]
        total = torch.zeros(())
        for step in range(300):
            total = total + hot[step].sum() + labels[step].sum()
        print(total, room.sum())
    """,
    "copies that go their own ways": """
        import copy
        import torch

        torch.manual_seed(0)
        start = torch.randn(200, 500)
        runs = [start.clone() for _ in range(6)]
        total = torch.zeros(())
        for step in range(60):
            for number, one in enumerate(runs):
                one.add_(torch.randn(200, 500), alpha=0.01)
                total = total + one.mean()
        print(total)
    """,
    "weights, the best of them and their average": """
        import copy
        import torch

        torch.manual_seed(0)
        net = torch.nn.Linear(700, 700)
        average = copy.deepcopy(net)
        opt = torch.optim.SGD(net.parameters(), lr=1e-3)
        best = copy.deepcopy(net.state_dict())
        states = [best]
        for step in range(40):
            loss = net(torch.randn(4, 700)).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                for mine, other in zip(average.parameters(), net.parameters()):
                    mine.lerp_(other, 0.1)
            if step % 20 == 0:
                states.append(copy.deepcopy(net.state_dict()))
        net.load_state_dict(states[-1])
    """,
    "a cache whose heads are its own": """
        import torch

        torch.manual_seed(0)
        keys = torch.zeros(2, 8, 512, 64)
        total = torch.zeros(())
        for at in range(400):
            keys[:, :, at] = torch.randn(2, 8, 64)
            total = total + keys[:, :, : at + 1].mean()
        print(total)
    """,
    "batches drawn at random of windows in order": """
        import torch

        torch.manual_seed(0)
        series = torch.randn(4000, 4)
        batches = []
        total = torch.zeros(())
        for step in range(150):
            starts = torch.randint(3900, (32,))
            batches.append(torch.stack([series[at : at + 32] for at in starts.tolist()]))
            total = total + batches[-1].mean()
        print(total, len(batches))
    """,
}


@pytest.mark.parametrize("name", QUIET)
def test_what_is_kept_once_or_for_a_reason_is_not(name, tmp_path):
    recording = record_program(QUIET[name], tmp_path)
    assert not recording.trace.kept_again


READINGS = """
import collections
import numpy as np
import torch

draw = np.random.default_rng(0)


class Station:
    def __init__(self, most):
        self.maps = np.zeros((most, 6, 80, 80), dtype=np.uint8)
        self.at = 0

    def keep(self, stacked):
        {put}
        self.at += 1

    def restore(self, stored):
        self.maps[: len(stored)] = stored

    def some(self):
        return torch.as_tensor(self.maps[draw.integers(0, self.at, 4)]).float()


station = Station(240)
last = collections.deque([draw.integers(0, 255, (2, 80, 80), dtype=np.uint8) for _ in range(3)], 3)
total = 0.0
for hour in range(170):
    station.keep(np.concatenate(list(last)))
    last.append(draw.integers(0, 255, (2, 80, 80), dtype=np.uint8))
    if hour > 4:
        total += station.some().mean()
{more}
print(total)
"""


@pytest.mark.parametrize(
    ("put", "more", "text", "line"),
    [
        ("np.copyto(self.maps[self.at], stacked)", "", "written here", "np.copyto"),
        ("self.maps[self.at] = stacked", "", "written here", "self.maps[self.at] ="),
        ("self.maps[self.at] = stacked", "station.restore(station.maps[:170].copy())",
         "made here", "self.maps = np.zeros"),
    ],
)  # fmt: skip
def test_the_line_that_is_named_has_run_and_empty_slots_do_not_count(
    put, more, text, line, tmp_path
):
    """`restore` is called by no line: it filled nothing."""
    program = READINGS.format(put=put, more=more)
    found = record_program(program, tmp_path).findings
    (note,) = [one for one in found if one.slug == "slow-copy"]
    assert "in 170 of 240 slices along dimension 0" in note.message
    assert "keeps 6.2 MiB" in note.message
    assert text in note.evidence[0].text
    assert line in program.splitlines()[note.site.line - 1]


def test_full_arrays_are_counted_as_before(tmp_path):
    program = READINGS.format(put="self.maps[self.at % 60] = stacked", more="")
    program = program.replace("Station(240)", "Station(60)").replace(
        "0, self.at, 4", "0, min(self.at, 60), 4"
    )
    found = record_program(program, tmp_path).findings
    (note,) = [one for one in found if one.slug == "slow-copy"]
    assert "in 60 slices along dimension 0" in note.message
