"""What comes to be kept only after many writes of a line is found at the next one."""

import pytest

from programs import check_program

KEPT = """
import torch
from torch import nn

class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.near, self.far = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x):
        mixed = self.far(torch.tanh(self.near(x)))
        mixed += x
        return mixed

class Watch:
    def __init__(self, layer):
        self.seen = []
        self.handle = layer.register_forward_hook(self.look)

    def look(self, layer, args, given):
        self.seen.append(KEEP)MARK

@torch.no_grad()
def shares(model, x):
    watch = Watch(model.far)
    model(x)
    watch.handle.remove()
    return [float(one.norm()) for one in watch.seen]

torch.manual_seed(0)
model, x = Mixer(), torch.rand(4, 6)
with torch.no_grad():
    for _ in range(21):
        model(x)
print(shares(model, x))
"""


def test_a_layers_output_that_a_late_hook_keeps(tmp_path):
    text = KEPT.replace("KEEP", "given").replace("MARK", "  #! alias-write watch.seen (note)")
    check_program(text, tmp_path)


@pytest.mark.parametrize("keep", ["given.clone()", "float(given.norm())"])
def test_a_copy_of_it_is_quiet(tmp_path, keep):
    text = (
        KEPT.replace("KEEP", keep)
        .replace("MARK", "")
        .replace("one.norm()", "torch.as_tensor(one).norm()")
    )
    check_program(text, tmp_path)
