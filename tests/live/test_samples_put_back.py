"""Writes through an index that was drawn at random, and accumulations that look alike."""

import pytest

from programs import record_program

START = """\
import torch

torch.manual_seed(3)
slots = torch.rand(6, 4)
score = torch.nn.Linear(4, 1)


def drawn(many=24):
    return torch.randint(0, len(slots), (many,))


"""

QUIET = {
    "samples that a chain moved": """\
for _ in range(3):
    where = drawn()
    x = slots[where].clone().requires_grad_()
    slope, = torch.autograd.grad(score(x).sum(), x)
    x.data += 0.1 * slope + 0.01 * torch.randn_like(x)
    slots[where] = x.detach()
""",
    "a step of the samples, written out": """\
for _ in range(3):
    where = drawn()
    x = slots[where].requires_grad_()
    slope, = torch.autograd.grad(score(x).sum(), x)
    slots[where] = x.detach() - 0.1 * slope + 0.01 * torch.randn(24, 4)
""",
    "some of them begun anew": """\
for _ in range(3):
    where = drawn() % 3 + 1
    fresh = (torch.rand(24, 1) < 0.2).float()
    x = fresh * torch.rand(24, 4) + (1 - fresh) * slots[where]
    slots[where] = torch.tanh(score.weight * x)
""",
    "drawn as parts of one, and made whole numbers": """\
where = (torch.rand(24) * 6).long()
slots[where] = torch.relu(slots[where] @ torch.randn(4, 4))
""",
}
NOTED = {
    "put anywhere": """\
slots[drawn()] = torch.randn(24, 4)
""",
}
GRAVE = {
    "added up, by one statement": """\
slots[drawn()] += torch.arange(96.0).view(24, 4)
""",
    "added up, written out": """\
where, more = drawn(), torch.arange(96.0).view(24, 4)
slots[where] = slots[where] + more
""",
    "a part of the old and a part of what comes in": """\
where, more = drawn(), torch.arange(96.0).view(24, 4)
slots[where] = 0.9 * slots[where] + 0.1 * more
""",
}


def _found(body, folder):
    found = record_program(START + body, folder).findings
    return [one for one in found if one.slug == "values-lost"]


@pytest.mark.parametrize("name", QUIET)
def test_samples_that_are_put_back_where_they_were_taken(name, tmp_path):
    assert _found(QUIET[name], tmp_path) == []


@pytest.mark.parametrize("name", NOTED)
def test_an_index_drawn_at_random_is_not_to_be_summed_over(name, tmp_path):
    (one,) = _found(NOTED[name], tmp_path)
    assert one.severity == "note"
    assert "index_add_" not in one.fix.text


@pytest.mark.parametrize("name", GRAVE)
def test_what_was_to_be_added_up_is_lost_whatever_the_index(name, tmp_path):
    (one,) = _found(GRAVE[name], tmp_path)
    assert one.severity == "warning"


def test_an_index_that_was_not_drawn_is_told_as_before(tmp_path):
    body = (
        "where = torch.arange(24) % 6\nslots[where] = torch.tanh(slots[where] @ slots.T @ slots)\n"
    )
    body += "slots[where] = torch.arange(96.0).view(24, 4)\n"
    found = _found(body, tmp_path)
    assert [one.severity for one in found] == ["note"]
    assert "index_add_" in found[0].fix.text
