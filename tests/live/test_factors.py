"""The factor of a slow copy is measured here, and a copy that is not slow here is not told."""

import dataclasses
import json
import re
import textwrap

import pytest
import torch

import warm
from programs import record_program
from tether.measure import speedups
from tether.verdicts import slow_copy
from tether.verdicts.judging import judged

ONE_BY_ONE = """
    import torch
    scores = torch.randn(300)
    values = [one.item() for one in scores]
"""
SPECS = [one for one in slow_copy.VERDICT.examples if one.expected and not one.needs]


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other make every way the same on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def findings(tmp_path):
    recording = record_program(ONE_BY_ONE, tmp_path)
    return recording, [one for one in recording.findings if one.slug == "slow-copy"]


def changed(recording, **fields):
    """Change what is to be timed for each finding."""
    specs = recording.history.memo["slow-copy"]
    for key, spec in specs.items():
        specs[key] = spec._replace(**fields)


def test_a_factor_is_measured(tmp_path):
    recording, (found,) = findings(tmp_path)
    assert found.assumes == (slow_copy.NOT_TIMED,)
    (told,) = speedups.measured([found], recording.history)
    words = r"Measured here on 300 float32: \[.*\] is ([\d.]+)x slower than x\.tolist\(\), "
    words += r"[\d.]+ [um]s in all\."
    assert float(re.search(words, told.message)[1]) > 2
    assert told.assumes == ()


FILLED = """
    import torch
    table = torch.zeros(40, 40)
    for number in range(1600):
        table[number // 40, number % 40] = number / 3
"""


@pytest.mark.parametrize(("program", "seconds"), [(ONE_BY_ONE, 60.0), (FILLED, 60.0)])
def test_what_is_nothing_beside_the_run_is_not_told(tmp_path, program, seconds):
    recording = record_program(program, tmp_path)
    found = [one for one in recording.findings if one.slug == "slow-copy"]
    assert found
    assert not speedups.measured(found, recording.history, seconds)
    assert len(speedups.measured(found, recording.history)) == len(found)
    assert len(speedups.measured(found, recording.history, 1e-3)) == len(found)


def test_what_copies_much_is_told_of_a_long_run_too(tmp_path):
    recording, (found,) = findings(tmp_path)
    often = dataclasses.replace(found, count=10_000_000)
    (told,) = speedups.measured([often], recording.history, 3600.0)
    assert re.search(r"[\d.]+ s in all", told.message)
    large = dataclasses.replace(found, bytes=1 << 30)
    recording.history.memo["slow-copy"].clear()
    assert speedups.measured([large], recording.history, 3600.0) == [large]


@pytest.mark.parametrize(
    ("seconds", "said"), [(3e-5, "30 us"), (4.14e-3, "4.1 ms"), (2.5, "2.5 s"), (4e-7, "0 us")]
)
def test_a_time_is_said_as_people_read_it(seconds, said):
    assert speedups.duration(seconds) == said


def test_what_is_not_slow_here_is_not_told(tmp_path):
    recording, (found,) = findings(tmp_path)
    changed(recording, fast="[one.item() for one in x]  ")
    assert speedups.measured([found], recording.history) == []


@pytest.mark.parametrize(
    "fields", [{"device": "cuda:17"}, {"slow": "x.no_such_call()"}, {"dtype": "no_dtype"}]
)
def test_what_cannot_be_timed_is_told_without_a_factor(tmp_path, fields):
    recording, (found,) = findings(tmp_path)
    changed(recording, fast="x.to(dtype)", **fields)
    (told,) = speedups.measured([found], recording.history)
    assert told.message == found.message
    assert told.assumes == ("it could not be timed on this machine",)


def test_what_is_too_large_is_not_made(tmp_path):
    recording, (found,) = findings(tmp_path)
    (spec,) = recording.history.memo["slow-copy"].values()
    large = spec.operands[0]._replace(shape=(1 << 40,))
    changed(recording, operands=(large,))
    (told,) = speedups.measured([found], recording.history)
    assert told.message == found.message


def test_when_the_time_is_over_no_factor_is_measured(tmp_path, monkeypatch):
    recording, (found,) = findings(tmp_path)
    monkeypatch.setattr(speedups, "ALL", 0.0)
    (told,) = speedups.measured([found], recording.history)
    assert told.message == found.message
    assert told.assumes == ("it was not timed: others took all the time for that",)


def test_what_has_no_other_way_to_run_says_so_in_a_run_as_well(tmp_path):
    program = """\
    import torch
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    x = torch.rand(4, 256, 8)
    for _ in range(6):
        out, _ = layer(x, x, x)
    print(out.sum())
    """
    recording = record_program(program, tmp_path)
    slow = [one for one in recording.findings if one.slug == "slow-copy"]
    (told,) = speedups.measured(slow, recording.history)
    assert told.assumes == (slow_copy.NOT_COMPARED,)


@pytest.mark.parametrize("example", SPECS, ids=[one.title for one in SPECS])
def test_both_ways_give_the_same(tmp_path, example):
    history = record_program(example.program, tmp_path).history
    (finding,) = judged(history, [slow_copy.VERDICT])
    spec = slow_copy.spec_of(history, finding)
    names = speedups.names_of(spec)
    slow, fast = eval(spec.slow, names), eval(spec.fast, names)
    if "snapshot" in names:
        fast = names["snapshot"].value
    assert _values(slow) == _values(fast)


def _values(result):
    if isinstance(result, dict):
        return {key: value.tolist() for key, value in result.items()}
    return result.tolist() if hasattr(result, "tolist") else result


def test_nothing_is_left_of_the_measurement(tmp_path):
    recording, found = findings(tmp_path)
    with torch.inference_mode(mode=False), torch.no_grad():
        changed(recording, grad=True)
        random = torch.get_rng_state()
        speedups.measured(found, recording.history)
        assert not torch.is_grad_enabled()
        assert torch.equal(random, torch.get_rng_state())


def test_the_program_that_ran_is_timed_and_a_report_of_it_says_the_same(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(ONE_BY_ONE).replace("300", "60_000"))
    ran = _tether(tmp_path, "run", "-q", "-o", "run.tether", "--json", "-", "program.py")
    again = _tether(tmp_path, "report", "-q", "--json", "-", "run.tether")
    assert "Measured here" in ran["message"]
    assert ran["assumes"] == []
    assert again == ran


def _tether(folder, *arguments):
    """Run the command line; return the one finding of its JSON."""
    done = warm.tether(*arguments, folder=folder)
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["findings"]
    return found
