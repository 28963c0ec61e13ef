"""The rule of places, against its definition, on small queues with every kind of disorder."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqctl.operations.rebuild.places.place import Room, Run, increasing, place
from tests.support.property_settings import PROPERTY

Pair = tuple[int, int]  # a place and a message
MANY = settings(PROPERTY, max_examples=500, suppress_health_check=[HealthCheck.too_slow])


def runs_of(pairs: list[Pair]) -> list[Run]:
    """Return pairs as runs, each as long as it can be."""
    found: list[Run] = []
    for at, message in pairs:
        if found and (at, message) == (found[-1].end, found[-1].message_end):
            found[-1] = found[-1]._replace(length=found[-1].length + 1)
        else:
            found.append(Run(at, message, 1))
    return found


def pairs_of(runs: list[Run]) -> list[Pair]:
    return [(run.place + step, run.message + step) for run in runs for step in range(run.length)]


def is_increasing(pairs: list[Pair]) -> bool:
    return all(one[0] < two[0] and one[1] < two[1] for one, two in pairwise(pairs))


@st.composite
def units_of(draw: st.DrawFn, messages: int = 8) -> list[Pair]:
    """Return units in order of their places: mostly runs, some anywhere."""
    found: list[Pair] = []
    at = draw(st.integers(0, 3))
    for _ in range(draw(st.integers(0, 6))):
        message = draw(st.integers(0, messages - 1))
        for step in range(draw(st.integers(1, 4))):
            if message + step < messages:
                found.append((at, message + step))
                at += 1
        at += draw(st.integers(0, 2))
    return found


@st.composite
def numbers_of(draw: st.DrawFn, messages: int = 8) -> list[int]:
    """Return the QUEUEOFFSET of each message: mostly runs, with damage."""
    found: list[int] = []
    number = draw(st.integers(0, 3))
    while len(found) < messages:
        for _ in range(draw(st.integers(1, messages))):
            found.append(number)
            number += 1
        number = draw(st.sampled_from([number, number + 1, number - 1, 0, 1, 40, -5]))
    return found[:messages]


def numbered(numbers: list[int]) -> list[Run]:
    return runs_of([(number, message) for message, number in enumerate(numbers)])


@given(units_of(messages=7))
@MANY
def test_the_largest_increasing_set_is_found(units: list[Pair]) -> None:
    found = pairs_of(increasing(runs_of(units)))
    assert is_increasing(found)
    assert set(found) <= set(units)
    lengths: list[int] = []  # of the largest set that ends with each unit
    for number, (at, message) in enumerate(units):
        before = [lengths[other] for other in range(number) if units[other][0] < at and units[other][1] < message]
        lengths.append(max(before, default=0) + 1)
    assert len(found) == max(lengths, default=0)


@given(numbers_of(), units_of(), st.lists(st.integers(0, 12), max_size=2), st.integers(0, 3))
@MANY
def test_placing_again_changes_nothing(numbers: list[int], units: list[Pair], damage: list[int], room: int) -> None:
    places = {at for at, _ in units}
    taken = [range(at, at + 1) for at in sorted(set(damage) - places)]
    found = place(
        numbered(numbers),
        runs_of(units),
        taken,
        lambda before, message: Room(50, room * (message - before - 1 + message % 2)),
    )
    pairs = pairs_of(found)
    assert is_increasing(pairs)
    assert found == runs_of(pairs)
    used = {at for at, _ in pairs}
    kept = [one for one in taken if used and min(used) < one.start < max(used) and one.start not in used]
    again = [*pairs]
    for (at, _), (behind, message) in pairwise(pairs):
        again += [(free, message) for free in range(at + 1, behind) if range(free, free + 1) not in kept]
    assert (
        place(
            numbered(numbers),
            runs_of(sorted(again)),
            kept,
            lambda before, message: Room(50, room * (message - before - 1 + message % 2)),
        )
        == found
    )


@given(st.integers(1, 40), st.integers(0, 20), st.data())
@MANY
def test_a_flipped_bit_moves_no_other_message(messages: int, first: int, data: st.DataObject) -> None:
    numbers = list(range(first, first + messages))
    units = [(number, message) for message, number in enumerate(numbers)]
    hit = data.draw(st.integers(0, messages - 1))
    numbers[hit] ^= 1 << data.draw(st.integers(0, 40))
    assert pairs_of(place(numbered(numbers), runs_of(units))) == units
    others = [pair for pair in units if pair[1] != hit]
    without_units = pairs_of(place(numbered(numbers), []))
    assert [
        pair for pair in without_units if pair[1] != hit
    ] == others or messages <= 3  # two of three numbers may agree by chance


def test_what_a_broker_refused_leaves_no_gap() -> None:
    numbers = [
        *range(20),
        *range(21, 32),
        *range(31, 37),
    ]  # it skipped 20, and began at the queue's end after a restart
    served = [Run(0, 0, 37)]
    assert place(numbered(numbers), served) == served
    assert place(numbered(numbers), []) == served


def test_of_two_messages_with_one_number_the_first_has_the_unit() -> None:
    numbers = [*range(20), *range(19, 36)]
    served = [Run(0, 0, 20), Run(20, 21, 16)]
    assert place(numbered(numbers), served) == served
    assert place(numbered(numbers), []) == served


def test_a_queue_begins_anew() -> None:
    numbers = [*range(37), *range(21)]
    assert place(numbered(numbers), []) == [Run(0, 37, 21)]
    assert place(numbered(numbers), [Run(0, 37, 21)]) == [Run(0, 37, 21)]


def test_numbers_move_no_unit_that_is_in_order() -> None:
    older, newer = [*range(20)], [64, *range(1, 17)]  # a bit of the 0 with which the queue began anew changed
    assert place(numbered([*older, *newer]), [Run(0, 20, 17)]) == [Run(0, 20, 17)]
    assert place(numbered([*range(37), 0]), [Run(0, 37, 1)]) == [Run(0, 37, 1)]


def test_units_far_from_the_others_move() -> None:
    def room(before: int, message: int) -> Room:
        return Room(message - before, 0)

    assert place([Run(0, 0, 37)], [Run(0, 0, 20), Run(10**9, 20, 17)], (), room) == [Run(0, 0, 37)]


def test_swapped_units_cost_no_message_its_place() -> None:
    assert place([Run(0, 0, 10)], [Run(0, 0, 5), Run(5, 6, 1), Run(6, 5, 1), Run(7, 7, 3)]) == [Run(0, 0, 10)]


def test_lost_messages_keep_their_places() -> None:
    assert place([Run(0, 0, 5), Run(8, 5, 5)], []) == [Run(0, 0, 5), Run(8, 5, 5)]
    assert place([Run(0, 0, 5), Run(8, 5, 1)], []) == [Run(0, 0, 6)]  # nothing confirms 8
    assert place([Run(0, 0, 5), Run(8, 5, 1)], [], (), lambda _before, _message: Room(3, 3)) == [
        Run(0, 0, 5),
        Run(8, 5, 1),
    ]
