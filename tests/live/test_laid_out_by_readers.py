"""A copy in order whose reader copies what is not in order saves nothing where it is left out."""

from collections import Counter
from itertools import permutations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from programs import record_program
from tether.operations.table import operation

HEAD = "import torch\n\ntorch.manual_seed(0)\nx = torch.rand(300, 40)\n"
READ_IN_ORDER = {
    "a search among rows": "x = x.t().contiguous()\n"
    "print(torch.searchsorted(torch.linspace(0, 1, 9), x).sum())",
    "what is searched": "edges = torch.linspace(0, 1, 9).expand(300, 9).contiguous()\n"
    "print(torch.searchsorted(edges, x).sum())",
    "buckets": "x = x.t().contiguous()\nprint(torch.bucketize(x, torch.linspace(0, 1, 9)).sum())",
    "distinct values": "x = x.t().contiguous()\nprint(torch.unique(x).numel())",
    "indices of rows": "at = (x * 9).long().t().contiguous()\n"
    "print(torch.nn.functional.embedding(at, torch.rand(10, 3)).sum())",
    "a clone in order": "edges = torch.linspace(0, 1, 9).expand(300, 9)\n"
    "edges = edges.clone(memory_format=torch.contiguous_format)\n"
    "print(torch.searchsorted(edges, x).sum())",
}
TAKEN_AS_IT_LIES = {
    "planes by their numbers": "x = x.view(10, 30, 40).permute(0, 2, 1).contiguous()\n"
    "print(x[torch.tensor([3, 0, 7])].view(-1).sum())",
    "planes by a mask": "x = x.view(10, 30, 40).permute(2, 1, 0).contiguous()\n"
    "print(x[x[:, 0, 0] > 0.5].view(-1, 10).sum())",
    "planes by numbers at the end": "x = x.view(10, 30, 40).permute(2, 1, 0).contiguous()\n"
    "print(x[:, :, torch.arange(4)].view(-1).sum())",
    "cells by numbers, beside a sum of all": "x = x.t().contiguous()\n"
    "print(x[torch.tensor([3, 0, 7])].sum(), (x + 1).view(-1)[-1])",
}
READ_ANYHOW = {
    "the greatest of each row": "x = x.t().contiguous()  #!\nprint(x.amax(1).sum())",
    "a comparison": "x = x.t().contiguous()  #!\nprint((x > 0.5).any())",
    "a choice": "x = x.t().contiguous()  #!\nprint(x.index_select(0, torch.arange(5)).sum())",
    "rows by their numbers": "x = x.t().contiguous()  #!\nprint(x[torch.arange(9) * 2].sum(1)[0])",
    "cells by the places that a comparison gave": "x = x.view(10, 30, 40).permute(0, 2, 1)"
    ".contiguous()  #!\n"
    "a, b = (x[..., 3] > 0.5).nonzero().unbind(1)\nprint(x[a, b].view(-1).softmax(0).sum())",
    "cells by a mask": "x = x.view(10, 30, 40).permute(2, 0, 1).contiguous()  #!\n"
    "print(x[x[..., 0] > 0.5].view(-1, 2).sum(1).max())",
    "cells by numbers in two dimensions": "x = x.t().contiguous()  #!\n"
    "print(x[torch.arange(8).view(4, 2).t()].view(-1).cumsum(0)[-1])",
    "sorting": "x = x.t().contiguous()  #!\nprint(x.sort(1)[0][0, 0])",
    "in order either way": "x = x.clone()  #!\n"
    "print(torch.searchsorted(torch.linspace(0, 1, 9), x).sum())",
}


def needless(text, folder):
    found = record_program(HEAD + text + "\n", folder).findings
    return [one.site.line for one in found if one.slug == "needless-copy"]


@pytest.mark.parametrize("case", READ_IN_ORDER)
def test_what_the_reader_would_copy_is_not_needless(case, tmp_path):
    assert needless(READ_IN_ORDER[case], tmp_path) == []


@pytest.mark.parametrize("case", TAKEN_AS_IT_LIES)
def test_what_is_taken_as_it_lies_is_not_needless(case, tmp_path):
    assert needless(TAKEN_AS_IT_LIES[case], tmp_path) == []


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_cells_that_numbers_take_lie_alike_whatever_they_are_taken_of(order, shape):
    """Of more dimensions than one that are taken whole they lie as the source does."""
    turned = torch.rand(3, 4, 5, 6).permute(order)
    plain = turned.contiguous()
    for whole in (0, 1, 2, 3):
        index = [torch.randint(0, size, shape) for size in turned.shape]
        index[whole] = slice(None)
        assert turned[tuple(index)].stride() == plain[tuple(index)].stride()
    mask = plain[..., 0] > 0.5
    assert turned[mask].stride() == plain[mask].stride()


@pytest.mark.parametrize("case", READ_ANYHOW)
def test_what_is_read_as_it_lies_is_needless(case, tmp_path):
    lines = (HEAD + READ_ANYHOW[case]).splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith("#!")]
    assert needless(READ_ANYHOW[case], tmp_path) == marked


EDGES, WHOLE = torch.linspace(0, 1, 9), torch.arange(64 * 48).reshape(64, 48) % 7
TRIED = {
    "unique": torch.unique,
    "searchsorted": lambda x: torch.searchsorted(EDGES, x),
    "bucketize": lambda x: torch.bucketize(x, EDGES),
    "one_hot": lambda x: torch.nn.functional.one_hot(x, 7),
    "embedding": lambda x: torch.nn.functional.embedding(x, torch.ones(7, 3)),
    "bincount": lambda x: torch.bincount(x[0]),
    "amax": lambda x: x.amax(1),
    "any": lambda x: x.any(1),
    "equal": lambda x: torch.equal(x, x),
    "cat": lambda x: torch.cat([x, x]),
    "stack": lambda x: torch.stack([x, x]),
    "index_select": lambda x: x.index_select(0, torch.arange(5)),
    "gather": lambda x: x.gather(1, torch.zeros(64, 48).long()),
    "nonzero": torch.nonzero,
    "copy_": lambda x: torch.zeros(64, 48).copy_(x),
    "isin": lambda x: torch.isin(x, torch.ones(1)),
    "count_nonzero": torch.count_nonzero,
    "argmax": lambda x: x.argmax(1),
    "sort": lambda x: x.sort(1),
    "argsort": lambda x: x.argsort(1),
    "cummax": lambda x: x.cummax(1),
}
OF_WHOLE = ("one_hot", "embedding", "bincount")


def copies_in(function, given):
    function(given)
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        function(given)
    return Counter(one.name for one in seen.events())["aten::clone"]


@pytest.mark.parametrize("name", TRIED)
def test_which_operations_copy_what_is_not_in_order_is_as_pytorch_does(name):
    given = WHOLE if name in OF_WHOLE else torch.rand(64, 48)
    apart = torch.repeat_interleave(given, 2, 1)[:, ::2]
    more = copies_in(TRIED[name], apart) - copies_in(TRIED[name], given)
    assert (more > 0) == bool(operation(name).lays_out)
