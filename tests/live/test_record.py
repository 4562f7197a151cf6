"""`tether.record`: a block of a running program instead of a whole one."""

import os

import pytest
import torch
from torch import nn

import tether


def train(model, steps=2):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        opt.zero_grad()
        model[1](model[0](torch.ones(2, 3)).detach()).sum().backward()
        opt.step()


def net():
    return nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 1))


def test_a_block_is_judged_and_asked():
    model = net()
    with tether.record() as recording:
        train(model)
    (finding,) = [one for one in recording.findings if one.severity != "note"]
    assert (finding.slug, finding.subject) == ("gradient-cut", "model.0.weight")
    assert finding.site.expression == "model[0](torch.ones(2, 3)).detach()"
    assert "detach" in str(recording.why("model.0.weight"))
    assert {row.name: row.status for row in recording.gradients} == {
        "model.0.weight": "none",
        "model.1.weight": "reached",
        "model.1.bias": "reached",
    }
    assert any(row.operation == "detach" for row in recording.copies)


def test_an_exception_passes_through_and_the_recording_is_there():
    recording = tether.record()

    def fail():
        with recording:
            torch.ones(3).clone()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert recording.trace.outcome == "raised"
    assert [event.operation for event in recording.trace.events] == ["ones", "clone"]


def test_a_recording_is_saved_and_loaded(tmp_path):
    model = net()
    with tether.record() as recording:
        train(model)
    recording.save(tmp_path / "run.tether")
    loaded = tether.load(tmp_path / "run.tether")
    assert [one.message for one in loaded.findings] == [one.message for one in recording.findings]
    assert loaded.trace == recording.trace


def test_two_recordings_one_after_the_other_do_not_meet():
    with tether.record() as first:
        torch.ones(3)
    with tether.record() as second:
        torch.zeros(3)
    assert [event.operation for event in first.trace.events] == ["ones"]
    assert [event.operation for event in second.trace.events] == ["zeros"]


def test_one_recording_inside_another_hears_its_own_block():
    with tether.record() as outer:
        torch.ones(3)
        with tether.record() as inner:
            torch.zeros(3)
        torch.eye(3)
    assert [event.operation for event in inner.trace.events] == ["zeros"]
    heard = [event.operation for event in outer.trace.events]
    assert heard[0] == "ones"
    assert heard[-1] == "eye"


def fails(**options):
    with tether.record(**options):
        for _ in range(2000):
            torch.ones(3).add_(1)
        loss = torch.ones(3, requires_grad=True).exp().sum()
        loss.backward()
        loss.backward()


def test_a_flight_recorder_saves_the_last_calls_when_the_block_fails(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="second time"):
        fails(last=1000, file="failed.tether")
    assert "tether report failed.tether" in capsys.readouterr().err
    saved = tether.load("failed.tether")
    assert saved.trace.outcome == "raised"
    assert 1000 <= len(saved.trace.events) <= 2001  # forgotten in lumps
    assert [one.slug for one in saved.findings if one.severity == "error"] == ["tie-error"]


def test_a_flight_recorder_names_the_process_and_leaves_nothing_when_all_went_well(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with tether.record(last=1000):
        torch.ones(3)
    assert not list(tmp_path.iterdir())
    with pytest.raises(RuntimeError):
        fails(last=1000)
    assert [one.name for one in tmp_path.iterdir()] == [f"failed-{os.getpid()}.tether"]


def test_a_flight_recorder_that_cannot_save_says_so_and_lets_the_exception_pass(tmp_path, capsys):
    with pytest.raises(RuntimeError, match="second time"):
        fails(last=1000, file=tmp_path / "nowhere" / "failed.tether")
    assert "was not saved" in capsys.readouterr().err


@pytest.mark.parametrize("options", [{"last": 0}, {"limit": 0}, {"limit": 5, "last": 5}])
def test_impossible_numbers_of_calls_are_refused(options):
    with pytest.raises(ValueError, match="keep"):
        tether.record(**options)
