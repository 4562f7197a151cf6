"""A copy in order whose reader copies what is not in order saves nothing where it is left out."""

from collections import Counter

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
READ_ANYHOW = {
    "the greatest of each row": "x = x.t().contiguous()  #!\nprint(x.amax(1).sum())",
    "a comparison": "x = x.t().contiguous()  #!\nprint((x > 0.5).any())",
    "a choice": "x = x.t().contiguous()  #!\nprint(x.index_select(0, torch.arange(5)).sum())",
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
