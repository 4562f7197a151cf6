"""How ties are ordered by their reasons, and that these survive a file."""

import pytest

from tether.analysis.sharing.standing import Standing, TieReason
from tether.store.layout import Damage, decoder


@pytest.mark.parametrize(
    ("standing", "plain", "nothing"),
    [
        (Standing(TieReason.LOST, read=False, meant=True), False, False),
        (Standing(TieReason.COPY, read=False), False, False),
        (Standing(TieReason.COPY, read=False, meant=True), True, False),
        (Standing(TieReason.COPY, read=True, meant=True), False, False),
        (Standing(TieReason.VIEW, read=True), False, False),
        (Standing(TieReason.VIEW, read=True, meant=True), True, False),
        (Standing(TieReason.STATE, read=False), True, False),
        (Standing(TieReason.STATE, read=False, meant=True), True, True),
        (Standing(TieReason.TWO_NAMES, read=True), True, False),
        (Standing(TieReason.TWO_NAMES, read=False), True, True),
        (Standing(TieReason.OWN, read=True), True, True),
    ],
)
def test_what_is_worth_a_look(standing, plain, nothing):
    assert (standing.plain, standing.nothing) == (plain, nothing)


def test_the_most_harmful_comes_first():
    ordered = [
        Standing(TieReason.KEPT, read=True),
        Standing(TieReason.SLOTS, read=True),
        Standing(TieReason.SLOTS, read=False),
        Standing(TieReason.VIEW, read=True),
        Standing(TieReason.CLOSURE, read=False, meant=True),
    ]
    assert sorted(set(ordered), key=lambda one: one.rank) == ordered


def test_a_standing_is_read_from_a_file():
    read = decoder(Standing)
    found = read([int(TieReason.CACHE), True, False])
    assert found == Standing(TieReason.CACHE, read=True)
    assert found.reason is TieReason.CACHE
    for value in (0, len(TieReason) + 1, "CACHE", True, 1.0):
        with pytest.raises(Damage):
            read([value, True, False])
