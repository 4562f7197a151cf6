"""The line that puts a tensor where a write shows it, beside the call that shares."""

import pytest

from programs import record_program
from tether.analysis.ties import Ties

HEAD = """\
from dataclasses import dataclass
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
"""
TOLD = {
    "a list made with it, and copies that are put in after": """
def steps(x):
    frames = [x]  #!
    for k in range(3):
        x += k
        frames.append(x.clone())
    return frames
print(sum(steps(torch.ones(3))))
""",
    "a dictionary slot beside slots of copies": """
x, kept = torch.ones(3), {}
kept["first"] = x  #!
for k in range(3):
    x += k
    kept[k] = x.clone()
print(kept)
""",
    "an array of a parameter, put in a list": """
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
history = []
for _ in range(3):
    net(torch.ones(2, 3)).sum().backward()
    opt.step()
    now = net.weight.detach().numpy()
    history.append(now)  #!
print(np.stack(history))
""",
    "a tensor on a buffer, put in a list": """
frame, waiting = np.zeros(4, dtype=np.float32), []
for turn in range(3):
    frame[:] = turn
    batch = torch.from_numpy(frame)
    waiting.append(batch)  #!
print(torch.stack(waiting))
""",
    "a tensor that an object made in a function is given": """
@dataclass
class Body:
    place: torch.Tensor
    speed: torch.Tensor
    def copy(self):
        return Body(self.place, self.speed.clone())  #!
body, saved = Body(torch.ones(2), torch.ones(2)), []
for _ in range(4):
    body.place += body.speed
    saved.append(body.copy())
print([one.place for one in saved])
""",
}


def lines_of(recording):
    """Return the lines that findings and the first ties name."""
    found = {step.site.line for one in recording.findings for step in one.evidence}
    return found | {one.line for tie in recording.history.get(Ties).found for one in tie.sites}


@pytest.mark.parametrize("name", TOLD)
def test_the_line_that_keeps_it_is_named(name, tmp_path):
    text = HEAD + TOLD[name]
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "#!" in one)
    assert line in lines_of(record_program(text, tmp_path))


def test_a_line_that_puts_copies_there_is_not_where_they_came_to_share(tmp_path):
    text = HEAD + TOLD["a list made with it, and copies that are put in after"]
    copies = next(n for n, one in enumerate(text.splitlines(), 1) if "x.clone()" in one)
    ties = record_program(text, tmp_path).history.get(Ties).found
    assert ties
    assert all(copies not in {one.line for one in tie.since} for tie in ties)


def test_a_call_that_makes_values_of_attributes_returns_none_of_them(tmp_path):
    text = HEAD + TOLD["a tensor that an object made in a function is given"]
    text = text.replace("Body(self.place, ", "Body(torch.stack([self.place])[0], ")
    assert not [one for one in record_program(text, tmp_path).findings if one.severity != "note"]


LIVE = """\
import numpy as np
import torch
from torch import nn

class Sensor:
    def __init__(self):
        self.gain = np.ones(3, dtype=np.float32)

    def move(self, by):
        self.gain[...] = by

class Net(nn.Module):
    def __init__(self, sensor):
        super().__init__()
        self.register_buffer("gain", torch.as_tensor(sensor.gain))

    def forward(self, x):
        return x / self.gain

sensor = Sensor()
net = Net(sensor)
sensor.move(2.0)
then = net.gain.clone()
print(net(torch.ones(3)))
sensor.move(4.0)
print(net(torch.ones(3)), END)
"""
CLIPS = """\
import numpy as np
import torch

class Source:
    def __init__(self):
        self.clip = np.empty((2, 8), dtype=np.float32)
        self.shown = torch.from_numpy(self.clip)

    def next(self, k):
        self.clip[...] = k
        return self.shown

kept, total = np.zeros(8, dtype=np.float32), 0.0
source = Source()
for k in range(9):
    clip = source.next(k)
    np.copyto(kept, clip[0].detach().numpy())
    total += clip.mean().item() + kept.sum()
print(total)
"""


def test_a_tensor_that_is_set_beside_a_copy_of_what_it_was_is_meant_to_change(tmp_path):
    known = record_program(LIVE.replace("END", "(net.gain - then).abs().sum()"), tmp_path)
    assert [one.severity for one in known.findings if one.slug == "alias-write"] == ["note"]
    unknown = record_program(LIVE.replace("END", "then"), tmp_path)
    assert [one.severity for one in unknown.findings if one.slug == "alias-write"] == ["warning"]


def test_a_buffer_is_one_whatever_arrays_are_taken_of_it(tmp_path):
    assert not record_program(CLIPS, tmp_path).findings


def test_what_the_variable_of_a_loop_shows_at_the_end_pins_nothing(tmp_path):
    text = """\
import torch

data = torch.randn(256, 64, 16)
for epoch in range(2):
    for batch in data[torch.randperm(256)].split(32):
        print(batch.mean())
print(data.mean())
"""
    assert not record_program(text, tmp_path).findings
    kept = text.replace("print(batch.mean())", "first = batch")
    assert [one.slug for one in record_program(kept, tmp_path).findings] == ["storage-pinned"]


RUNNING = """\
import torch


def batches(count):
    for _ in range(count):
        images, labels = torch.randn(4, 3), torch.randint(0, 2, (4,))
        images[labels == 1] += 0.7
        yield images, labels


def total(loader):
    return sum(images.sum() for images, _ in loader)


print(total(batches(8)))
"""


def test_a_generator_that_runs_is_no_second_place_of_its_variables(tmp_path):
    trace = record_program(RUNNING, tmp_path).trace
    assert not [one.name for one in (*trace.holders, *trace.names) if "gi_frame" in one.name]
