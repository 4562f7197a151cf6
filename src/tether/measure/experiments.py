"""The rulebook's experiments: every rule tried on the installed PyTorch.

Each rule is tried on every source it makes sense for: types, contiguous and not, requiring grad
and not, leaf and not. What its data says is compared field by field with what was seen.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from tether.measure import probe
from tether.operations.rule import Effect, Given, Rule

Status = Literal["verified", "different", "not tried"]


class TriedRule(NamedTuple):
    """What became of one rule on this build of PyTorch."""

    slug: str
    status: Status
    tried: int = 0  # sources it was tried on
    seen: tuple[str, ...] = ()  # each difference, in words; why not, when it was not tried


def verify(
    rules: Sequence[Rule],
    device: str = "cpu",
    *,
    cache: Path | None = None,
    progress: Callable[[Rule], None] = lambda _: None,
) -> list[TriedRule]:
    """Try every rule on `device` and return one verdict each, in order.

    `cache` is a folder in which verdicts are kept by build of PyTorch, device and rule; None tries
    everything anew. `progress` is called before each rule.
    """
    known = _Cache(cache, device)
    verdicts = []
    for rule in rules:
        progress(rule)
        verdict = known.get(rule) or try_rule(rule, device)
        known.put(rule, verdict)
        verdicts.append(verdict)
    known.save()
    return verdicts


def try_rule(rule: Rule, device: str = "cpu") -> TriedRule:
    """Try one rule on every source it makes sense for."""
    reason = _missing(rule)
    if reason:
        return TriedRule(rule.slug, "not tried", 0, (reason,))
    tried = 0
    seen: list[str] = []
    cases: dict[Effect, Given] = {}
    for source in probe.sources(rule, device):
        effect = rule.effect(source)
        if effect is None:
            continue
        tried += 1
        if effect not in cases or source.dtype == "float64":  # its bytes exceed any index's
            cases[effect] = source
        seen += [f"{words(source)}: {line}" for line in differences(effect, source, rule)]
    if not seen:  # a call that does something else is not worth counting
        seen += _allocation_differences(rule, cases)
        if device.startswith("cuda"):
            seen += _wait_differences(rule, cases)
    if not tried:
        return TriedRule(rule.slug, "not tried", 0, (f"it has no case for {device}",))
    return TriedRule(rule.slug, "different" if seen else "verified", tried, tuple(seen))


def differences(effect: Effect, source: Given, rule: Rule) -> list[str]:
    """Compare what the rule says of this source with what is seen; one line per difference."""
    seen = probe.observe(rule, source)
    if effect.raises or seen.raises:
        if effect.raises and _is_said(seen.raises, effect.raises):
            return []
        said, saw = effect.raises or "nothing", seen.raises or "nothing"
        return [f"raises: the rule says {said}, seen {saw}"]
    wanted = expected(effect, source, seen)
    return [
        f"{field}: the rule says {want}, seen {got}"
        for field, want, got in zip(seen._fields, wanted, seen, strict=True)
        if want != got
    ]


def _is_said(seen: str, said: str) -> bool:
    """Whether an exception is the one that a rule tells: one of its types, and its words."""
    (kind, _, text), (kinds, _, words) = seen.partition(": "), said.partition(": ")
    return kind in kinds.split("|") and words in text


def expected(effect: Effect, source: Given, seen: probe.Seen) -> probe.Seen:
    """Say what an experiment must see if the effect holds.

    `seen` tells only which questions could be asked (an array has no leaf, a source that does not
    require grad no gradient) and which of several right answers was given (strides).
    """
    known_strides = effect.layout == "view" or effect.layout in seen.strides.split()
    leaf_source = source.requires_grad and source.leaf
    said = {
        "gradient": effect.gradient,
        "requires_grad": _yes(effect.result_requires_grad(source)),
        "leaf": _yes(effect.result_leaf(source)),
        "dtype": effect.dtype or source.dtype,
        "device": effect.device or source.device.partition(":")[0],
        "version": effect.version,
        "grad": effect.grad,
        "hooks": effect.hooks if leaf_source else "no",
        "starts": str(effect.starts),
    }
    inner = seen.requires_grad == "yes" and seen.leaf == "no"
    return probe.Seen(
        memory=effect.memory,
        strides=seen.strides if known_strides else effect.layout,
        writes=effect.writes,
        saves="".join(effect.saves[:1]) if inner else "",
        **{name: word if getattr(seen, name) else "" for name, word in said.items()},
    )


def words(source: Given) -> str:
    """Say in words what kind of tensor a source is."""
    kind = "leaf requiring grad" if source.leaf else "inner node"
    return ", ".join(
        (
            source.dtype,
            "contiguous" if source.contiguous else "not contiguous",
            kind if source.requires_grad else "no grad",
        )
    )


def cache_folder() -> Path:
    """Return the user's cache folder for the rulebook (XDG)."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tether" / "rulebook"


def _allocation_differences(rule: Rule, cases: dict[Effect, Given]) -> list[str]:
    found = []
    for effect, source in cases.items():
        if effect.raises or effect.allocations < 0:
            continue
        seen = probe.allocations(rule, source)
        if seen not in (None, effect.allocations):
            found.append(
                f"{words(source)}: allocations: the rule says {effect.allocations}, seen {seen}"
            )
    return found


def _wait_differences(rule: Rule, cases: dict[Effect, Given]) -> list[str]:
    found = []
    for effect, source in cases.items():
        if not effect.raises and (waited := probe.waits(rule, source)) != effect.waits:
            said, seen = _yes(effect.waits), _yes(waited)
            found.append(f"{words(source)}: waits: the rule says {said}, seen {seen}")
    return found


def _missing(rule: Rule) -> str:
    if rule.needs == "cuda" and not torch.cuda.is_available():
        return "no CUDA device here"
    if rule.needs == "numpy" and not probe.HAS_NUMPY:
        return "NumPy is not installed"
    return ""


def _yes(true: bool) -> str:
    return "yes" if true else "no"


class _Cache:
    """Verdicts kept in one file per build of PyTorch and device, each under its rule's digest."""

    def __init__(self, folder: Path | None, device: str) -> None:
        build = f"{torch.__version__}-{(torch.version.git_version or '')[:12]}-{device}"
        self.file = folder / f"{build.replace(':', '_')}.json" if folder else None
        self.known: dict[str, list[object]] = {}
        if self.file is not None and self.file.is_file():
            try:
                self.known = json.loads(self.file.read_text())
            except (OSError, ValueError):  # a cache that cannot be read is no cache
                self.known = {}

    def get(self, rule: Rule) -> TriedRule | None:
        kept = self.known.get(_digest(rule))
        if not isinstance(kept, list) or len(kept) != 4:
            return None
        slug, status, tried, seen = kept
        return TriedRule(slug, status, tried, tuple(seen))  # type: ignore[arg-type]

    def put(self, rule: Rule, verdict: TriedRule) -> None:
        if verdict.status != "not tried":  # what is missing may be there the next time
            self.known[_digest(rule)] = list(verdict)

    def save(self) -> None:
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text(json.dumps(self.known))
        temporary.replace(self.file)


def _digest(rule: Rule) -> str:
    """Name a rule, and the code that tries it, by content."""
    text = repr(rule) + _code()
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _code() -> str:
    return Path(probe.__file__).read_text() + Path(__file__).read_text()


__all__ = ["TriedRule", "cache_folder", "try_rule", "verify"]
