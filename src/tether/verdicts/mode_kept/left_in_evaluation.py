"""Steps that train in evaluation mode, into which an evaluation had put the modules.

Nothing is said of who fine-tunes in evaluation mode from the first step on, or switches to it and
then evaluates nothing: that is how statistics and dropout are held still on purpose.

A copy that follows what is trained, an average, may do so in training mode alone: one that an
evaluation has left in the other mode follows no more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History, latest
from tether.analysis.training.no_longer import ModeSwitches, OutOfUse
from tether.analysis.training.stale_buffers import LEAST, Moves
from tether.analysis.wording import listed
from tether.facts import GRAD_ON, ModeSwitch
from tether.finding import At, Claim, Repair, Step, Tensor, say


class LeftInEvaluation(NamedTuple):
    """A parameter that was trained in training mode, and in evaluation mode after an evaluation."""

    tensor: int
    switch: ModeSwitch  # to evaluation mode
    trained: ModeSwitch | None  # to training mode, before or after it
    loss: int  # the first backward pass since then, by position
    in_training: int  # steps
    in_evaluation: int
    meant: bool  # nothing shows that training mode was to come back


class NoLongerMoved(NamedTuple):
    """Parameters that followed others in training mode, and in evaluation mode do not any more."""

    tensors: tuple[int, ...]
    of: int  # what the first of them followed
    moved: int  # its last write, by position
    switch: ModeSwitch  # to evaluation mode, after that
    trained: ModeSwitch | None  # to training mode, before
    read: int  # the first call since that computes with it, after a step of what it followed
    before: int  # writes
    steps: int  # of what it followed, since then
    meant: bool


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
        # What switched back in between was undone by a later switch: only that one is left over.
        since = max((n for n, one in enumerate(between, 1) if one.training), default=0)
        switch, loss = between[since], steps[number].loss
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


def no_longer_moved(history: History) -> Iterator[NoLongerMoved]:
    """Yield what no call moves since a switch to evaluation mode, though it is computed with."""
    switches = history.get(ModeSwitches).of if history.whole and history.steps else {}
    moves = _moves_of(history, switches)
    groups: dict[tuple[int, int], list[NoLongerMoved]] = defaultdict(list)
    for (tensor, source), calls in moves.items():
        found = _no_longer_moved(history, (tensor, source), switches[tensor], calls)
        if found is not None:
            groups[history.events[found.moved].site, found.switch.site].append(found)
    for some in groups.values():
        yield some[0]._replace(tensors=tuple(one for few in some for one in few.tensors))


def _moves_of(
    history: History, switches: dict[int, list[ModeSwitch]]
) -> dict[tuple[int, int], list[int]]:
    """Return the calls that move what was put into evaluation mode, by that and its source."""
    evaluated = {one for one, some in switches.items() if not all(few.training for few in some)}
    moves: dict[tuple[int, int], list[int]] = defaultdict(list)
    for at, tensor, source in history.get(Moves).found if evaluated else ():
        if tensor in evaluated:
            moves[tensor, source].append(at)
    return moves


def _no_longer_moved(
    history: History, pair: tuple[int, int], switches: list[ModeSwitch], moves: list[int]
) -> NoLongerMoved | None:
    (tensor, source), last = pair, moves[-1]
    steps = history.steps_of(source)
    since = steps[bisect_right(steps, last) :]
    followed = {bisect_right(steps, one) for one in moves}
    if min(len(since), len(followed - {0})) < LEAST:
        return None
    before = [one for one in switches if history.position(one.at) <= last]
    after = switches[len(before) :]
    read = _read_since(history, tensor, last, since[0])
    if read < 0 or not _stays_in_evaluation(before, after):
        return None
    if history.position(after[0].at) > since[0]:
        return None
    trained = _training(before)
    return NoLongerMoved(
        (tensor,), source, last, after[0], trained, read, len(moves), len(since),
        meant=trained is None and not _again(after, after[0]),
    )  # fmt: skip


def _stays_in_evaluation(before: list[ModeSwitch], after: list[ModeSwitch]) -> bool:
    """Whether what was in training mode was put into the other one and never put back."""
    training = not before or before[-1].training
    return training and bool(after) and not any(one.training for one in after)


def _read_since(history: History, tensor: int, moved: int, since: int) -> int:
    """Return the first call that reads a tensor after a step; -1 if none, or it was written."""
    operand = history.operand_of(tensor)
    if operand is None or history.get(OtherProcesses).written(operand, moved):
        return -1
    return next(history.readers(operand, since), -1)


def claims(history: History) -> Iterator[Claim]:
    """Give one claim for each such line."""
    # What the mode takes out of the loss is told as gradient-unused, with the same repair.
    told = {one.switch.site for one in history.get(OutOfUse).found}
    for found in left_in_evaluation(history):
        if found.switch.site not in told:
            yield _claim(history, found)
    for stopped in no_longer_moved(history):
        yield _stopped(history, stopped)


def _claim(history: History, found: LeftInEvaluation) -> Claim:
    switch, loss = found.switch, history.events[found.loss].site
    steps = found.in_training + found.in_evaluation
    parts = {"line": At(switch.site), "loss": At(loss), "n": found.in_evaluation, "all": steps}
    trained = [] if found.trained is None else [found.trained.site]
    return Claim(
        tensors=(found.tensor,),
        cause=("mode", switch.site),
        site=switch.site,
        operation="eval",
        severity="note" if found.meant else "warning",
        message=say(
            "{n} of {all} steps train {subject} in evaluation mode: {line} switched to it for an"
            " evaluation, and nothing switched back before backward at {loss}. The mode makes a"
            f" difference to {listed(list(switch.kinds), 3)}.",
            **parts,
        ),
        story=(
            Step("mode", switch.site, say("evaluation mode begins here")),
            Step("loss", loss, say("backward of a step that trains in evaluation mode")),
            *(Step("mode", one, say("training mode begins here")) for one in trained),
        ),
        repair=Repair(say("Call train() on the model after each evaluation, or before each epoch"
                          " and each time that training goes on within it.")),
        count=0,
    )  # fmt: skip


def _stopped(history: History, found: NoLongerMoved) -> Claim:
    switch, moved, read = found.switch, *(
        history.events[at].site for at in (found.moved, found.read)
    )  # fmt: skip
    parts = {"line": At(switch.site), "moved": At(moved), "of": Tensor(found.of),
             "n": found.before, "steps": found.steps}  # fmt: skip
    trained = [] if found.trained is None else [found.trained.site]
    return Claim(
        tensors=found.tensors,
        cause=("stopped", switch.site, moved),
        site=switch.site,
        operation="eval",
        severity="note" if found.meant else "warning",
        message=say(
            "{subject} was moved after {of} at {moved}, {n} times, and never since {line} put it"
            " into evaluation mode: nothing switched back, and {steps} steps have changed {of}"
            " since.",
            **parts,
        ),
        story=(
            *(Step("mode", one, say("training mode begins here")) for one in trained),
            Step("written", moved, say("it is moved after {of} here", **parts)),
            Step("mode", switch.site, say("evaluation mode begins here")),
            Step("used", read, say("it is read since, with the values of before")),
        ),
        repair=Repair(say("Call train() on the module after each evaluation; or let the update not"
                          " depend on the mode.")),
        count=0,
    )  # fmt: skip
