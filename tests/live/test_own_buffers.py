"""Producers that hand out their own buffer and write it for the next, and look-alikes.

Each program says in comments what must be found and where; see `programs.py`.
"""

import pytest

from programs import check_program

PROGRAM = """\
import torch

torch.manual_seed(0)


class World:
    def __init__(self):
        self.place, self.seen, self.turn = torch.zeros(4), torch.zeros(4, 2), 0
        self.pair = [torch.zeros(4, 2), torch.zeros(4, 2)]

    def look(self):
        self.seen[:, 0] = self.place
        self.seen[:, 1] = self.place.cos()
        return self.seen

    def fresh(self):
        return torch.stack([self.place, self.place.cos()], 1)

    def other(self):
        self.turn += 1
        shown = self.pair[self.turn % 2]
        shown[:, 0] = self.place
        return shown

    def move(self, by):
        self.place += by
        return -self.place.abs()


class Memory:
    def __init__(self):
        self.rows, self.next, self.size = torch.zeros(400, 2), torch.zeros(400, 2), 0

    def add(self, old, new):
        rows = slice(self.size, self.size + 4)
        self.rows[rows] = old
        self.next[rows] = new
        self.size += 4


def step(world, look):
    reward = world.move(torch.randn(4))
    return look(), reward


world, memory = World(), Memory()


"""

FOUND = {
    "kept until the next is there": """\
def collect(times):
    last = world.look()  #! alias-write last
    for _ in range(times):
        new, _ = step(world, world.look)
        memory.add(last, new)
        last = new


collect(20)
""",
    "not through a function": """\
def collect(times):
    before = world.look()  #! alias-write before
    for _ in range(times):
        world.move(torch.randn(4))
        after = world.look()
        memory.add(before, after)
        before = after


collect(20)
""",
    "in one method": """\
class Runner:
    def __init__(self):
        self.total = 0.0

    def run(self, times):
        old = world.look()  #! alias-write old
        for _ in range(times):
            seen, reward = step(world, world.look)
            memory.add(old, seen)
            self.total += reward.sum().item()
            old = seen


Runner().run(20)
""",
    "at the top": """\
last = world.look()  #! alias-write last
for _ in range(20):
    new, _ = step(world, world.look)
    memory.add(last, new)
    last = new
""",
    "read alone": """\
def watched(times):
    last, score = world.look(), 0.0  #! alias-write last (note)
    for _ in range(times):
        new, reward = step(world, world.look)
        score += last.sum().item()
        last = new
    return score


watched(20)
""",
}

RIGHT = {
    "a copy is kept": """\
def collect(times):
    last = world.look().clone()
    for _ in range(times):
        new, _ = step(world, world.look)
        memory.add(last, new)
        last = new.clone()


collect(20)
""",
    "made anew each time": """\
def collect(times):
    last = world.fresh()
    for _ in range(times):
        new, _ = step(world, world.fresh)
        memory.add(last, new)
        last = new


collect(20)
""",
    "two buffers in turn": """\
def collect(times):
    last = world.other()
    for _ in range(times):
        new, _ = step(world, world.other)
        memory.add(last, new)
        last = new


collect(20)
""",
    "one name": """\
def walked(times):
    seen, total = world.look(), 0.0
    for _ in range(times):
        total += seen.sum().item()
        seen, reward = step(world, world.look)
    return total


walked(20)
""",
    "looked at as it goes on": """\
def watched(times):
    seen = world.look()
    for _ in range(times):
        world.move(torch.randn(4))
        world.look()
        print(seen.mean())


watched(20)
""",
    "read before the next is made": """\
def collect(times):
    last = world.look()
    for _ in range(times):
        kept = last * 1.0
        new, _ = step(world, world.look)
        memory.add(kept, new)
        last = new


collect(20)
""",
}


@pytest.mark.parametrize("body", FOUND.values(), ids=FOUND)
def test_a_buffer_that_is_taken_for_two_values_is_told(body, tmp_path):
    check_program(PROGRAM + body, tmp_path)


@pytest.mark.parametrize("body", RIGHT.values(), ids=RIGHT)
def test_copies_turns_and_views_are_not(body, tmp_path):
    found = check_program(PROGRAM + body, tmp_path).findings
    assert not [one for one in found if one.slug == "alias-write"]
