"""The gradient verdicts on made traces: no torch, one behaviour each."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from tether.analysis.history import History
from tether.facts import Kind, KindId
from tether.finding import Claim
from tether.report.tables.gaps import gap_rows
from tether.verdicts import VERDICTS, judge

_spec = importlib.util.spec_from_file_location("traces", Path(__file__).with_name("traces.py"))
assert _spec
assert _spec.loader
traces = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(traces)

HEAD = ("w = param net.w", "b = param net.b", "x = data")


def found(*lines: str) -> list[str]:
    """Findings as "slug subject line", for a program that begins with HEAD at lines 1 to 3."""
    history = History(traces.trace(*HEAD, *lines))
    return [f"{one.slug} {one.subject} {one.site.line}" for one in judge(history)]


W_NONE = ("step w=none b=some",)


@pytest.mark.parametrize(
    ("cut", "slug", "line"),
    [
        (["d = detach h"], "gradient-cut", 5),
        (["d = data.__get__ h"], "gradient-cut", 5),
        (["d = tensor h"], "gradient-cut", 5),
        (["i = argmax h int64", "d = to i"], "gradient-cut", 5),
        (["i = gt h bool", "d = to i"], "gradient-cut", 5),
        (["n = item h", "d = tensor <- n"], "gradient-cut", 5),
        (["no_grad", "d = relu h", "grad"], "gradient-cut", 5),
        (["v = view h", "d = detach v"], "gradient-cut", 6),
    ],
    ids=lambda value: " ; ".join(value) if isinstance(value, list) else None,
)
def test_a_cut_is_named_where_it_is(cut: list[str], slug: str, line: int) -> None:
    lines = ["h = mul w x", *cut, "y = add d b", "loss = sum y", "backward loss w=none b=some"]
    assert found(*lines, *W_NONE) == [f"{slug} net.w {line}"]


def test_a_detach_beside_an_open_path_stays_quiet() -> None:
    lines = ["h = mul w x", "d = detach h", "y = add d h b", "loss = sum y", "backward loss"]
    assert found(*lines, "step w=some b=some") == []


def test_a_cut_that_later_steps_lack_is_no_finding() -> None:
    lines = ["h = mul w x", "d = detach h", "y = add d b", "loss = sum y", "backward loss"]
    assert found(*lines, *W_NONE, "g = mul w b", "backward g", "step w=some b=some") == []


def test_a_parameter_that_no_loss_saw_is_unused() -> None:
    lines = ["h = mul w x", "loss = sum b", "backward loss w=none b=some"]
    assert [one.rpartition(" ")[0] for one in found(*lines, *W_NONE)] == ["gradient-unused net.w"]


def test_a_template_carries_no_value() -> None:
    lines = ["z = zeros_like w", "loss = add z b", "backward loss w=none b=some"]
    assert [one.split()[0] for one in found(*lines, *W_NONE)] == ["gradient-unused"]


def test_a_zero_gradient_alone_is_no_finding() -> None:
    lines = ["h = mul w x", "y = relu h", "loss = add y b", "backward loss w=zero b=some"]
    assert found(*lines, "step w=zero b=some") == []


def test_a_zero_gradient_behind_a_step_function_is_one() -> None:
    lines = ["h = mul w x", "y = round h", "loss = add y b", "backward loss w=zero b=some"]
    assert found(*lines, "step w=zero b=some") == ["gradient-zero net.w 5"]


def test_division_is_a_step_function_only_when_it_rounds() -> None:
    rest = ["loss = add y b", "backward loss w=zero b=some", "step w=zero b=some"]
    made = traces.trace(*HEAD, "y = div w x", *rest)
    assert judge(History(made)) == []
    made.kinds = [Kind(("DivBackward1",), rounds=True)]
    made.events = [
        one._replace(kind=KindId(0)) if one.operation == "div" else one for one in made.events
    ]
    assert [one.slug for one in judge(History(made))] == ["gradient-zero"]


def test_a_zero_gradient_with_a_way_around_the_step_function_is_none() -> None:
    lines = ["h = mul w x", "y = round h", "loss = add y h b", "backward loss w=zero b=some"]
    assert found(*lines, "step w=zero b=some") == []


def test_a_write_into_integers_is_a_cut_that_names_the_write() -> None:
    lines = ["h = mul w x", "z = zeros_like x int64", "copy_ z h", "loss = add z b"]
    history = History(traces.trace(*HEAD, *lines, "backward loss w=none b=some", *W_NONE))
    (finding,) = judge(history)
    assert finding.slug == "gradient-cut"
    assert {5, 6} & {finding.site.line, *(one.site.line for one in finding.evidence)}


def test_a_value_written_through_a_detached_alias_is_followed_by_its_memory() -> None:
    lines = ["h = mul w x", "z = randn_like x", "a = detach z", "no_grad", "copy_ a h", "grad"]
    slugs = found(*lines, "loss = add z b", "backward loss w=none b=some", *W_NONE)
    assert [one.rpartition(" ")[0] for one in slugs] == ["gradient-cut net.w"]


def test_a_likely_bridge_is_an_assumption() -> None:
    lines = ["h = mul w x", "n = item h", "d = tensor <~ n", "loss = add d b"]
    history = History(traces.trace(*HEAD, *lines, "backward loss w=none b=some", *W_NONE))
    (finding,) = judge(history)
    assert finding.assumes
    assert "likely" in finding.message


def test_two_parameters_behind_one_cut_are_one_finding() -> None:
    lines = ["h = mul w x", "g = add h b", "d = detach g", "c = param net.c", "loss = add d c"]
    made = traces.trace(*HEAD, *lines, "backward loss w=none b=none", "step w=none b=none c=some")
    (finding,) = judge(History(made))
    assert (finding.subject, finding.also, finding.site.line) == ("net.w", ("net.b",), 6)


def test_a_loss_outside_the_graph_blames_the_mode_left_off() -> None:
    first = ["h = mul w b", "loss = sum h", "backward loss w=some b=some", "step w=some b=some"]
    assert found(*first, "no_grad", "g = mul w b", "last = sum g", "backward last") == [
        "gradient-cut net.w 8"
    ]


def test_the_notation_tells_lines_apart() -> None:
    """The helper can fail: another line, another answer."""
    lines = ["h = mul w x", "d = detach h", "y = add d b", "backward y w=none b=some"]
    assert found(*lines, *W_NONE) != ["gradient-cut net.w 4"]


def test_a_verdict_that_fails_is_a_gap_and_the_others_stand(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    def fails(history: History) -> list[Claim]:
        raise ZeroDivisionError("by zero")

    known = {one.slug: one for one in VERDICTS}
    broken = replace(known["parameter-frozen"], check=fails)
    verdicts = [known["gradient-cut"], broken, known["gradient-unused"]]
    lines = ["d = detach w", "y = add d b", "loss = sum y", "backward loss w=none b=some", *W_NONE]
    history = History(traces.trace(*HEAD, *lines))
    monkeypatch.setenv("TETHER_STRICT", "1")
    with pytest.raises(ZeroDivisionError):
        judge(history, verdicts)
    monkeypatch.delenv("TETHER_STRICT")
    assert [one.slug for one in judge(history, verdicts)] == ["gradient-cut"]
    (gap,) = gap_rows(history.trace)
    assert "failed at the verdict parameter-frozen (ZeroDivisionError: by zero)" in gap.reason
