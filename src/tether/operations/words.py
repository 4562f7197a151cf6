"""A rule in words: one short phrase per question, with its conditions where the answer varies."""

from __future__ import annotations

from collections.abc import Callable

from tether.operations.rule import Effect, Rule

_MEMORY = {
    "same": "the same tensor",
    "share": "shares",
    "bridge": "shares, other storage",
    "own": "own",
    "moved": "same tensor, other memory",
    "values": "no tensor",
}
_GRADIENT = {"keep": "keeps", "cut": "cuts", "zero": "zeros", "raises": "raises"}
_VERSION = {"own": "own", "shared": "shared", "none": "none"}


def memory(rule: Rule) -> str:
    """Say how result and source are tied in memory: ``shares when contiguous, else own``."""
    return _told(rule, lambda effect: _MEMORY[effect.memory])


def gradient(rule: Rule) -> str:
    """Say what becomes of the gradient."""
    return _told(rule, lambda effect: _GRADIENT[effect.gradient])


def version(rule: Rule) -> str:
    """Say whose version counter the result has."""
    return _told(rule, lambda effect: _VERSION[effect.version])


def raised(rule: Rule) -> str:
    """Say what it raises and when; "" when it never does."""
    return "; ".join(
        " when ".join(filter(None, (case.effect.raises, case.when.words())))
        for case in rule.cases
        if case.effect.raises
    )


def extras(rule: Rule) -> tuple[str, ...]:
    """Say what else there is to know: marks, type, writes, what is carried, what it costs."""
    return tuple(filter(None, (_told(rule, ask, quiet=True) for ask in _EXTRAS)))


def cost(rule: Rule) -> str:
    """Say what it costs: blocks of the source's size that are allocated, and waits for a GPU."""
    return _told(rule, _cost)


def _cost(effect: Effect) -> str:
    count = effect.allocations
    blocks = "not counted" if count < 0 else f"{count} block{'s' * (count != 1)}" if count else "0"
    return blocks + ", waits" if effect.waits else blocks


def _leaf(effect: Effect) -> str:
    if effect.requires_grad == "yes" and effect.memory == "same":
        return "marks it"
    if effect.requires_grad == "yes":
        return "a leaf that requires grad" if effect.leaf == "yes" else "requires grad"
    return "unmarks it" if effect.memory == "same" and effect.requires_grad == "no" else ""


def _saves(effect: Effect) -> str:
    words = {"own": "values of its own", "other": "the other operand"}
    saved = [words.get(one, one) for one in effect.saves]
    return f"backward reads {' and '.join(saved)}" if saved else ""


def _writes(effect: Effect) -> str:
    return {"no": "", "seen": "writes, version +1 or more", "unseen": "writes, no version tells"}[
        effect.writes
    ]


def _grad(effect: Effect) -> str:
    if effect.memory == "same" and effect.writes == "no":
        return {"no": ".grad becomes None", "other": ".grad is replaced"}.get(effect.grad, "")
    return ".grad is copied" if effect.grad == "copied" else ""


_EXTRAS: tuple[Callable[[Effect], str], ...] = (
    _leaf,
    lambda effect: f"gives {effect.dtype}" if effect.dtype else "",
    lambda effect: f"on {effect.device}" if effect.device else "",
    _writes,
    _grad,
    lambda effect: "result is contiguous" if effect.layout == "contiguous" else "",
    _saves,
)


def _told(rule: Rule, ask: Callable[[Effect], str], *, quiet: bool = False) -> str:
    """Say the answer of each case that returns; one answer is said without its conditions.

    `quiet` leaves out the cases that have nothing to say.
    """
    answers = [(case.when.words(), ask(case.effect)) for case in rule.cases]
    answers = [
        answer for answer, case in zip(answers, rule.cases, strict=True) if not case.effect.raises
    ]
    if len({words for _, words in answers}) <= 1:
        return answers[0][1] if answers else ""
    said: list[str] = []
    for when, words in answers:
        if quiet and not words:
            continue
        said.append(f"{words} when {when}" if when else f"else {words}" if said else words)
    return ", ".join(said)
