"""Steps that train in evaluation mode, into which an evaluation had put the modules.

Nothing is said of who fine-tunes in evaluation mode from the first step on, or switches to it and
then evaluates nothing: that is how statistics and dropout are held still on purpose.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.history import History, latest
from tether.analysis.no_longer import ModeSwitches
from tether.facts import GRAD_ON, ModeSwitch


class LeftInEvaluation(NamedTuple):
    """A parameter that was trained in training mode, and in evaluation mode after an evaluation."""

    tensor: int
    switch: ModeSwitch  # to evaluation mode
    trained: ModeSwitch | None  # to training mode, before or after it
    loss: int  # the first backward pass since then, by position
    in_training: int  # steps
    in_evaluation: int
    meant: bool  # nothing shows that training mode was to come back


class _TrainedStep(NamedTuple):
    loss: int  # its last backward pass
    mode: int  # the last switch before that pass, by its place in the list; -1: none


def left_in_evaluation(history: History) -> Iterator[LeftInEvaluation]:
    """Yield what steps trained in both modes, the evaluation mode being left over.

    Nothing is said where what switched back may not have been recorded.
    """
    if history.in_part:
        return
    switches = {
        tensor: [one for one in facts if one.kinds]
        for tensor, facts in history.get(ModeSwitches).of.items()
    }
    steps = _steps(history, switches) if switches else {}
    for held, passes in steps.items():
        found = _left(history, held, switches[held], passes)
        if found is not None:
            yield found


def _steps(
    history: History, switches: dict[int, list[ModeSwitch]]
) -> dict[int, list[_TrainedStep]]:
    """Return the steps that used a gradient of each tensor, with the mode of their passes."""
    at_each = {
        tensor: [history.position(one.at) for one in some] for tensor, some in switches.items()
    }
    found: dict[int, list[_TrainedStep]] = defaultdict(list)
    for fact in history.steps:
        loss = latest(history.backwards, history.position(fact.at))
        for tensor in fact.status.keys() & at_each.keys():
            if fact.status[tensor] != "none":
                found[tensor].append(_TrainedStep(loss, bisect_right(at_each[tensor], loss) - 1))
    return found


def _left(
    history: History, tensor: int, switches: list[ModeSwitch], steps: list[_TrainedStep]
) -> LeftInEvaluation | None:
    evaluating = [one.mode >= 0 and not switches[one.mode].training for one in steps]
    for number, turn in enumerate(pairwise(evaluating), 1):
        if turn != (False, True):
            continue
        between = switches[steps[number - 1].mode + 1 : steps[number].mode + 1]
        switch, loss = next(one for one in between if not one.training), steps[number].loss
        if _evaluated(history, tensor, history.position(switch.at), loss):
            trained, again = _training(switches), _again(switches, switch)
            return LeftInEvaluation(
                tensor, switch, trained, loss, evaluating.count(False), evaluating.count(True),
                meant=trained is None and not again,
            )  # fmt: skip
    return None


def _training(switches: list[ModeSwitch]) -> ModeSwitch | None:
    return next((one for one in reversed(switches) if one.training), None)


def _again(switches: list[ModeSwitch], switch: ModeSwitch) -> bool:
    return any(one.site == switch.site and one.at > switch.at for one in switches)


def _evaluated(history: History, tensor: int, since: int, until: int) -> bool:
    """Whether a call used the tensor between two moments without any gradient."""
    operand = history.operand_of(tensor)
    readers = () if operand is None else history.readers(operand, since, until)
    return any(history.events[at].grad_mode != GRAD_ON for at in readers)
