"""Whether a call gave what was there already for its values alone, and may give other ones."""

from __future__ import annotations

from collections.abc import Sequence

from tether.analysis.copies.already_there import AlreadyThere, Copied, by_way, may_differ
from tether.analysis.copies.gives_back import computes, doubt, pays
from tether.analysis.copies.layouts import is_expanded
from tether.analysis.copies.needs.answers import WhyNeeded
from tether.analysis.copies.needs.index import FAR
from tether.analysis.copies.needs.words import CopyQuestion
from tether.analysis.surroundings import Surroundings
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import ALL, operation
from tether.source.calls import fixed, lists_parts, repeats_once, takes_tensors_alone
from tether.source.written_out import (
    is_chosen,
    joins_as_many,
    joins_each,
    names_its_format,
    takes_the_same,
)


class DecidedByValues(CopyQuestion):
    """Why a call that gave what was there may give something else another time."""

    def guards(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Ask of a call whether the very values decide it: a guard that met nothing this time."""
        if copied.equal and not (self._index.often and self._is_repeated(copied)):
            text = "what it takes is equal to what was there in the runs that were seen"
            return WhyNeeded("unknown", text, copied.position)
        made = max(self.chosen_by(copied, event), self._by_data(copied, event))
        # A mask that took everything may well be such a guard; numbers say an order.
        masked = any(one.dtype == "bool" for one in event.reads)
        text = self._may_be_told_others(copied, event)
        if text:
            return WhyNeeded("unknown", text, copied.position)
        if made < 0 or (self._index.often and not masked and self._is_repeated(copied)):
            return None
        return WhyNeeded("unknown", "what it takes hangs on the values", made)

    def _may_be_told_others(self, copied: Copied, event: Event) -> str:
        """Say which settings, or sizes, may be others in another run; "" where none is known."""
        rows = operation(event.operation).rows and not self._are_rows_set(event)
        if rows or self._is_told_numbers(event) or self._is_told_amounts(event):
            return "the numbers that it is given may be others"
        if self._goes_by_a_setting(copied):
            return "the format that it goes through may be another"
        if self._is_of_one_length(copied, event):
            return "what it is given may be longer along a dimension of one"
        return ""

    def _by_data(self, copied: Copied, event: Event) -> int:
        """Return a call by which data decide what is taken; -1 where a size alone does.

        Data are drawn, come in from elsewhere, or stand in a list that is not written out. Numbers
        of data may be in order, or one after the other, each time they were seen, and by chance.
        """
        row = operation(event.operation)
        if copied.any_choice or copied.since != copied.position or row.rows or not row.chooses:
            return UNKNOWN
        places = [one for one in event.reads if one.whole and one.tensor != copied.source.tensor]
        if places:
            makers = self._makers(places)
            return next(filter(self._is_of_data, makers), copied.position if -1 in makers else -1)
        text = self._history.site_of(event).expression
        listed = text.endswith("]") and not takes_the_same(text)
        return copied.position if listed else UNKNOWN

    def _is_told_numbers(self, event: Event) -> bool:
        """Whether a call takes by an amount or a size that its text does not write out.

        How much is padded, rolled or pooled is then computed of sizes: the call stands there for
        those that do not fit.
        """
        row, text = operation(event.operation), self._history.site_of(event).expression
        alone = row.chooses and len(event.reads) == 1 and not text.endswith("]")
        return bool(alone) and (row.pools or not fixed(event.operation, text))

    def _is_told_amounts(self, event: Event) -> bool:
        """Whether a call says a dimension once by an amount that its text does not write out."""
        if not operation(event.operation).repeats or not event.reads:
            return False
        text = self._history.site_of(event).expression
        given, made = event.reads[0].shape, event.results[0].shape
        if given == made:
            return not fixed(event.operation, text)
        pairs = zip(range(-1, -len(given) - 1, -1), given[::-1], made[::-1], strict=False)
        alike = [at for at, one, other in pairs if one == other != 1]
        return bool(alike) and not repeats_once(event.operation, text, alike)

    def _goes_by_a_setting(self, copied: Copied) -> bool:
        """Whether elements come back out of a format that the text does not name."""
        if not by_way(self._history, copied.since, copied.position):
            return False
        way = self._history.events[copied.since]
        same = any(one.dtype == way.results[0].dtype for one in way.reads)
        return not (same or names_its_format(self._history.site_of(way).expression))

    def _is_of_one_length(self, copied: Copied, event: Event) -> bool:
        """Whether a call moves elements, or adds them up, and has one alone along a dimension.

        As where a batch of one is turned round, or a sum is kept of one member of an ensemble.
        """
        row = operation(event.operation)
        alone = len(event.reads) == 1 and copied.since == copied.position
        moves = row.picks and row.notes != "padding" and not self._is_indexed(event)
        return alone and (moves or self._is_of_many(event)) and 1 in event.reads[0].shape

    def _is_indexed(self, event: Event) -> bool:
        return self._history.site_of(event).expression.endswith("]")

    def _is_of_many(self, event: Event) -> bool:
        """Whether a call makes each element of several, as one that adds up does."""
        return computes(event) and not operation(event.operation).pointwise

    def _makers(self, places: Sequence[Operand]) -> list[int]:
        """Return the calls that made numbers which choose, -1 for those not seen; no masks."""
        return [self._history.made_at(one.tensor) for one in places if one.dtype != "bool"]

    def _is_of_data(self, made: int) -> bool:
        """Whether data come into what a call made, as far as it is looked back."""
        if made < 0:
            return False
        behind = (made, *self._flow.behind(made, FAR))
        return any(self._brings_data(self._history.events[at]) for at in behind)

    def _brings_data(self, event: Event) -> bool:
        """Whether a call makes numbers of something else than tensors, sizes and the text."""
        row = operation(event.operation)
        if event.reads or row.random:
            return row.random
        return not (row.fresh or takes_the_same(self._history.site_of(event).expression))

    def _is_repeated(self, copied: Copied) -> bool:
        """Whether elements were made several times over on the way to what was chosen of.

        Then places are alike by how they were made, and not by values alone.
        """
        source, there = copied.source, self._history.get(AlreadyThere).by_position
        at = self._history.made_at(source.tensor)
        on_the_way = [at]
        while at in there:
            source = there[at][0].source
            at = self._history.made_at(source.tensor)
            on_the_way.append(at)
        behind = (*on_the_way, *self._flow.behind(at, FAR)) if at >= 0 else on_the_way
        return any(_repeats(self._history.events[one]) for one in behind if one >= 0)

    def _are_rows_set(self, event: Event) -> bool:
        """Whether a line asked a table for rows several times, by numbers that are no data.

        By some that it keeps, or that are counted off.
        """
        runs = [self._index.event(one) for one in self._index.runs[event.site]]
        kept = len({one.reads[0].tensor for one in runs}) == 1
        return len(runs) > 1 and (kept or all(self._are_counted(one.reads[0]) for one in runs))

    def _are_counted(self, numbers: Operand) -> bool:
        """Whether numbers were made of nothing but a count, moved along or shown otherwise."""
        made = self._history.made_at(numbers.tensor)
        behind = (made, *self._flow.behind(made, FAR)) if made >= 0 else ()
        return bool(behind) and all(self._counts(self._history.events[at]) for at in behind)

    def _counts(self, event: Event) -> bool:
        """Whether a call counts, or gives a count's numbers in their order, of each its own."""
        row = operation(event.operation)
        if row.random or event.writes:
            return False
        if not event.reads:
            return row.fresh and not row.blank
        moved = bool(row.linear) and row.exact  # no bound, and no remainder: that depends on size
        return len(event.reads) == 1 and bool(row.view or row.copies or moved)

    def chosen_by(self, copied: Copied, event: Event) -> int:
        """Return the call by which the source's values decide what is taken of it; -1 for none."""
        if copied.any_choice or not (operation(event.operation).chooses or computes(event)):
            return UNKNOWN
        memory = self._flow.memory(copied.source)
        # What a round trip leads through is made of the source's values as a matter of course.
        for one in event.reads[copied.since != copied.position :]:
            made = self._history.made_at(one.tensor)
            if self._flow.memory(one) == memory or made < 0:
                continue
            if one.dtype == "bool" and self._is_measured(made):
                return made  # a guard; lengths that are all full are counts
            if any(self._uses(at, memory) for at in (made, *self._flow.behind(made, FAR))):
                return made
        return UNKNOWN

    def _is_measured(self, at: int) -> bool:
        """Whether a call made a mask of values that are no whole numbers."""
        event = self._history.events[at]
        values = operation(event.operation).template != ALL
        return values and any(not one.whole for one in event.reads)

    def computed(self, copied: Copied, event: Event) -> WhyNeeded | None:
        """Ask of a call that computes whether it gives what was there for any values."""
        more, text = pays(event, copied.source), doubt(self._history, event, copied.source)
        if more:
            return WhyNeeded("yes", more, copied.position)
        if not text and computes(event):
            text = self._may_be_others(copied, event)
        return WhyNeeded("unknown", text, copied.position) if text else None

    def _may_be_others(self, copied: Copied, event: Event) -> str:
        """Say why another operand may be neutral in this run alone; "" where nothing says so.

        As what an adapter adds to its layer, which begins with a factor of zero; or a mask of what
        goes beyond a bound, where nothing did.
        """
        if not self._writes_numbers_out(event):
            return "a number that it is given may be another"
        others = [one for one in event.reads if one.tensor != copied.source.tensor]
        if len(others) == len(event.reads):
            return ""
        calls = self._calls_behind(others)
        if any(map(self._is_of_numbers, calls)):
            return "what else it is made of is made of numbers, which may be others"
        read = [*others, *(one for call in calls for one in call.reads)]
        if any(one.requires_grad and one.leaf for one in read):
            return "what else it is made of is computed of parameters, which may train"
        if any(map(_compares, calls)):
            return "what else it is made of hangs on a comparison, which may come out otherwise"
        return ""

    def _writes_numbers_out(self, event: Event) -> bool:
        """Whether the text of a call has all that it was given beside tensors.

        What stands in a variable, or in an object, is a setting, or was computed.
        """
        text = "" if self._index.library else self._history.site_of(event).expression
        return takes_tensors_alone(event.operation, text, len(event.reads))

    def _is_of_numbers(self, event: Event) -> bool:
        """Whether a call made a tensor of numbers, or of one, that its text does not write out."""
        row = operation(event.operation)
        given = not event.reads and (row.enters or (row.fresh and row.mixes))
        return bool(given) and not takes_the_same(self._history.site_of(event).expression)

    def _calls_behind(self, given: Sequence[Operand]) -> list[Event]:
        """Return the calls by which some operands were computed, as far as it is looked back."""
        makers = {at for one in given if (at := self._history.made_at(one.tensor)) >= 0}
        behind = {one for at in makers for one in (at, *self._flow.behind(at, FAR))}
        return [self._history.events[one] for one in behind]

    def coincidence(self, copied: Copied) -> WhyNeeded | None:
        """Ask of the only run of a join, or a computation: it may be given something else.

        The text says which they are where it lists them; so does a function that made them all.
        """
        event = self._index.event(copied)
        site = self._history.site_of(event)
        if may_differ(self._history, copied):
            return WhyNeeded("unknown", "it ran once, and may give other values", copied.position)
        if not operation(event.operation).joins or lists_parts(site.expression):
            return None
        makers = [self._history.made_at(one.tensor) for one in event.reads]
        function_of = self._index.function_of
        here = function_of(copied.position)
        if len(makers) > 1 and all(at >= 0 and function_of(at) == here for at in makers):
            return None
        return WhyNeeded(
            "unknown", "it ran once, and its list may hold other parts", copied.position
        )

    def of_one(self, copied: Copied) -> WhyNeeded | None:
        """Ask of a join that was given one tensor in each run whether its list may have others."""
        around, site = self._history.get(Surroundings), self._index.line_of(copied)
        if not self.is_single(copied):
            return None
        source = around.source(site.file)
        if joins_as_many(source, site) or (self._index.often and joins_each(source, site)):
            return None
        text = "its list had one tensor in the runs that were seen, and may have others"
        return WhyNeeded("unknown", text, copied.position)

    def of_list(self, copied: Copied) -> WhyNeeded | None:
        """Ask of a join whether a branch decides what is in its list: another may be taken.

        As of a store that hands on what comes in until it is full.
        """
        event, site = self._index.event(copied), self._index.line_of(copied)
        if not operation(event.operation).joins or copied.part or self.is_single(copied):
            return None
        if not is_chosen(self._history.get(Surroundings).source(site.file), site):
            return None
        text = "which tensors its list has is decided as the program runs"
        return WhyNeeded("unknown", text, copied.position)

    def is_single(self, copied: Copied) -> bool:
        """Whether a join was given one tensor, in a list that its own text does not write out."""
        event = self._index.event(copied)
        joins = operation(event.operation).joins and not copied.part and len(event.reads) == 1
        return bool(joins) and not lists_parts(self._history.site_of(event).expression)

    def _uses(self, position: int, memory: int) -> bool:
        """Whether an event was given the values in a memory."""
        event = self._history.events[position]
        if operation(event.operation).template == ALL:
            return False
        return any(self._flow.memory(one) == memory for one in event.reads)


def _compares(event: Event) -> bool:
    """Whether a call made truths of numbers."""
    made = any(one.dtype == "bool" for one in event.results)
    return made and any(one.dtype != "bool" for one in event.reads)


def _repeats(event: Event) -> bool:
    """Whether a call says elements several times over, or is given an expanded tensor to copy."""
    row = operation(event.operation)
    copies = bool(row.copies or row.regroups)
    return bool(row.repeats) or (copies and any(map(is_expanded, event.reads)))
