"""Assertions about ties, for any test runner.

``from tether.testing import assert_independent``. Each raises `AssertionError` with one sentence
that says what was found; none needs the pytest plugin. torch is imported when one is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def assert_independent(a: Any, b: Any) -> None:
    """Assert that no byte is shared and no gradient flows between two tensors.

    An ndarray may stand in for a tensor.
    """
    from tether.copying.relation import relate

    relation = relate(a, b)
    if relation.memory in ("same", "overlaps"):
        raise AssertionError(f"they share memory: {relation}")
    if relation.gradient in ("ancestor", "descendant"):
        raise AssertionError(f"a gradient flows between them: {relation}")


def assert_shares(a: Any, b: Any) -> None:
    """Assert that two tensors (or a tensor and an ndarray) have bytes in common."""
    from tether.copying.relation import relate

    relation = relate(a, b)
    if relation.memory not in ("same", "overlaps"):
        raise AssertionError(f"they share no memory: {relation}")


def assert_gradient_reaches(
    loss: torch.Tensor, target: torch.nn.Module | torch.Tensor | Iterable[torch.Tensor]
) -> None:
    """Assert that backward from `loss` gives a gradient to every tensor of `target`.

    `target` is a module (its parameters that require grad), a tensor, or several. The graph is
    walked; no backward pass runs, and no gradient is changed.
    """
    import torch

    from tether.copying.why_live import why

    named: list[tuple[str, torch.Tensor]]
    if isinstance(target, torch.nn.Module):
        named = [(name, one) for name, one in target.named_parameters() if one.requires_grad]
    elif isinstance(target, torch.Tensor):
        named = [("the tensor", target)]
    else:
        named = [(f"tensor {number}", one) for number, one in enumerate(target)]
    if not named:
        raise AssertionError("nothing there requires grad")
    missing = [(name, answer) for name, one in named if not (answer := why(one, loss))]
    if missing:
        names = ", ".join(name for name, _ in missing[:5])
        more = f" and {len(missing) - 5} more" if missing[5:] else ""
        raise AssertionError(f"no gradient reaches {names}{more}: {missing[0][1].reason}")


def assert_unchanged(*tensors: torch.Tensor) -> AbstractContextManager[Any]:
    """Return a context manager that raises when the bytes of a tensor change in its block."""
    from tether.record.unchanged import unchanged

    return unchanged(*tensors)


def assert_no_findings(
    program: Callable[[], object], *, at: str = "warning", allow: Iterable[str] = ()
) -> None:
    """Call `program` under the recorder; assert that it gives no finding of severity `at` or above.

    `allow` lists slugs that are accepted.
    """
    from tether.api import record

    with record() as recording:
        program()
    told = graver(recording.findings, at, allow)
    if told:
        raise AssertionError("\n".join(told))


def graver(findings: Iterable[Any], at: str, allow: Iterable[str] = ()) -> list[str]:
    """Return the findings of severity `at` or above whose slug is not allowed, a line each."""
    from tether.finding import SEVERITIES

    if at not in SEVERITIES:
        raise ValueError(f"no severity {at!r}: use one of {', '.join(SEVERITIES)}")
    wanted = SEVERITIES[: SEVERITIES.index(at) + 1]
    accepted = set(allow)
    return [
        f"{one.slug}: {one.message} ({one.site.file}:{one.site.line})"
        for one in findings
        if one.severity in wanted and one.slug not in accepted
    ]
