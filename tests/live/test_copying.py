"""`tether.copy` of one tensor: what no law covers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tether
from tether.copying import steps
from tether.copying.intent import Intent, Refused, decide


def test_one_plain_tensor_comes_back_as_a_value():
    leaf = torch.ones(3, requires_grad=True)
    copied = tether.copy(leaf)
    assert not copied.requires_grad
    assert copied.is_leaf
    assert not copied._is_view()


def test_a_parameter_stays_a_parameter():
    for wants in (True, False):
        copied = tether.copy(nn.Parameter(torch.ones(2), requires_grad=wants))
        assert type(copied) is nn.Parameter
        assert copied.requires_grad is wants
    assert type(tether.copy(nn.Parameter(torch.ones(2)), grad="keep")) is torch.Tensor


def test_a_buffer_stays_a_buffer():
    copied = tether.copy(nn.Buffer(torch.ones(2), persistent=False))
    assert isinstance(copied, nn.Buffer)
    assert copied.persistent is False


def test_gradients_flow_through_a_kept_copy_even_under_no_grad():
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    with torch.no_grad():
        kept = tether.copy(x, grad="keep")
    (kept * kept).sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]
    converted = tether.copy(x, grad="keep", dtype="float64")
    assert converted.dtype is torch.float64
    assert tether.relate(converted, x).gradient == "descendant"


def test_a_forward_gradient_is_cut_as_well():
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(torch.ones(3), torch.ones(3))
        assert forward.unpack_dual(tether.copy(dual)).tangent is None
        assert forward.unpack_dual(tether.copy({"a": dual})["a"]).tangent is None
        assert forward.unpack_dual(tether.copy(dual, grad="keep")).tangent is not None


def test_transforms_see_the_cut():
    def loss(x, **how):
        return (tether.copy(x, **how) * x).sum()

    x = torch.tensor([1.0, 2.0])
    assert torch.equal(torch.func.grad(loss)(x), x)
    assert torch.equal(torch.func.grad(lambda x: loss(x, grad="keep"))(x), 2 * x)
    assert torch.equal(torch.func.grad(lambda x: (tether.copy([x])[0] * x).sum())(x), x)
    assert torch.vmap(lambda row: tether.copy({"a": row})["a"])(torch.ones(2, 3)).shape == (2, 3)


def test_a_copy_on_write_source_stays_unshared():
    x = torch.ones(8)
    lazy = torch._lazy_clone(x)
    copied = tether.copy(lazy)
    tether.copy([lazy, torch.ones(2)])
    tether.copy({"m": nn.Linear(1, 1), "x": lazy})
    tether.relate(lazy, x)
    assert torch._C._is_cow_tensor(lazy)
    assert torch.equal(copied, x)


def test_dtype_format_and_device():
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    copied = tether.copy(x, dtype=torch.float64, memory_format=torch.channels_last, device="cpu")
    assert copied.dtype is torch.float64
    assert copied.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(copied, x.double())
    assert tether.copy(x, device="meta").device.type == "meta"
    with pytest.raises(ValueError, match="no dtype"):
        tether.copy(x, dtype="float99")


def test_out_is_written_and_returned():
    x = torch.arange(4.0, requires_grad=True)
    out = torch.zeros(4, dtype=torch.float64)
    assert tether.copy(x, out=out) is out
    assert out.tolist() == [0, 1, 2, 3]
    assert not out.requires_grad
    array = np.zeros(4, dtype=np.float32)
    assert tether.copy(x, out=array) is array
    assert array.tolist() == [0, 1, 2, 3]


def test_an_out_that_cannot_be_is_refused():
    x = torch.arange(4.0)
    array = np.zeros(4)
    array.flags.writeable = False
    for out, words in [
        (torch.zeros(5), "shape"),
        (torch.zeros(1).expand(4), "expanded"),
        (x, "shares bytes"),
        (torch.cat([x, x])[2:6][:4], None),
        (array, "read-only"),
    ]:
        if words is None:
            tether.copy(x, out=out)
            continue
        with pytest.raises(Refused, match=words):
            tether.copy(x, out=out)
    base = torch.arange(6.0)
    with pytest.raises(Refused, match="shares bytes"):
        tether.copy(base[:4], out=base[2:])
    tether.copy(base[::2], out=base[1::2])  # interleaved: one storage and no common byte
    assert base.tolist() == [0, 0, 2, 2, 4, 4]


def test_an_out_in_a_graph_is_a_write_that_autograd_sees():
    w = torch.ones(2, requires_grad=True)
    saved = w.exp()
    tether.copy(torch.zeros(2), out=saved.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


def test_sparse_quantized_and_nested_tensors():
    sparse = torch.eye(3).to_sparse().requires_grad_()
    copied = tether.copy({"s": sparse})["s"]
    assert copied.layout is torch.sparse_coo
    assert copied.requires_grad
    with torch.no_grad():
        copied._values().zero_()
    assert sparse.detach().to_dense().sum() == 3
    assert tether.copy(sparse, dense=True).layout is torch.strided
    jagged = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)
    assert tether.copy([jagged])[0].values().tolist() == [1] * 5


def test_the_plan_can_be_read(capsys):
    x = torch.ones(3, requires_grad=True)
    plan = tether.plan(x, to="numpy", memory="share")
    assert plan.calls == ("detach", "numpy")
    assert "shares the source's memory" in str(plan)
    tether.copy(x, explain=True)
    captured = capsys.readouterr()
    assert "detach" in captured.err
    assert captured.out == ""
    tree = tether.plan({"a": x, "b": x[1:], "lock": print})
    assert (tree.tensors, tree.groups) == (2, 1)
    assert "['a']" in str(tree)


def test_unknown_words_are_named():
    for option in ({"memory": "steal"}, {"to": "pandas"}, {"objects": "maybe"}, {"grad": "half"}):
        (word,) = option.values()
        with pytest.raises(ValueError, match=word):
            tether.copy(torch.ones(1), **option)


def test_the_quick_way_and_the_plan_agree():
    for x in (torch.ones(3), torch.ones(3, requires_grad=True) * 2, torch.ones(9 << 20)):
        quick = tether.copy(x)
        subject = steps.subject_of(x)
        planned = steps.apply(decide(Intent(), subject), x, Intent())
        assert torch.equal(quick, planned)
        for relation in (tether.relate(quick, x), tether.relate(planned, x)):
            assert relation == tether.relate(x.detach().clone(), x)


def test_a_pending_copy_is_no_tensor():
    pending = tether.copy(torch.ones(3), non_blocking=True)
    assert not isinstance(pending, torch.Tensor)
    assert "wait()" in repr(pending)
    with pytest.raises(TypeError):
        pending + 1
    assert pending.wait().tolist() == [1, 1, 1]
    assert pending.done()
    assert tether.copy([torch.ones(3)], non_blocking=True).wait()[0].sum() == 3
