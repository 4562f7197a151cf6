"""Arrays that an expression copies as soon as PyTorch has given them."""

import pytest

from programs import record_program

PROGRAM = """\
import copy

import numpy as np
import torch

torch.manual_seed(0)
x, kept = torch.randn(200, 200), []
weight = torch.randn(200, 200, requires_grad=True)

def keep(values):
    LINE

for n in range(4):
    values = MADE
    keep(values)
    AFTER
print(sum(one.sum() for one in kept))
"""
NEW, COPY = "x * n", "kept.append(values.numpy().copy())"

CASES = {
    "of what is made anew": (COPY, NEW, "pass", 1),
    "by numpy.array": ("kept.append(np.array(values))", NEW, "pass", 1),
    "by numpy.array, of the array": ("kept.append(np.array(values.numpy()))", NEW, "pass", 1),
    "by numpy.copy": ("kept.append(np.copy(values.numpy()))", NEW, "pass", 1),
    "by copy.deepcopy": ("kept.append(copy.deepcopy(values.numpy()))", NEW, "pass", 1),
    "after ways that give the tensor": (
        "kept.append(values.detach().cpu().numpy().copy())", NEW, "pass", 1,
    ),
    "by a variable that nothing else reads": (
        "array = values.numpy(); kept.append(array.copy())", NEW, "pass", 1,
    ),
    "by a variable, in numpy's words": (
        "one = values.numpy(); two = np.array(one); kept.append(two)", NEW, "pass", 1,
    ),
    "by a variable that is read twice": (
        "array = values.numpy(); kept.append(array.copy()); kept.append(array)", NEW, "pass", 1,
    ),
    "by a variable that is written later": (
        "array = values.numpy(); kept.append(array.copy()); array += 1", NEW, "pass", 0,
    ),
    "by a variable, several times": (
        "array = values.numpy(); kept.extend([array.copy() for _ in range(2)])", NEW, "pass", 2,
    ),
    "by a variable of the whole program": (
        "global array; array = values.numpy(); kept.append(array.copy())", NEW, "array[:] = 0", 0,
    ),
    "by a variable, and the tensor is read later": (
        "array = values.numpy(); kept.append(array.copy())", NEW, "print(values.sum())", 1,
    ),
    "the copy is written, which nobody but it would see": (
        f"{COPY}; kept[-1] += 1", NEW, "pass", 1,
    ),
    "the tensor is read later": (COPY, NEW, "print(values.sum())", 1),
    "the tensor is written later": (COPY, NEW, "values += 1", 0),
    "of one memory each time": (COPY, "x.mul_(1.5)", "pass", 0),
    "of a part of it": ("kept.append(values[:100].numpy().copy())", NEW, "pass", 0),
    "of another layout": ("kept.append(values.t().numpy().copy())", NEW, "pass", 0),
    "in another format": ("kept.append(np.array(values, dtype=np.float64))", NEW, "pass", 0),
    "of what a backward pass reads": (
        COPY, NEW, "(values * weight).sum().backward()", 1,
    ),
    "of a detached part of a graph": (
        "kept.append(values.detach().numpy().copy())", "weight * n", "pass", 1,
    ),
    "beside the array itself": (
        "kept.append(values.numpy()); kept.append(values.numpy().copy())", NEW, "pass", 1,
    ),
    "of an array that came in": (
        COPY, "torch.from_numpy(np.ones((200, 200), np.float32))", "pass", 0,
    ),
    "of the program's own kind of array": ("kept.append(keep.copy(values.numpy()))", NEW, "pass", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_array_that_is_copied_at_once(name, tmp_path):
    line, made, after, expected = CASES[name]
    text = PROGRAM.replace("LINE", line).replace("MADE", made).replace("AFTER", after)
    text = text.replace("for n in", "keep.copy = lambda one: one * 1\nfor n in")
    found = [one for one in record_program(text, tmp_path).findings if one.slug == "needless-copy"]
    told = [(one.site.line, one.bytes) for one in found]
    assert told == [(11, 640_000 * expected)] * bool(expected)


def test_a_variable_of_the_program_itself_is_followed(tmp_path):
    text = """
    import torch
    kept = []
    for n in range(4):
        array = torch.randn(200, 200).numpy()
        kept.append(array.copy())
    print(sum(one.sum() for one in kept))
    """
    found = [one for one in record_program(text, tmp_path).findings if one.slug == "needless-copy"]
    assert [(one.site.line, one.count) for one in found] == [(6, 4)]
