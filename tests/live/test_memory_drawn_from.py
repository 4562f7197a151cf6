"""Memory that lies unused as a program ends: of what is drawn at random that is no leak."""

import pytest

from programs import record_program

MEMORY = """\
import random
from collections import deque

import torch

torch.manual_seed(0)
random.seed(0)
memory, state, total = deque(maxlen=200), torch.zeros(16, 128), 0.0
weight = torch.randn(128, 128) / 12
for turn in range(160):
    state = torch.tanh(state @ weight + torch.randn(16, 128))
    memory.append(state)
    READ
print(total)
"""

READS = {
    "drawn at random": ("total += sum(one.sum().item() for one in random.sample(memory, k=min(turn + 1, 4)))", 0),
    "the oldest now and then": ("total += memory[turn // 4].sum().item() if turn % 4 == 0 else 0.0", 0),
    "the last one": ("total += memory[-1].sum().item()", 1),
    "a window of the last five": ("total += sum(one.sum().item() for one in list(memory)[-5:])", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", READS)
def test_what_a_line_leaves_counts_where_it_lies_longer_than_any_that_was_read(name, tmp_path):
    read, told = READS[name]
    found = record_program(MEMORY.replace("READ", read), tmp_path).findings
    assert [one.slug for one in found] == ["storage-pinned"] * told
