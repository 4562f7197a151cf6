"""`tether.Snapshot`."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from torch import nn

import tether
from tether.copying.intent import Refused


def tied() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Linear(3, 3))
    model[2].weight = model[0].weight
    return model


def change(model: nn.Module, by: float = 1.0) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by)


def test_update_and_restore():
    model = tied()
    best = tether.Snapshot(model)
    first = model[0].weight.detach().clone()
    change(model)
    assert torch.equal(best.value[0].weight, first)
    best.restore()
    assert torch.equal(model[0].weight, first)
    change(model, 2)
    best.update()
    assert torch.equal(best.value[0].weight, first + 2)
    assert best.value[0].weight is best.value[2].weight
    assert model[2].weight is model[0].weight


def test_no_new_memory_after_the_first():
    model = tied()
    best = tether.Snapshot(model)
    addresses = [x.data_ptr() for x in best.value.state_dict().values()]
    for _ in range(3):
        change(model)
        best.update()
        best.average(0.5)
        best.restore()
    assert [x.data_ptr() for x in best.value.state_dict().values()] == addresses


def test_an_average_moves_tied_weights_once():
    model = tied()
    start = model[0].weight.detach().clone()
    best = tether.Snapshot(model)
    change(model, 4)
    model[1].num_batches_tracked.fill_(7)
    best.average(0.75)
    assert torch.allclose(best.value[0].weight, start + 1)
    assert best.value[1].num_batches_tracked == 7
    with pytest.raises(ValueError, match="within"):
        best.average(1.5)


def test_an_average_of_a_tensor_and_its_view():
    w = torch.zeros(4)
    mean = tether.Snapshot({"w": w, "v": w[1:], "d": w.detach()})
    w.fill_(8)
    mean.average(0.5)
    assert mean.value["w"].tolist() == [4] * 4
    half = tether.Snapshot([w[:3], w[1:]])
    with pytest.raises(Refused, match="twice"):
        half.average(0.5)
    w.zero_()
    half.update()
    assert half.value[1].tolist() == [0, 0, 0]


def test_a_source_that_changed_is_named():
    model = tied()
    best = tether.Snapshot(model)
    best.update()
    model[1] = nn.BatchNorm1d(5)
    with pytest.raises(Refused, match=r"1\.(weight|bias|running).*\(5,\)"):
        best.update()
    model = tied()
    best = tether.Snapshot(model)
    best.update()
    model[2].weight = nn.Parameter(model[2].weight.detach().clone())
    for method in (best.update, best.restore):
        with pytest.raises(Refused, match="tensors"):
            method()
    model = tied()
    best = tether.Snapshot(model)
    best.update()
    model[0].bias.data = model[2].bias.data
    with pytest.raises(Refused, match="bias does not share"):
        best.update()


def test_a_replaced_tensor_of_the_same_kind_is_followed():
    model = nn.Linear(2, 2)
    best = tether.Snapshot(model)
    best.update()
    model.weight = nn.Parameter(torch.full((2, 2), 5.0))
    best.update()
    assert best.value.weight.tolist() == [[5, 5], [5, 5]]
    model.bias.data = torch.full((2,), 3.0)
    best.update()
    assert best.value.bias.tolist() == [3, 3]


def test_a_reader_sees_one_state():
    state = {f"k{i}": torch.zeros(40_000) for i in range(8)}
    best = tether.Snapshot(state)
    stop = threading.Event()
    torn: list[object] = []

    def read() -> None:
        while not stop.is_set():
            with best.held() as value:
                seen = {float(x[i]) for x in value.values() for i in (0, -1)}
            copied = {float(x[0]) for x in best.copy().values()}
            if len(seen) != 1 or len(copied) != 1:
                torn.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(100):
        for x in state.values():
            x.fill_(number)
        best.update()
    stop.set()
    reader.join()
    assert not torn


def test_restore_is_a_write_that_autograd_sees():
    w = torch.ones(2, requires_grad=True)
    best = tether.Snapshot({"w": w})
    loss = w.exp().sum() + (w * w).sum()
    best.restore()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_options():
    half = tether.Snapshot({"w": torch.ones(2)})
    assert "dict" in repr(half)
    with pytest.raises(TypeError, match="memory"):
        tether.Snapshot({"w": torch.ones(2)}, memory="share")


@pytest.mark.parametrize("way", ["pickle", "deepcopy", "tether.copy"])
def test_it_can_be_copied_and_pickled(way):
    model = nn.Linear(2, 2)
    best = tether.Snapshot(model)
    kept = best.value.weight.detach().clone()
    held = {"model": model, "best": best}
    copied = {
        "pickle": lambda: pickle.loads(pickle.dumps(held)),
        "deepcopy": lambda: copy.deepcopy(held),
        "tether.copy": lambda: tether.copy(held),
    }[way]()
    with torch.no_grad():
        copied["model"].weight.add_(1)
        model.weight.mul_(0)
    copied["best"].restore()
    assert torch.equal(copied["model"].weight, kept)
    copied["best"].update()
    assert torch.equal(best.value.weight, kept)
    assert not model.weight.any()
