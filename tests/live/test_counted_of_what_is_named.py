"""Calls on single elements: what is counted is of the tensor that is named."""

from programs import record_program

PAIRS = """\
import torch


def spreads(days):
    temps = torch.rand(days, 24)
    out = torch.zeros(days)
    for day in range(days):
        low = (7 * day * day) % 12
        out[day] = temps[day, low] - temps[day, low + 11]
    return out


print(spreads(900).sum(), spreads(150).sum())
"""

OTHERS_BESIDE = """\
import torch

levels, bounds = torch.rand(1000), torch.rand(1000)
over = 0
for n in range(1000):
    over += bool(levels[n] > bounds[n])
print(over)
"""

LOOKED_FOR = """\
import torch


def found(size, asked):
    shelf = torch.randint(0, 90, (size,))
    return sum(int((shelf == n % 90).nonzero().numel()) for n in range(asked))


print(found(5000, 700), found(800, 200))
"""

COUNTED = """\
import torch


def histogram(throws):
    faces = torch.zeros(6)
    for n in range(throws):
        faces[(7 * n) % 6] += 1
    return faces


print(histogram(900), histogram(200))
"""

STACKED = """\
import torch


def chosen(rows):
    scores = torch.rand(rows, 5)
    return torch.stack([scores[n, n % 5] for n in range(rows)]).sum()


print(SUMS)
"""


def told(program, tmp_path):
    found = record_program(program, tmp_path).findings
    (one,) = [one for one in found if one.slug == "slow-copy"]
    return one.subject, str(one.message), one.count


def test_both_elements_of_a_call_and_the_runs_of_one_tensor(tmp_path):
    subject, message, count = told(PAIRS, tmp_path)
    assert (subject, count) == ("temps", 900)
    assert "1,800 of its elements are taken one by one" in message
    assert "sub in 900 runs" in message


def test_the_elements_of_another_tensor_are_not_counted(tmp_path):
    subject, message, count = told(OTHERS_BESIDE, tmp_path)
    assert (subject, count) == ("levels", 1000)
    assert "1,000 of its elements are taken one by one" in message


def test_comparisons_of_another_tensor_are_counted_apart(tmp_path):
    _, message, _ = told(LOOKED_FOR, tmp_path)
    assert "all of its 5,000 elements with one number in each of 700 runs" in message
    assert "and so others in 200 runs, 3,660,000 comparisons in all" in message


def test_changes_of_another_tensor_are_counted_apart(tmp_path):
    _, message, _ = told(COUNTED, tmp_path)
    assert "changes one of its elements by one number at a time, 900 times" in message
    assert "so it does with 1 more, 200 times" in message


def test_joins_of_several_tensors_say_so(tmp_path):
    one = told(STACKED.replace("SUMS", "chosen(1200)"), tmp_path)[1]
    assert "taken out of it by one call each, 1,200 in 1 runs" in one
    two = told(STACKED.replace("SUMS", "chosen(1200), chosen(300)"), tmp_path)[1]
    assert "taken out of it and 1 more by one call each, 1,500 in 2 runs" in two
