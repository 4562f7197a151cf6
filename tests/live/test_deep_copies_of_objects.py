"""Deep copies of objects that hold tensors: what is replaced in the copy is no needless copy."""

from programs import record_program

PROGRAM = """\
import copy
import torch

torch.manual_seed(0)


class Cache:
    def __init__(self):
        self.layers = [torch.randn(40, 64) for _ in range(3)]

    def score(self, new):
        total = 0.0
        for number, known in enumerate(self.layers):
            longer = torch.cat([known, new])
            CHANGE
            total += longer.mean().item()
        return total


cache = Cache()
for _ in range(4):
    branch = copy.deepcopy(cache)
    print(branch.score(torch.randn(2, 64)))
    del branch
"""


def _told(change, folder):
    text = PROGRAM.replace("CHANGE", change)
    return [one for one in record_program(text, folder).findings if one.slug == "needless-copy"]


def test_an_object_whose_parts_are_replaced_is_another(tmp_path):
    assert not _told("self.layers[number] = longer; del known", tmp_path)


def test_an_object_that_is_only_read_is_not(tmp_path):
    (found,) = _told("pass", tmp_path)
    assert found.site.line == 22
