"""The rulebook as data: complete, consistent, and readable."""

import ast
import json
import re
from pathlib import Path

import pytest

from tether.facts import Event, Operand
from tether.operations import BY_SLUG, RULES, Given, When, rule_for, say, words
from tether.operations.rule import DTYPES
from tether.report import rulebook as render

ROOT = Path(__file__).parents[2]


def test_every_rule_has_a_name_of_its_own():
    assert len(RULES) >= 90
    assert len(BY_SLUG) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_a_rule_is_whole(rule):
    assert rule.family
    assert rule.sentence.endswith(".")
    assert not rule.better.endswith(".")
    assert rule.cases
    ast.parse(rule.setup)
    ast.parse(rule.call, mode="exec" if rule.result else "eval")
    for case in rule.cases[:-1]:
        assert case.when != When(), "a case that always holds hides those after it"
    for case in rule.cases:
        if case.effect.raises:
            assert re.match(r"(\w+(Error|Exception)\|?)+: ", case.effect.raises)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_a_rule_has_a_case_for_every_source_it_is_about(rule):
    for dtype in DTYPES:
        for device in ("cpu", "cuda"):
            source = Given(dtype, device=device)
            if rule.only.holds(source):
                assert rule.effect(source) is not None, source


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        ("detach", "same memory, outside the graph"),
        ("clone", "stays in the graph"),
        ("data.__get__", "version counter of its own"),
        ("data.__set__", "other memory"),
        ("to", "the tensor itself when type and device are right"),
        ("__getitem__", "Slices and numbers give a view"),
        ("__setitem__", "in place"),
        ("__iadd__", "in place"),
        ("numpy", "an array on the tensor's own memory"),
        ("Parameter", "new leaf"),
        ("step", "in place under no_grad"),
    ],
)
def test_an_operation_finds_its_rule(operation, sentence):
    assert sentence.lower() in rule_for(operation).sentence.lower()


@pytest.mark.parametrize("operation", ["", "chain", "no_such_call", "my_own_kernel"])
def test_an_unknown_call_is_unknown(operation):
    assert rule_for(operation) is None


def operand(tensor, storage, requires_grad=False):
    return Operand(tensor, storage, 0, 0, (2,), (1,), "float32", requires_grad, leaf=True)


@pytest.mark.parametrize(
    ("source", "result", "words_"),
    [
        (operand(0, 0), operand(0, 0), "returns the very same tensor"),
        (operand(0, 0), operand(1, 0), "shares its memory"),
        (operand(0, 0), operand(1, 1), "has its own memory"),
        (operand(0, 0, True), operand(1, 0), "shares its memory and cuts the gradient"),
        (operand(0, 0, True), operand(1, 1, True), "has its own memory and keeps the gradient"),
    ],
)
def test_a_call_is_said_as_it_went(source, result, words_):
    assert say(Event("to", 0, reads=(source,), results=(result,))) == words_


def test_conditions_are_said():
    assert words.memory(BY_SLUG["contiguous"]) == "the same tensor when contiguous, else own"
    assert words.gradient(BY_SLUG["detach"]) == "cuts"
    assert "when requiring grad" in words.raised(BY_SLUG["numpy"])


def test_the_page_is_fresh():
    kept = (ROOT / "docs" / "rulebook.md").read_text(encoding="utf-8")
    assert kept == render.page(), "run: python -m tether.report.rulebook > docs/rulebook.md"


ROWS = [
    render.Row(BY_SLUG["clone"], "verified", 34),
    render.Row(BY_SLUG["add_:operator"], "different", 30, ("float32: memory: a | b",)),
    render.Row(BY_SLUG["cuda"], "not tried", 0, ("no CUDA device here",)),
]


def test_text_says_what_differs():
    text = render.to_text(ROWS, width=100)
    assert "add_:operator: float32: memory: a | b" in text
    assert "cuda: not tried: no CUDA device here" in text
    assert "3 rules: 1 verified, 1 different on this build, 1 not tried (64 experiments)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_markdown_keeps_its_columns():
    table = [line for line in render.to_markdown(ROWS).splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", line)) for line in table} == {10}


def test_json_holds_every_field():
    document = json.loads(render.to_json(ROWS, torch="2", device="cpu"))
    assert [rule["status"] for rule in document["rules"]] == ["verified", "different", "not tried"]
    assert document["rules"][0]["cases"][0]["memory"] == "own"


def test_html_escapes_what_it_shows():
    hostile = render.Row(BY_SLUG["clone"], "different", 1, ("<script>",))
    html = render.to_html([hostile]).partition("<main>")[2].partition("</main>")[0]
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
