"""Every rule is tried on the installed PyTorch, and a wrong rule is caught."""

import re
from dataclasses import fields, replace

import pytest
import torch
from click.testing import CliRunner

from tether.cli import rulebook
from tether.measure.experiments import try_rule, verify
from tether.operations import BY_SLUG, RULES, Case, When
from tether.operations.rule import Effect


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_the_rule_holds(rule):
    verdict = try_rule(rule)
    if verdict.status == "not tried":
        pytest.skip("; ".join(verdict.seen))
    if rule.since and release(torch.__version__) < release(rule.since):
        pytest.skip(f"so since PyTorch {rule.since}")
    assert verdict.tried
    assert not verdict.seen


def release(version):
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


ALIASES = [(rule, name) for rule in RULES for name in rule.names if name.isidentifier()]


@pytest.mark.parametrize(("rule", "name"), ALIASES, ids=lambda part: getattr(part, "slug", part))
def test_another_name_does_what_the_rule_says(rule, name):
    """Where the call can be written with the other name in its place."""
    call = re.sub(rf"\b{re.escape(rule.operation)}\(", f"{name}(", rule.call)
    if name.startswith("__") or call == rule.call:
        pytest.skip("the call is written in another way")
    verdict = try_rule(replace(rule, call=call, cases=uncounted(rule)))
    if any(re.search(r"seen \w*Error", line) for line in verdict.seen):
        pytest.skip("the call takes other arguments")
    assert not verdict.seen


def uncounted(rule):
    return tuple(Case(c.when, replace(c.effect, allocations=-1)) for c in rule.cases)


WRONG = {
    "memory": "share",
    "gradient": "cut",
    "requires_grad": "no",
    "leaf": "yes",
    "dtype": "float64",
    "device": "meta",
    "layout": "contiguous",
    "version": "shared",
    "writes": "seen",
    "grad": "copied",
    "hooks": "same",
    "allocations": 3,
    "saves": ("result",),
    "starts": 5,
    "raises": "RuntimeError: never",
}


def broken(slug, **changes):
    rule = BY_SLUG[slug]
    return replace(
        rule, cases=tuple(Case(c.when, replace(c.effect, **changes)) for c in rule.cases)
    )


@pytest.mark.parametrize("field", WRONG)
def test_a_wrong_entry_is_caught(field):
    verdict = try_rule(broken("clone", **{field: WRONG[field]}))
    assert verdict.status == "different"
    assert verdict.seen


def test_every_field_can_be_caught():
    waits_need_a_gpu = {"waits"}
    assert {field.name for field in fields(Effect)} == set(WRONG) | waits_need_a_gpu


def test_a_wrong_condition_is_caught():
    rule = BY_SLUG["contiguous"]
    swapped = Case(When(contiguous=False), rule.cases[0].effect)
    verdict = try_rule(replace(rule, cases=(swapped, Case(When(), rule.cases[1].effect))))
    assert verdict.status == "different"


def test_verdicts_are_kept_by_rule(tmp_path):
    rule = BY_SLUG["detach"]
    (first,) = verify([rule], cache=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    asked = []
    (again,) = verify([rule], cache=tmp_path, progress=asked.append)
    assert first == again
    assert asked == [rule]
    (other,) = verify([broken("detach", memory="own")], cache=tmp_path)
    assert other.status == "different"


def test_a_spoilt_cache_is_no_cache(tmp_path):
    verify([BY_SLUG["detach"]], cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_text("[")
    (verdict,) = verify([BY_SLUG["detach"]], cache=tmp_path)
    assert verdict.status == "verified"


def command(*args):
    return CliRunner().invoke(rulebook.rulebook_command, [*args, "--no-cache"])


def test_the_command_prints_what_was_asked():
    result = command("--only", "detach_")
    assert result.exit_code == 0
    assert "x.detach_()" in result.output
    assert "1 rule: 1 verified, 0 different" in " ".join(result.output.split())


def test_the_terminal_gets_nothing_of_pytorchs_profiler(capfd):
    """PyTorch 2.13 writes a line to the terminal when its profiler begins, and when it ends."""
    assert command("--only", "clone").exit_code == 0
    assert capfd.readouterr().err == ""


def test_the_exit_code_tells_a_difference(monkeypatch):
    monkeypatch.setattr(rulebook, "RULES", (broken("clone", memory="share"),))
    result = command()
    assert result.exit_code == 1
    assert "memory: the rule says share, seen own" in " ".join(result.output.split())


@pytest.mark.parametrize("format_", ["text", "md", "json", "html"])
def test_every_format(format_):
    result = command("--only", "clone", "--format", format_)
    assert result.exit_code == 0
    assert "x.clone()" in result.output.replace("<wbr>", "")


@pytest.mark.parametrize("args", [("--only", "no such rule"), ("--device", "nowhere")])
def test_bad_input_is_one_line(args):
    result = command(*args)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
