"""Proof by running again, and the repairs that follow: on real programs, as a user runs them."""

import json
import re
import textwrap

import pytest

import warm
from programs import record_program
from tether.measure.proving import CannotProveError, Outcome, differences, noise_of, prove

RESIDUAL = """
    import torch
    torch.manual_seed(0)
    conv = torch.nn.Conv1d(64, 64, 1)
    optimizer = torch.optim.SGD(conv.parameters(), lr=0.1)
    def block(x):
        identity = x.clone()  # the input
        return conv(x).relu() + identity
    for step in range(3):
        loss = block(torch.randn(8, 64, 64)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
"""


def tether(folder, *arguments):
    return warm.tether(*arguments, folder=folder, timeout=300)


def written(folder, text, name="train.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def test_a_needless_copy_is_proven_and_left_out(tmp_path):
    path = written(tmp_path, RESIDUAL)
    before = path.read_text()
    ended = tether(tmp_path, "run", "--json", "out.json", "--fix", "--write", "train.py")
    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads((tmp_path / "out.json").read_text())["findings"]
    assert (found["slug"], found["subject"]) == ("needless-copy", "identity")
    assert found["proven"] is True
    assert found["severity"] == "note"  # it costs time, and nothing is wrong
    assert found["fix"]["safe"] is True
    proof = found["evidence"][-1]
    assert re.search(r"same, bit for bit; it took [\d.e-]+ ms of this run", proof["text"])
    assert "gave the same results, bit for bit" in ended.stderr
    assert path.read_text() == before.replace("x.clone()  #", "x  #")


def test_a_diff_writes_nothing(tmp_path):
    path = written(tmp_path, RESIDUAL)
    before = path.read_text()
    ended = tether(tmp_path, "run", "-q", "--fix", "train.py")
    assert "-    identity = x.clone()  # the input\n+    identity = x  # the input" in ended.stderr
    assert path.read_text() == before


def test_a_missing_copy_is_tried(tmp_path):
    written(tmp_path, """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        best = model.state_dict()
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
        model.load_state_dict(best)
        print(model.bias.item())
    """)  # fmt: skip
    ended = tether(tmp_path, "run", "-q", "--json", "out.json", "--prove", "train.py")
    assert ended.returncode == 0, ended.stderr
    (found,) = json.loads((tmp_path / "out.json").read_text())["findings"]
    assert found["slug"] == "alias-write"
    assert found["proven"] is True
    proof = found["evidence"][-1]
    assert proof["role"] == "proof"
    assert "item at train.py:12 is another value" in proof["text"]


def test_a_program_that_is_never_the_same_proves_nothing(tmp_path):
    written(tmp_path, """
        import os, torch
        def f(x):
            y = x.clone()
            return y.sum() + x.sum()
        print(f(torch.full((2,), float(os.urandom(1)[0]) + os.getpid())).item())
    """)  # fmt: skip
    ended = tether(tmp_path, "run", "-q", "--json", "out.json", "--prove", "train.py")
    assert ended.returncode == 0
    assert "nothing was proven" in ended.stderr
    (found,) = json.loads((tmp_path / "out.json").read_text())["findings"]
    assert (found["proven"], found["severity"]) == (None, "note")


@pytest.mark.parametrize("options", [("--write",), ("--unsafe-fixes",)])
def test_options_that_say_nothing_alone(tmp_path, options):
    written(tmp_path, "print(1)")
    ended = tether(tmp_path, "run", *options, "train.py")
    assert ended.returncode == 2
    assert "need --fix" in ended.stderr


# -- with runs that are made up ------------------------------------------------------------------


def outcome(*sums, applied=(), lines=("0",), code=0, error=""):
    values = [["item", "p.py:1", one] for one in sums]
    return Outcome(values, list(applied), [0.002] * len(applied), code, error, list(lines), 0.1)


def test_a_refuted_verdict_is_withdrawn_and_told_as_a_defect(tmp_path):
    recording = record_program(
        """
        import torch
        def f(x):
            y = x.clone()
            z = x.clone()
            u = x.clone()
            return (y + z + u).sum()
        f(torch.ones(3))
        """,
        tmp_path,
    )
    assert [one.site.line for one in recording.findings] == [4, 5, 6]

    def run(changes, _limit):
        # without the copy of line 5
        wrong = any(change[0] == "drop" and change[2][1] == 5 for change in changes)
        return outcome("b" if wrong else "a", applied=[1] * len(changes))

    told = []
    recording.judged(*prove(recording.findings, recording.history, run, told.append))
    assert [(one.site.line, one.proven) for one in recording.findings] == [(4, True), (6, True)]
    (defect,) = recording.defects
    assert (defect.site.line, defect.proven) == (5, False)
    assert "item at p.py:1 is another value" in defect.assumes[-1]
    answers = {row.site.line: row.needed for row in recording.copies if row.operation == "clone"}
    assert answers == {4: "no", 5: "unknown", 6: "no"}
    assert json.loads(recording.json())["defects"][0]["site"]["line"] == 5


def test_a_copy_that_no_run_reached_is_not_proven(tmp_path):
    recording = record_program(
        """
        import torch
        def f(x):
            return x.clone().sum()
        f(torch.ones(3))
        """,
        tmp_path,
    )

    def nothing(changes, _):
        return outcome("a", applied=[0] * len(changes))

    (found,), _ = prove(recording.findings, recording.history, nothing, lambda _: None)
    assert found.proven is None


def test_lines_that_differ_by_themselves_are_left_out():
    found = noise_of(outcome("a", lines=("x", "1.2 s")), outcome("a", lines=("x", "1.3 s")))
    assert found.lines == {1}
    assert not found.values


def test_numbers_that_differ_by_themselves_are_left_out():
    plain = outcome("a", "1.2 s")
    noise = noise_of(plain, outcome("a", "1.3 s"))
    assert noise.values == {1}
    assert not differences(plain, outcome("a", "1.4 s"), noise)
    assert differences(plain, outcome("b", "1.2 s"), noise) == ["item at p.py:1 is another value"]


@pytest.mark.parametrize(
    "row", [["backward", "p.py:2"], ["a gradient", ""], ["a parameter at the end", ""]]
)
def test_nothing_is_held_against_runs_whose_training_differs(row):
    one, other = outcome("a"), outcome("a")
    one.values.append([*row, "x"])
    other.values.append([*row, "y"])
    with pytest.raises(CannotProveError, match="1 of 2 values"):
        noise_of(one, other)


def test_a_proof_says_how_many_values_differ_by_themselves(tmp_path):
    recording = record_program(
        """
        import torch
        def f(x):
            return x.clone().sum()
        f(torch.ones(3))
        """,
        tmp_path,
    )
    times = iter("123")

    def timed(changes, _):
        return outcome("a", next(times), applied=[1] * len(changes))

    (found,), _ = prove(recording.findings, recording.history, timed, lambda _: None)
    assert found.proven
    assert "but for 1 that unchanged runs hand out differently" in found.evidence[-1].text


@pytest.mark.parametrize(
    "other",
    [outcome("b"), outcome("a", "a"), outcome("a", code=1), outcome("a", lines=("0", "1"))],
)
def test_runs_that_cannot_be_held_against_each_other(other):
    with pytest.raises(CannotProveError):
        noise_of(outcome("a"), other)
