"""Copies that lay queries, keys and values out for attention, which takes any strides.

Each program says in comments what must be found and where; see `programs.py`.
"""

import sys

import pytest
import torch

from programs import check_program, record_program
from tether.record.values.laid_out import _laid_as

START = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
query, key, value = (torch.nn.Linear(32, 32) for _ in range(3))


@torch.no_grad()
def project(x):
    return [one(x).view(*x.shape[:2], 4, 8).transpose(1, 2) for one in (query, key, value)]


"""

FOUND = {
    "a function that lays out each": """\
def heads(layer, x):
    x = layer(x).view(6, 20, 4, 8)
    return x.transpose(1, 2).contiguous()  #! needless-copy x.transpose(1, 2).contiguous() (note)


with torch.no_grad():
    for _ in range(3):
        x = torch.rand(6, 20, 32)
        out = F.scaled_dot_product_attention(heads(query, x), heads(key, x), heads(value, x))
        print(out.transpose(1, 2).amax((1, 2)).sum().item())
""",
    "keys alone, of what lives on": """\
for _ in range(3):
    q, k, v = project(torch.rand(6, 20, 32))
    laid = k.contiguous()  #! needless-copy laid (note)
    print(F.scaled_dot_product_attention(q, laid, v, is_causal=True).amax().item(), k.amax().item())
""",
    "with a mask": """\
mask = torch.zeros(20, 20)
for _ in range(3):
    q, k, v = project(torch.rand(6, 20, 32))
    v = v.contiguous()  #! needless-copy v (note)
    print(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).amax().item())
""",
    "parts of one product": """\
both = torch.nn.Linear(32, 96)


@torch.no_grad()
def parts(x):
    return both(x).view(6, 20, 3, 4, 8).permute(2, 0, 3, 1, 4)


for _ in range(3):
    q, k, v = parts(torch.rand(6, 20, 32))
    v = v.contiguous()  #! needless-copy v (note)
    print(F.scaled_dot_product_attention(q, k, v).amax().item())
""",
    "all parts at once, taken apart after that": """\
both = torch.nn.Linear(32, 96)


class Heads(torch.nn.Module):
    def forward(self, x):
        every = both(x).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = every.contiguous()  #! needless-copy every.contiguous() (note)
        return F.scaled_dot_product_attention(q, k, v)


with torch.inference_mode():
    for _ in range(3):
        print(Heads()(torch.rand(6, 20, 32)).amax().item())
""",
    "all parts at once, by number": """\
both = torch.nn.Linear(32, 64)


@torch.no_grad()
def attend(query, x):
    pair = both(x).view(6, 20, 2, 4, 8).permute(2, 0, 3, 1, 4).contiguous()  #! needless-copy pair (note)
    return F.scaled_dot_product_attention(query, pair[0], pair[1])


for _ in range(3):
    q, _k, _v = project(torch.rand(6, 20, 32))
    print(attend(q, torch.rand(6, 20, 32)).amax().item())
""",
    "each part, of one that is larger": """\
both = torch.nn.Linear(32, 96)


@torch.no_grad()
def attend(x):
    def laid(one):
        one = one.view(64, 20, 4, 8).transpose(1, 2)
        return one.contiguous()  #! needless-copy one.contiguous() (note)

    q, k, v = map(laid, both(x).chunk(3, dim=-1))
    return F.scaled_dot_product_attention(q, k, v)


for _ in range(3):
    print(attend(torch.rand(64, 20, 32)).amax().item())
""",
}

QUIET = {
    "all parts at once, of which one is viewed": """\
both = torch.nn.Linear(32, 96)
with torch.no_grad():
    for _ in range(3):
        every = both(torch.rand(6, 20, 32)).view(6, 20, 3, 4, 8)
        q, k, v = every.permute(2, 0, 3, 1, 4).contiguous()
        print(F.scaled_dot_product_attention(q, k, v).amax().item(), v.view(24, -1).sum().item())
""",
    "all parts at once, for products that each would lay out": """\
both = torch.nn.Linear(32, 96)
with torch.no_grad():
    for _ in range(3):
        every = both(torch.rand(6, 20, 32)).view(6, 20, 3, 4, 8)
        q, k, v = every.permute(2, 0, 3, 1, 4).contiguous()
        print((q @ k.transpose(-2, -1)).softmax(-1).matmul(v).amax().item())
""",
    "each part, of which one is kept": """\
both, kept = torch.nn.Linear(32, 96), []


@torch.no_grad()
def attend(x):
    parts = both(x).view(64, 20, 12, 8).chunk(3, dim=2)
    q, k, v = [one.transpose(1, 2).contiguous() for one in parts]
    kept.append(v)
    return F.scaled_dot_product_attention(q, k, v)


for _ in range(3):
    print(attend(torch.rand(64, 20, 32)).amax().item())
""",
    "all parts at once, of which one is scaled in place while its source lives": """\
both = torch.nn.Linear(32, 96)
with torch.no_grad():
    for _ in range(3):
        every = both(torch.rand(6, 20, 32)).view(6, 20, 3, 4, 8).permute(2, 0, 3, 1, 4)
        q, k, v = every.contiguous()
        q.mul_(0.5)
        print(F.scaled_dot_product_attention(q, k, v).amax().item(), every.sum().item())
""",
    "what draws": """\
for _ in range(3):
    q, k, v = project(torch.rand(6, 20, 32))
    out = F.scaled_dot_product_attention(q, k.contiguous(), v, dropout_p=0.2)
    print(out.amax().item())
""",
    "a result that is viewed as it lies": """\
for _ in range(3):
    q, k, v = project(torch.rand(6, 20, 32))
    out = F.scaled_dot_product_attention(q.contiguous(), k, v)
    print(out.view(6, 4, 160).amax(2).sum().item())
""",
    "what asks how the result lies": """\
for _ in range(3):
    q, k, v = project(torch.rand(6, 20, 32))
    out = F.scaled_dot_product_attention(q.contiguous(), k, v)
    print(out.is_contiguous(), out.amax().item())
""",
    "a cache that is written": """\
cache = torch.zeros(6, 20, 4, 8)
for _ in range(3):
    q, k, v = project(torch.rand(6, 20, 32))
    kept = cache.transpose(1, 2).contiguous()
    cache.copy_(k.transpose(1, 2))
    print(F.scaled_dot_product_attention(q, kept, v).amax().item())
""",
    "no way of its own is known for the heads of one": """\
for _ in range(3):
    q, k, v = project(torch.rand(6, 20, 32))
    rows = k.contiguous().view(24, 20, 8)
    print(torch.bmm(rows, rows.mT).amax().item())
""",
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Let no thread count that another test of this process has left: what drops is tried alone."""
    monkeypatch.setattr(sys.modules["tether.record.listener"], "active_count", lambda: 1)


@pytest.mark.parametrize("program", FOUND.values(), ids=FOUND)
def test_attention_takes_any_strides(program, tmp_path):
    check_program(START + program, tmp_path)


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_what_comes_of_attention_may_rely_on_them(program, tmp_path):
    findings = check_program(START + program, tmp_path).findings
    assert "needless-copy" not in {one.slug for one in findings}


def test_what_draws_draws_as_it_would_unrecorded(tmp_path):
    drawn = tmp_path / "drawn.pt"
    text = f"{START}{QUIET['what draws']}torch.save(torch.rand(3), {str(drawn)!r})\n"
    recording = record_program(text, tmp_path)
    assert {one.same for one in recording.trace.tried} == {False}
    recorded = torch.load(drawn)
    exec(compile(text, "plain", "exec"), {})
    assert torch.equal(recorded, torch.load(drawn))


def test_a_source_that_is_gone_is_laid_out_again():
    x = torch.arange(24.0).view(2, 3, 4)
    laid = _laid_as(x, (5, (2, 3, 4), (4, 8, 1)))
    assert torch.equal(laid, x)
    assert (laid.storage_offset(), laid.stride()) == (5, (4, 8, 1))
    assert _laid_as(x, (0, (2, 3, 4), (0, 4, 1))) is None
