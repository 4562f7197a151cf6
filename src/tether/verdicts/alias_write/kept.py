"""The law of kept values, as claims: part of `alias-write`.

A place keeps what it showed when it was filled; a write through another place changed that. The
modules beside this one have a function for each law; they speak of the acts of which the facts
alone say that they cannot have been meant. `SILENT` has the good uses that look alike.
"""

from __future__ import annotations

from collections.abc import Iterator

from tether.analysis.history import History
from tether.finding import Claim
from tether.verdicts.alias_write.arrays_kept import arrays_kept
from tether.verdicts.alias_write.by_themselves import by_themselves
from tether.verdicts.alias_write.computed_once import computed_once
from tether.verdicts.alias_write.definitions import definitions
from tether.verdicts.alias_write.given_again import given_again
from tether.verdicts.alias_write.given_back import given_back
from tether.verdicts.alias_write.given_gradients import given_gradients
from tether.verdicts.alias_write.given_parameter import given_parameter
from tether.verdicts.alias_write.gradients_taken import gradients_taken
from tether.verdicts.alias_write.handed_out import handed_out
from tether.verdicts.alias_write.handed_over import handed_over
from tether.verdicts.alias_write.kept_in_some_runs import kept_in_some_runs
from tether.verdicts.alias_write.many_places import many_places
from tether.verdicts.alias_write.mapped_files import mapped_files
from tether.verdicts.alias_write.named_twice import named_twice
from tether.verdicts.alias_write.one_buffer import one_buffer
from tether.verdicts.alias_write.one_for_each import one_for_each
from tether.verdicts.alias_write.other_owners import other_owners
from tether.verdicts.alias_write.own_buffer import own_buffer
from tether.verdicts.alias_write.records_that_follow import records_that_follow
from tether.verdicts.alias_write.second_names import second_names
from tether.verdicts.alias_write.shallow_copies import shallow_copies
from tether.verdicts.alias_write.shared_by_definition import shared_by_definition
from tether.verdicts.alias_write.sometimes_shared import sometimes_shared
from tether.verdicts.alias_write.summands import summands
from tether.verdicts.alias_write.taken_for_several import taken_for_several
from tether.verdicts.alias_write.two_owners import two_owners
from tether.verdicts.alias_write.views_taken_again import views_taken_again
from tether.verdicts.alias_write.views_that_follow import views_that_follow
from tether.verdicts.alias_write.written_below import written_below

SILENT = {
    "a buffer that a function is given to fill": "what is overwritten, or written as out=, is new",
    "a scratch buffer that a cache hands out": "it is filled anew before it is read",
    "the elements of a list, one after the other": "the loop's variable is the element",
    "a parameter of a module, an optimizer and a list": "each holds it to train it",
    "a window: a piece that is written, the whole that is read": "that is what views are for",
    "a function whose name ends in _": "it says that it writes what it is given",
    "what an object writes through its own attribute": "it is the object's state, and no record",
    "an output that is kept after the call that wrote it": "the record is what that call left",
    "a body that two heads train, or that no step moves": "neither was to stand still",
    "a parameter that a helper clips, without a result that is used": "it was called for that",
    "a default that names what was made elsewhere": "who names it knows that it is shared",
    "two names of one tensor, of which one is used below the write": "it is a shorter word for it",
    "what is computed where there is no state yet, and becomes it": "it is the state that moves",
    "views that are read after each write, or before one is taken again": "they are windows",
    "an array that nobody has any more": "its memory is the tensor's own",
}
"""Good uses, and why nothing is said of them."""


_LAWS = (
    by_themselves, given_gradients, gradients_taken, handed_over, many_places, other_owners,
    mapped_files, arrays_kept, handed_out, computed_once,
    named_twice, own_buffer, shallow_copies, summands, taken_for_several, two_owners,
    given_back, sometimes_shared, written_below, given_parameter, given_again, one_buffer,
)  # fmt: skip

_LAST = (second_names, kept_in_some_runs, views_taken_again, one_for_each, views_that_follow)
"""Laws that speak of what no other one has spoken of."""


def kept_values(history: History, told: set[int]) -> Iterator[Claim]:
    """Yield the claims on tensors that no other part of the verdict speaks of."""
    defined = [one for one in definitions(history) if told.isdisjoint(one.tensors)]
    known = told | {tensor for one in defined for tensor in one.tensors}
    once = [one for one in shared_by_definition(history) if known.isdisjoint(one.tensors)]
    told = told | {tensor for one in once for tensor in one.tensors}
    yield from (*defined, *once)
    spoken = set(told)
    for claims in _LAWS:
        for claim in claims(history):
            if told.isdisjoint(claim.tensors):
                spoken.update(claim.tensors)
                yield claim
    for claims in _LAST:
        yield from _of_others(claims(history), spoken)
    yield from records_that_follow(history, spoken)


def _of_others(claims: Iterator[Claim], spoken: set[int]) -> Iterator[Claim]:
    """Yield the claims on tensors that no law before has spoken of, and note theirs after them."""
    found = [one for one in claims if spoken.isdisjoint(one.tensors)]
    spoken.update(tensor for one in found for tensor in one.tensors)
    yield from found
