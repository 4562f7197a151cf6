"""`gradient-cut`: every path from a parameter to the loss is cut."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from tether.analysis.gradients.cut_words import Cut, described
from tether.analysis.gradients.paths import Paths
from tether.analysis.gradients.ungraded import Missing, in_how_many, without_backward
from tether.analysis.history import History, losses_of
from tether.analysis.surroundings import Surroundings, at_line
from tether.analysis.training.following import Following
from tether.analysis.training.frozen import taken_off
from tether.analysis.training.misplaced import Misplaced
from tether.analysis.wording import listed
from tether.facts import GRAD_ON, UNKNOWN, Site
from tether.finding import At, Claim, Repair, Sentence, Step, Tensor, say
from tether.source.reading import gathered
from tether.verdicts.base import Example, Expected, Verdict

PAGE = """
# gradient-cut

## What it says
This tensor should train, its value reaches the loss, and no gradient can come back: every path
from it to the loss is cut, at the line named. Nothing deleted its gradient; the path was never
built.

## Why it matters
The optimizer skips a parameter whose `.grad` is None without a word. The loss may still go down,
since the rest of the model trains.

## Known problems
Values that pass through Python numbers or new NumPy arrays are followed through the source text;
such a finding says "likely" and lists what it assumes. Where a library cuts off parameters of its
own it is a note: a model may choose by some scores alone. A tensor that no optimizer holds counts
only if the program reads its `.grad`.

## Example
```python
features = encoder(x).detach()   # encoder never trains
loss = head(features).sum()
```

## Use instead
```python
features = encoder(x)
```
Where the cut is meant (a fixed feature extractor), leave its parameters out of the optimizer.

## Fix safety
Removing a cut changes what is trained: never applied by itself.
"""


class _Story(NamedTuple):
    """The cut to tell of a tensor, on the way to one loss."""

    paths: Paths
    cut: Cut
    others: list[Cut]  # that stay when it is opened
    each: bool = False  # each way has a cut of its own


def check(history: History) -> Iterator[Claim]:
    """Give one claim for each place that cuts, with all tensors it cuts off."""
    found = history.get(Missing)
    groups: dict[tuple[Site, str], list[int]] = defaultdict(list)
    told: dict[tuple[Site, str], _Story] = {}
    # Values that went into new parameters: what is wrong is that the optimizer lacks those.
    remade = history.get(Misplaced).sites
    for tensor in [*found.none, *found.stopped]:
        if without_backward(history, tensor):
            continue
        reaching = [one for one in found.reaching(tensor) if _tells_of(history, one, tensor)]
        story = _story(history, reaching, tensor)
        if story is None or (story.cut.site in remade and tensor in history.held):
            continue
        key = (history.site(story.cut.site), story.cut.operation)
        groups[key].append(tensor)
        told.setdefault(key, story)
    for key, tensors in groups.items():
        yield _claim(history, tensors, told[key])


def _tells_of(history: History, paths: Paths, tensor: int) -> bool:
    """Whether a pass says anything of a tensor.

    One that was asked for other gradients does not; one that failed does for want of a graph alone.
    """
    event = history.events[paths.backward]
    losses = losses_of(event)
    asked = {one.tensor for one in event.reads[len(losses) :]}
    if asked:
        return tensor in asked
    return not event.raised or not any(one.requires_grad for one in losses)


def _story(history: History, reaching: list[Paths], tensor: int) -> _Story | None:
    """Find the cut to tell, and those that remain, on the first path that has any.

    It is the one nearest to the tensor among those that every way passes: whoever opens it, and
    what every way passes after it, has the gradient, though other ways stay cut (an action that is
    sampled, beside its log-probability). Where each way has a cut of its own, it is one at which a
    gradient could have gone on: whole numbers carry none.

    Where the graph of one loss is whole, and yet no gradient came, a custom backward kept it: what
    is cut off from other losses, as a discriminator's from its generator, may be meant.
    """
    for paths in reaching:
        functions = paths.of(paths.functions, tensor) if paths.lets(tensor) else []
        if functions:
            return _Story(paths, described(history, functions[-1]), [])
    for paths in reaching:
        positions = [] if paths.lets(tensor) else paths.of(paths.cuts, tensor)
        if positions:
            later = [at for at in paths.of(paths.later, tensor) if at > positions[0]]
            cuts = sorted({*positions, *later})
            always = set(paths.of(paths.always, tensor))
            if not always.isdisjoint(positions):
                first, *rest = [at for at in cuts if at in always]
                return _Story(paths, described(history, first), _distinct(history, rest))
            first = min(positions, key=partial(_less_likely, history))
            others = _distinct(history, [at for at in cuts if at != first])
            return _Story(paths, described(history, first), others, each=len(positions) > 1)
    return None


def _less_likely(history: History, at: int) -> tuple[bool, bool]:
    """Whether a call gives or takes whole numbers alone, and leaves what it was given on the graph.

    No gradient goes through whole numbers; who took a tensor itself off the graph cut more than its
    value.
    """
    event = history.events[at]
    whole = any(some and all(one.whole for one in some) for some in (event.results, event.reads))
    return whole, taken_off(event) is None


def _distinct(history: History, positions: list[int]) -> list[Cut]:
    cuts: dict[tuple[tuple[str, int], str], Cut] = {}
    for position in positions[:50]:
        cut = described(history, position)
        cuts.setdefault((_line(history, cut), cut.operation), cut)
    return list(cuts.values())


def _line(history: History, place: Cut | Step) -> tuple[str, int]:
    site = history.site(place.site)
    return site.file, site.line


def _claim(history: History, tensors: list[int], story: _Story) -> Claim:
    paths, cut = story.paths, story.cut
    backward = history.events[paths.backward]
    whole, likely = paths.lets(tensors[0]), paths.likely & paths.bit(tensors[0])
    shown = {_line(history, one) for one in cut.story}
    others = [one for one in story.others if _line(history, one) not in shown]
    copy = history.get(Misplaced).copied(cut.at) if tensors[0] in history.held else UNKNOWN
    followed = history.get(Following).followed(tensors[0])
    return Claim(
        tensors=tuple(tensors),
        cause=(cut.site, cut.operation),
        site=cut.site,
        calls=(cut.at,),
        operation=cut.operation,
        severity="note" if _may_be_meant(history, tensors, cut, followed) else "warning",
        message=say(
            _message(story, raised=backward.raised, whole=whole),
            when=in_how_many(history, tensors[0]),
            what=cut.what,
            path="The path" if len(tensors) == 1 else "Every path",
            likely="most likely " if likely else "",
            copied=_copied(copy),
        ),
        story=(
            *cut.story,
            *_in_vain(history, tensors[0], copy),
            *(
                Step("also cut", one.site, say("and again: {what}", what=one.what))
                for one in others
            ),
            *_way(history, story, {*shown, *(_line(history, one) for one in others)}),
            Step("loss", backward.site, say("backward starts from the loss here")),
        ),
        repair=Repair(_fix(cut, [] if story.each else others, copy, tensors[0], followed)),
        assumes=(_FOLLOWED,) if likely or whole else (),
        count=history.times(cut.at),
    )


def _may_be_meant(history: History, tensors: list[int], cut: Cut, followed: int) -> bool:
    """Whether a library cuts off what is its own: a model that chooses by some of its scores.

    Or the tensor is what other parameters were copied from, which are trained in its place; or it
    follows another one, by values that the program gives it as that is trained.
    """
    if followed >= 0:
        return True
    if history.held.isdisjoint(tensors) and history.get(Misplaced).is_trained_apart(cut.at):
        return True
    facts = [one for one in map(history.facts_of_name, tensors) if one is not None]
    inside = not history.site(history.events[cut.at].inner).user
    return inside and bool(facts) and not any(one.owner_user for one in facts)


def _way(history: History, story: _Story, told: set[tuple[str, int]]) -> Iterator[Step]:
    """Yield the lines by which what came out of a cut goes into the loss, but those told."""
    around, cut, backward = history.get(Surroundings), story.cut.at, story.paths.backward
    on = history.events[cut].grad_mode == GRAD_ON
    way = around.onward(cut, backward) if on else around.entering(cut, backward)
    yield from (one for one in way if _line(history, one) not in told)


def _copied(copy: int) -> Sentence:
    """Say which tensor gets the gradients instead; nothing where there is none."""
    if copy < 0:
        return say("")
    return say(" {copy}, which is made of its values, gets gradients and is in no optimizer.",
               copy=Tensor(copy))  # fmt: skip


def _fix(cut: Cut, others: list[Cut], copy: int, tensor: int, followed: int) -> Sentence:
    if followed >= 0:
        text = (
            "Nothing, where that is meant: the program gives {subject} the values of {x}. No"
            " optimizer need hold {subject} then."
        )
        return say(text, subject=Tensor(tensor), x=Tensor(followed))
    if copy < 0:
        return say("{fix}{more}.", fix=cut.fix, more=_also_at(others))
    return say("Give the optimizer {copy} and all that is made with it, or compute the loss with"
               " {subject}.", copy=Tensor(copy), subject=Tensor(tensor))  # fmt: skip


def _in_vain(history: History, tensor: int, copy: int) -> Iterator[Step]:
    """Yield where an optimizer takes what a copy was made of, and where that was gathered."""
    if copy < 0:
        return
    holder = history.get(Misplaced).holder(tensor)
    yield Step("held", holder.site, say("{kind} takes {x}", kind=holder.kind, x=Tensor(tensor)))
    place = history.site(holder.site)
    for line in gathered(history.get(Surroundings).source(place.file), place):
        yield Step("held", at_line(place, line), say("what it is given is gathered here"))


def _message(story: _Story, *, raised: bool, whole: bool) -> str:
    if whole:
        return "{subject} got no gradient {when}. Most likely {what}."
    if raised:
        return "backward failed, since the loss is not connected to {subject}: {what}."
    if story.each:
        return (
            "{subject} got no gradient {when}. The paths to the loss are {likely}cut at several"
            " places, one of them here: {what}.{copied}"
        )
    path = "{path} to the loss is {likely}cut here: {what}.{copied}"
    return f"{{subject}} got no gradient {{when}}. {path}"


_FOLLOWED = say("the value was followed through Python numbers or arrays in the source")


def _also_at(others: list[Cut]) -> Sentence:
    """Say at which further lines the path is to be opened."""
    if not others:
        return say("")
    lines = {f"l{n}": At(one.site) for n, one in enumerate(others)}
    return say("; then also at " + listed([f"{{{one}}}" for one in lines]), **lines)


VERDICT = Verdict(
    slug="gradient-cut",
    severity="warning",
    summary="a parameter got no gradient: every path from it to the loss is cut, here",
    page=PAGE,
    check=check,
    damage="lost training",
    after=("parameter-stale",),
    examples=(
        Example(
            "A detach between two layers",
            """import torch
from torch import nn

first, second = nn.Linear(3, 3, bias=False), nn.Linear(3, 1)
opt = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    loss = second(first(torch.randn(4, 3)).detach()).mean()
    loss.backward()
    opt.step()
""",
            (Expected("gradient-cut", "first.weight", 8),),
        ),
        Example(
            "A detach beside a path that is open",
            """import torch

w = torch.ones(3, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
loss = (w * w.detach()).sum()
loss.backward()
opt.step()
""",
        ),
    ),
)
