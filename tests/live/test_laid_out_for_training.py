"""Copies that lay elements out for a call whose gradients are the same without them, bit for bit.

Each program says in comments what must be found and where; see `programs.py`.
"""

import gc
import sys
import weakref

import pytest
import torch

import tether
from programs import expected_in, found_in, record_program
from tether.analysis.copies.relied_layout import trained

START = """\
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
query, key, value, out = (nn.Linear(32, 32) for _ in range(4))
parameters = [p for one in (query, key, value, out) for p in one.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.1)


def train(forward):
    for _ in range(5):
        optimizer.zero_grad()
        forward(torch.randn(6, 20, 32)).square().mean().backward()
        optimizer.step()


def heads(x):
    return x.view(6, -1, 4, 8).transpose(1, 2)


"""

FOUND = {
    "attention that is causal": """\
def forward(x):
    parts = [query, key, value]
    q, k, v = [
        heads(one(x)).contiguous()  #! needless-copy heads(one(x)).contiguous() (note)
        for one in parts
    ]
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out(y.transpose(1, 2).reshape(6, 20, 32))


train(forward)
""",
    "attention to a memory, with a mask": """\
memory = torch.randn(6, 11, 32)
mask = torch.zeros(20, 11)


def forward(x):
    k = heads(key(memory)).contiguous()  #! needless-copy k (note)
    v = heads(value(memory))
    y = F.scaled_dot_product_attention(heads(query(x)), k, v, attn_mask=mask)
    return out(y.transpose(1, 2).flatten(2))


train(forward)
""",
    "attention that drops": """\
def forward(x):
    v = heads(value(x)).contiguous()  #! needless-copy v (note)
    y = F.scaled_dot_product_attention(heads(query(x)), heads(key(x)), v, dropout_p=0.2)
    return out(y.transpose(1, 2).flatten(2))


train(forward)
""",
    "attention written out": """\
def forward(x):
    q = heads(query(x)).contiguous()  #! needless-copy q (note)
    weights = (q @ heads(key(x)).mT).mul(8**-0.5).softmax(-1)
    laid = heads(value(x)).contiguous()  #! needless-copy laid (note)
    return out((weights @ laid).transpose(1, 2).flatten(2))


train(forward)
""",
    "an einsum": """\
def forward(x):
    k = heads(key(x)).contiguous()  #! needless-copy k (note)
    weights = torch.einsum("bhqd,bhkd->bhqk", heads(query(x)), k).softmax(-1)
    return out(torch.einsum("bhqk,bhkd->bqhd", weights, heads(value(x))).flatten(2))


train(forward)
""",
    "data that lies channels first": """\
def forward(x):
    rows = x.view(6, 32, 20).permute(0, 2, 1).contiguous()  #! needless-copy rows (note)
    return query(rows)


train(forward)
""",
    "matrices in a batch": """\
def forward(x):
    turned = key(x).transpose(1, 2).contiguous()  #! needless-copy turned (note)
    return torch.bmm(query(x), turned)


train(forward)
""",
    "without a bias, evaluated between": """\
project = nn.Linear(32, 64, bias=False)
optimizer.add_param_group({"params": project.parameters()})


def forward(x):
    q, k = heads(query(x)), project(x)[..., :32].unflatten(2, (4, 8)).transpose(1, 2)
    q = q.contiguous()  #! needless-copy q (note)
    return F.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2)


for _ in range(3):
    train(forward)
    with torch.no_grad():
        print(forward(torch.randn(6, 20, 32)).amax().item())
""",
}

QUIET = {
    "the heads of all as one batch": """\
def forward(x):
    q, k = (heads(one(x)).contiguous().view(24, 20, 8) for one in (query, key))
    return torch.bmm(q, k.mT)
""",
    "a result that is viewed as it lies": """\
def forward(x):
    y = F.scaled_dot_product_attention(heads(query(x)).contiguous(), heads(key(x)), heads(x))
    return y.view(6, 4, 160)
""",
    "a mean that adds in another order": """\
def forward(x):
    return query(x).transpose(1, 2).contiguous().mean(2)
""",
    "weights whose gradient would lie in another way": """\
def forward(x):
    return x @ query.weight.t().contiguous()
""",
    "images whose channels were last": """\
conv = nn.Conv2d(8, 4, 3)
optimizer.add_param_group({"params": conv.parameters()})


def forward(x):
    return conv(query(x).view(6, 20, 4, 8).permute(0, 3, 1, 2).contiguous())
""",
    "images that are laid out channels-last": """\
conv = nn.Conv2d(8, 4, 3)
optimizer.add_param_group({"params": conv.parameters()})


def forward(x):
    return conv(query(x).view(6, 8, 20, 4).contiguous(memory_format=torch.channels_last))
""",
    "several that would each lay it out": """\
def forward(x):
    turned = x.view(6, 32, 20).transpose(1, 2).contiguous()
    return query(turned) + key(turned) + value(turned)
""",
    "a copy that is written": """\
def forward(x):
    k = heads(key(x))
    laid = k.contiguous()
    laid[:, :, 0] = 0.0
    return F.scaled_dot_product_attention(heads(query(x)), laid, heads(value(x))) + k
""",
    "a gradient of its own": """\
seen = []


def forward(x):
    laid = heads(key(x)).contiguous()
    laid.register_hook(lambda grad: seen.append(grad.is_contiguous()))
    return F.scaled_dot_product_attention(heads(query(x)), laid, heads(value(x)))
""",
    "a gradient that would be added up in another order": """\
def forward(x):
    k = heads(key(x))
    laid = k.contiguous()
    y = F.scaled_dot_product_attention(heads(query(x)), laid, heads(value(x)))
    return y * k + k.exp()
""",
    "windows that are shown by strides": """\
def forward(x):
    q = heads(query(x)).contiguous().as_strided((24, 9, 4, 8), (160, 16, 8, 1))
    return q @ q.mT
""",
}


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Let no thread count that another test of this process has left: what drops is tried alone."""
    monkeypatch.setattr(sys.modules["tether.record.listener"], "active_count", lambda: 1)


def gives_other_bits():
    """Whether this processor's kernels sum up in another order where a factor lies in another way."""
    query, key = (torch.rand(6, 20, 4, 8).transpose(1, 2) for _ in range(2))
    query.requires_grad_()
    products = [torch.einsum("bhqd,bhkd->bhqk", query, one) for one in (key, key.contiguous())]
    gradients = [torch.autograd.grad(one.square().sum(), query)[0] for one in products]
    return not (torch.equal(*products) and torch.equal(*gradients))


@pytest.mark.parametrize("name", FOUND)
def test_gradients_are_the_same_without(name, tmp_path):
    program = FOUND[name]
    if name == "an einsum" and gives_other_bits():
        pytest.skip("the copy is needed on this processor: without it other bits come out")
    expected = expected_in(START + program)
    recording = record_program(START + program, tmp_path)
    assert recording.error is None
    found = found_in(recording, expected)
    assert [one for one in found if "needless-copy" in one] == expected


@pytest.mark.parametrize("program", QUIET.values(), ids=QUIET)
def test_a_result_or_a_gradient_may_rely_on_the_layout(program, tmp_path):
    recording = record_program(f"{START}{program}\n\ntrain(forward)\n", tmp_path)
    assert recording.error is None
    assert "needless-copy" not in {one.slug for one in recording.findings}


HEARD = {
    "what is saved": """\
def keep(x):
    saved.append(tuple(x.shape))
    return x


train(query)
with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
    train(forward)
""",
    "before the first pass of its own": """\
forward(torch.randn(6, 20, 32)).sum().backward()
""",
    "anomalies": """\
train(query)
with torch.autograd.detect_anomaly(check_nan=False):
    train(forward)
""",
    "a number format of its own": """\
train(query)
with torch.autocast("cpu"):
    train(forward)
""",
    "a pass that is made again": """\
from torch.utils.checkpoint import checkpoint


train(query)
train(lambda x: checkpoint(forward, x.requires_grad_(), use_reentrant=True))
""",
    "a derivative by forward mode": """\
import torch.autograd.forward_ad as ad


train(query)
with ad.dual_level():
    x = ad.make_dual(torch.randn(6, 20, 32), torch.ones(6, 20, 32))
    print(query(x) @ key(x).transpose(1, 2).contiguous())
""",
    "a transform": """\
train(query)
torch.func.grad(lambda x: forward(x).sum())(torch.randn(6, 20, 32))
""",
}

FORWARD = """\
saved = []


def forward(x):
    k = heads(key(x)).contiguous()
    y = F.scaled_dot_product_attention(heads(query(x)), k, heads(value(x)))
    return out(y.transpose(1, 2).flatten(2))


"""


@pytest.mark.parametrize("name", HEARD)
def test_no_call_is_made_again_where_it_would_be_heard(name, tmp_path):
    recording = record_program(START + FORWARD + HEARD[name], tmp_path)
    assert recording.error is None
    history = recording.history
    made_again = [history.events[history.position(one.event)] for one in recording.trace.tried]
    assert not any(map(trained, made_again))


@pytest.mark.parametrize("name", ["attention that drops", "attention that is causal"])
def test_a_training_goes_as_it_would_unrecorded(name, tmp_path):
    kept = tmp_path / "kept.pt"
    text = f"{START}{FOUND[name]}torch.save([torch.rand(3), *parameters], {str(kept)!r})\n"
    assert all(one.same for one in record_program(text, tmp_path).trace.tried)
    recorded = torch.load(kept)
    exec(compile(text, "plain", "exec"), {})
    assert all(map(torch.equal, recorded, torch.load(kept)))


def test_a_call_made_again_with_gradients_keeps_nothing_alive_and_leaves_none():
    gc.disable()
    try:
        with tether.record() as recording:
            x = torch.randn(64, 48, requires_grad=True)
            w = torch.randn(64, 2, requires_grad=True)
            x.sum().backward()
            x.grad = None
            source = x * 2
            y = source.t().contiguous()
            out = y @ w
            memory = [weakref.ref(one.untyped_storage()) for one in (source, y, out)]
            del source, y, out
            assert [one() for one in memory] == [None] * 3
            assert x.grad is w.grad is None
    finally:
        gc.enable()
    assert len(recording.trace.tried) == 1
