"""Biases right before a batch norm, and biases that count."""

import pytest

from programs import record_program

HEAD = """\
import torch
from torch import nn

torch.manual_seed(0)


def train(net, x):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(4):
        opt.zero_grad()
        net(x).square().mean().backward()
        opt.step()


"""

TAKEN_OUT = {
    "of a linear layer": "train(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(),"
    " nn.Linear(5, 2)), torch.randn(16, 6))\n",
    "of a convolution": "net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(),"
    " nn.Flatten(), nn.Linear(64, 2))\nnn.init.constant_(net[0].bias, 8.0)\n"
    "train(net, torch.randn(8, 3, 6, 6))\n",
}

COUNTS = {
    "a norm with statistics that stay": "net = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5),"
    " nn.Linear(5, 2))\nnet[1].eval()\ntrain(net, torch.randn(16, 6))\n",
    "the norm comes after something else": "train(nn.Sequential(nn.Linear(6, 5), nn.Tanh(),"
    " nn.BatchNorm1d(5), nn.Linear(5, 2)), torch.randn(16, 6))\n",
    "its values lie along another dimension": "train(nn.Sequential(nn.Linear(6, 5),"
    " nn.BatchNorm1d(5), nn.Linear(5, 2)), torch.randn(16, 5, 6))\n",
}


def _unmoved(text, folder):
    found = record_program(HEAD + text, folder).findings
    return [one for one in found if one.slug == "parameter-unmoved"]


@pytest.mark.parametrize("name", TAKEN_OUT)
def test_a_bias_that_the_norm_takes_out(name, tmp_path):
    (found,) = _unmoved(TAKEN_OUT[name], tmp_path)
    assert found.severity == "note"
    assert found.subject == "net.0.bias"
    assert "takes the mean of each channel away" in found.message
    assert "bias=False" in found.fix.text


@pytest.mark.parametrize("name", COUNTS)
def test_a_bias_that_counts(name, tmp_path):
    assert not any(
        "mean of each channel" in one.message for one in _unmoved(COUNTS[name], tmp_path)
    )
