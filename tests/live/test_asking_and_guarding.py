"""`tether.why` on a live graph, and `tether.unchanged`."""

import pytest
import torch

import tether
from tether.record.unchanged import ChangedError


def test_a_path_is_named_from_the_loss_to_the_leaf():
    w = torch.ones(3, requires_grad=True)
    answer = tether.why(w, (w * 2).exp().sum())
    assert answer
    assert answer.path == ("SumBackward0", "ExpBackward0", "MulBackward0", "AccumulateGrad")
    assert "reach" in str(answer)


def test_a_detached_leaf_is_not_reached():
    w, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    answer = tether.why(w, (w.detach() * v).sum())
    assert not answer
    assert "no path" in str(answer)


@pytest.mark.parametrize(
    ("tensor", "loss", "said"),
    [
        (torch.ones(1), torch.ones(1, requires_grad=True) * 1, "does not require grad: switch"),
        (torch.ones(1, requires_grad=True), torch.ones(1), "the loss does not require grad"),
        (torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True), "a leaf"),
    ],
)
def test_the_reason_is_said(tensor, loss, said):
    assert said in str(tether.why(tensor, loss))


def test_a_non_leaf_is_told_about_retain_grad():
    w = torch.ones(3, requires_grad=True)
    y = w * 2
    assert "retain_grad" in str(tether.why(y, y.sum()))
    y.retain_grad()
    assert "retain_grad" not in str(tether.why(y, y.sum()))


def test_the_graph_can_be_asked_after_backward():
    w = torch.ones(3, requires_grad=True)
    loss = w.exp().sum()
    loss.backward()
    assert tether.why(w, loss)


def test_a_wrong_argument_is_said_in_one_line():
    with pytest.raises(TypeError, match="loss is a float"):
        tether.why(torch.ones(1), 1.0)


def test_unchanged_is_quiet_when_nothing_changes():
    x = torch.tensor([1.0, float("nan")])
    with tether.unchanged(x):
        x + 1


def test_unchanged_names_the_writers_line():
    x = torch.zeros(3)
    with pytest.raises(ChangedError, match=r"add_ at .*test_asking_and_guarding.py:\d+"):
        with tether.unchanged(x):
            x.add_(1)


def test_unchanged_names_a_write_through_a_view():
    x = torch.zeros(4)
    with pytest.raises(ChangedError, match="through another tensor"), tether.unchanged(x):
        x[1:].fill_(2)


def test_unchanged_finds_a_write_that_torch_did_not_make():
    x = torch.zeros(3)
    array = x.numpy()
    with pytest.raises(ChangedError, match="no torch call wrote it"), tether.unchanged(x):
        array[0] = 1


def test_an_exception_of_the_block_passes_through():
    x = torch.zeros(3)
    with pytest.raises(KeyError), tether.unchanged(x):
        x.add_(1)
        raise KeyError("mine")
