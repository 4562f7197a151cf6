"""What is said of each of PyTorch's operators is what PyTorch itself does, on its own samples.

Two laws. A value that an operator saved and that is written before backward: where PyTorch raises,
both lines are named; where it cannot see the write and the gradient is another, both lines are
named as well; else nothing is said. And an operator that is the only way to a leaf: the leaf gets
no gradient, or one of zeros whatever the values, and the operator's line is named; else nothing is
said of that leaf.
"""

import pytest
import torch

from lengths import sampled
from operators import (
    OPERATORS,
    Call,
    Ran,
    alike,
    call_of,
    gradients,
    is_nothing,
    lines_of,
    loss_of,
    run,
)

ABOUT_GRADIENTS = {
    "gradient-cut", "gradient-zero", "gradient-unused", "gradient-discarded", "parameter-frozen",
    "parameter-stale",
}  # fmt: skip
HEARD = ("{}.add_(1)", "{}[..., :1].mul_(2)")
IN_SILENCE = ("with torch.no_grad(): {}.add_(1)", "{}.detach()[..., :1].mul_(2)")
UNSEEN = ("{}.data.add_(1)",)
PARTS = 8
SHIFTS = (0.3, 0.7, 1.5, 3.0, 4.0, 8.0)
"""How far leaves are moved: what gives zeros at all of these gives them whatever the values are."""


def parts(operators):
    """The operators in parts, so that several processes share them."""
    return [sampled(operators[number::PARTS], 2) for number in range(PARTS)]


def program(call: Call, loss: str, write: str = "") -> tuple[str, dict[str, int]]:
    """Return a program that makes a call, writes something and goes backward; and its lines."""
    lines = [f"x{n} = w{n} * 1" for n in range(len(call.leaves))]
    lines += [f"y = {call.text}", *([write] if write else []), f"loss = {loss}", "loss.backward()"]
    at = len(call.leaves) + 1
    return "\n".join(lines) + "\n", {"call": at, "write": at + 1}


def targets(call: Call, results: list[tuple[str, torch.Tensor]]) -> list[tuple[str, int]]:
    """Return what is written: arguments and results, each with its number of dimensions."""
    given = [(f"x{n}", one.dim()) for n, one in enumerate(call.leaves[:3])]
    return given + [(path, one.dim()) for path, one in results[:2] if one.layout is torch.strided]


class Overwritten:
    """The programs of one operator in which something is written before backward."""

    def __init__(self, call: Call, path) -> None:
        self.call, self.path = call, path
        results = [(p, one) for p, one in call.results() if one.requires_grad and one.numel()]
        self.loss = loss_of(results, "(torch.arange({0}.numel()).reshape({0}.shape) / 7 + 0.5)")
        self.targets = targets(call, results)
        self.as_it_is, _ = program(call, self.loss)
        self.bare = self._run(self.as_it_is, record=False)

    def _run(self, text: str, *, record: bool) -> Ran:
        return run(text, self.call.namespace(), self.path, record=record)

    def _gradients(self, ran: Ran):
        return gradients(ran, len(self.call.leaves))

    def is_steady(self) -> bool:
        again = self._run(self.as_it_is, record=False)
        return not self.bare.error and alike(self._gradients(self.bare), self._gradients(again))

    def mistakes(self):
        """Yield what was said wrongly, or not said, of each write."""
        for name, dims in self.targets:
            for pattern in (*HEARD, *IN_SILENCE, *UNSEEN):
                if dims or "..." not in pattern:
                    yield from self._of_write(pattern.format(name), unseen=pattern in UNSEEN)

    def _of_write(self, write: str, *, unseen: bool):
        text, lines = program(self.call, self.loss, write)
        bare, told = self._run(text, record=False), self._run(text, record=True)
        both = set(lines.values())
        if bool(bare.error) != bool(told.error):
            yield f"{write}: changed by the recording: {bare.error!r}, {told.error!r}"
        elif "modified by an inplace operation" in bare.error:
            if not self._named(told, {"saved-overwritten", "tie-error"}, both):
                yield f"{write}: PyTorch raises, and the lines are not named"
        elif bare.error and bare.line == lines["write"]:
            if not self._named(told, {"tie-error"}, {bare.line}):
                yield f"{write}: PyTorch refuses it, and that is not explained"
        elif not bare.error:
            changed = not alike(self._gradients(self.bare), self._gradients(bare))
            yield from self._of_silent_write(write, told, both, wrong=unseen and changed)

    def _of_silent_write(self, write: str, told: Ran, both: set[int], *, wrong: bool):
        said = [one for one in told.findings if one.slug in {"untracked-write", "tie-error"}]
        said += [one for one in told.findings if one.slug == "saved-overwritten"]
        if wrong and not self._named(told, {"untracked-write"}, both):
            yield f"{write}: the gradient is another, and the lines are not named"
        if not wrong and said:
            yield f"{write}: nothing is wrong, and yet: {said[0].message}"

    @staticmethod
    def _named(told: Ran, slugs: set[str], lines: set[int]) -> bool:
        return any(one.slug in slugs and lines <= lines_of(one) for one in told.findings)


@pytest.mark.parametrize("part", range(PARTS))
def test_overwritten_values_are_told_as_pytorch_tells_them(part, tmp_path):
    mistakes, tried = [], 0
    for operator in parts(OPERATORS)[part]:
        call = call_of(operator) if operator.supports_autograd else None
        if call is None:
            continue
        programs = Overwritten(call, tmp_path / "program.py")
        if programs.is_steady():
            tried += 1
            mistakes += [f"{operator.formatted_name}: {one}" for one in programs.mistakes()]
    assert not mistakes, "\n".join(mistakes)
    assert tried


def only_way(call: Call) -> tuple[str, int]:
    """Return a program in which a call is the only way from each leaf to the loss; and its line."""
    names = ", ".join(f"w{n}" for n in range(len(call.leaves)))
    results = call.results()[:3]
    text = call.text
    for n in range(len(call.leaves)):
        text = text.replace(f"x{n}", f"w{n}")
    loss = loss_of(results, "v[:{0}.numel()].reshape({0}.shape)")
    lines = [f"opt = torch.optim.SGD([{names}, v], lr=0.1)", f"y = {text}", f"loss = {loss}"]
    return "\n".join([*lines, "loss.backward()", "opt.step()"]) + "\n", 2


def namespace_of(call: Call, shift: float = 0.0):
    """Return names with parameters, moved by a little from where they were."""
    names = call.namespace()
    made = torch.Generator().manual_seed(int(shift * 10))
    for n in range(len(call.leaves)):
        leaf = names[f"w{n}"].detach()
        moved = torch.randn(leaf.shape, generator=made, dtype=torch.float64).to(leaf.dtype) * shift
        names[f"w{n}"] = torch.nn.Parameter(leaf + moved if shift else leaf)
    most = max(one.numel() for _, one in call.results()) * 2
    names["v"] = torch.nn.Parameter(torch.rand(most, generator=made) + 0.5)
    return names


@pytest.mark.parametrize("part", range(PARTS))
def test_leaves_without_a_gradient_are_told_as_pytorch_has_them(part, tmp_path):
    mistakes, tried = [], 0
    for operator in parts(OPERATORS)[part]:
        call = call_of(operator) or call_of(operator, needs_graph=False)
        if call is None:
            continue
        text, line = only_way(call)
        path, count = tmp_path / "program.py", len(call.leaves)
        bare = run(text, namespace_of(call), path, record=False)
        if bare.error:
            continue
        tried += 1
        told = run(text, namespace_of(call), path, record=True)
        others = [run(text, namespace_of(call, one), path, record=False) for one in SHIFTS]
        shifted = [gradients(one, count) for one in others if not one.error]
        for n, gradient in enumerate(gradients(bare, count)):
            said = [one for one in told.findings if one.slug in ABOUT_GRADIENTS]
            of_it = [one for one in said if f"w{n}" in (one.subject.strip("`"), *one.also)]
            never = all(is_nothing(one[n]) for one in [gradients(bare, count), *shifted])
            if is_nothing(gradient) and never:
                if not any(line in lines_of(one) for one in of_it):
                    mistakes.append(f"{operator.formatted_name}: w{n} gets nothing: not told")
            elif not is_nothing(gradient) and of_it:
                mistakes.append(f"{operator.formatted_name}: w{n}: {of_it[0].message}")
    assert not mistakes, "\n".join(mistakes)
    assert tried
