"""The places of a queue's messages, where units and numbers do not agree.

1. Trusted is the largest set of (unit, message) pairs in which places and messages both increase. What a broker serves
   stays served, at the place where it is served. QUEUEOFFSET in the record is only a hint: a broker that refused a
   message skips a number, and then appends at the queue's end (4.9.7, 'logic queue order maybe wrong').
2. Of the other messages, the largest increasing set that fits between the trusted ones takes its QUEUEOFFSETs.
3. The rest, in log order, takes the first free place between its neighbours; behind the last one, the queue's end;
   before the first one, the places next to it. A message without a free place gets no unit, as from a broker, nor does
   one of a run of numbers that earlier messages have. A lone message that begins the queue with the second one's number
   goes before it.

Not believed are numbers at the end that leap further than lost messages explain, and units so far from the others that
the log has no room for the messages between (a queue file has a wrong name).

The numbers decide alone where units are out of order and that gives more messages a place: between two messages for
which both ways agree, one of the ways is taken whole (two swapped units would otherwise cost one of their messages its
place).

Where no unit is left, the numbers decide as a broker's dispatch would have: 0, 1 in later messages begins the queue
anew. If a message would get no place, but an earlier gap in the numbers is not explained by lost bytes, then the run
between moves down into the gap.

Placing again changes nothing: the messages that got a place are trusted then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

PLACE_END = 2**62  # behind every place


class Run(NamedTuple):
    """Consecutive messages at consecutive places, or with consecutive QUEUEOFFSETs."""

    place: int  # queue offset of the first message
    message: int  # the first message
    length: int  # at least 1

    @property
    def end(self) -> int:
        """The place behind the run."""
        return self.place + self.length

    @property
    def message_end(self) -> int:
        """The message behind the run."""
        return self.message + self.length

    def part(self, start: int, stop: int) -> Run:
        """Return the part in [start, stop); its length may be 0 or less."""
        start, stop = max(start, self.message), min(stop, self.message_end)
        return Run(self.place + start - self.message, start, stop - start)


class Room(NamedTuple):
    """The room for lost messages between two messages of the log."""

    at_most: int  # by the distance of the two
    lost: int  # of these, by the bytes that are lost


_FRONT, _BACK = Run(-1, -1, 1), Run(PLACE_END, PLACE_END, 1)


def place(
    numbers: Sequence[Run],
    units: Sequence[Run],
    taken: Sequence[range] = (),
    room: Callable[[int, int], Room] = lambda _before, _message: Room(PLACE_END, 0),
) -> list[Run]:
    """Return the places of a queue's messages, in order.

    Messages are counted from 0, in log order; r runs take O(r log r), however long they are. A message in no run gets
    no unit. `numbers` has the QUEUEOFFSET of each message, by message; a number that cannot be is negative. `units` are
    the existing units that lead to messages, by place. `taken` are the places of units that lead into damage, in order:
    only a message's number can claim one. `room(before, message)` is how many messages may have stood in the log
    between two messages.
    """
    by_number = _as_dispatched(numbers, taken, room)
    units = _without_repeats(units)
    trusted = _without_far(_trusted(units, numbers), room)
    if not trusted:
        return by_number
    fitting = _without_leap(_joined([*trusted, *_by_number(numbers, trusted)]), trusted[-1].message_end, room)
    return _larger(_with_rest(fitting, numbers, taken), by_number, _others(units, trusted))


def _without_repeats(units: Iterable[Run]) -> list[Run]:
    """Leave out the units before another one of the same message.

    It has the last of such places: the earlier ones stand for lost messages.
    """
    found: list[Run] = []
    for run in units:
        if found and found[-1].message_end - 1 == run.message:
            last = found.pop()
            found += [last._replace(length=last.length - 1)] if last.length > 1 else []
        found.append(run)
    return found


def in_order(units: Iterable[Run]) -> list[Run]:
    """Return the largest set of existing units in order."""
    return increasing(_without_repeats(units))


def _without_far(trusted: list[Run], room: Callable[[int, int], Room]) -> list[Run]:
    # the larger part stays: the whole queue has not so many messages as would stand between, so a queue file has a
    # wrong name
    far = room(trusted[0].message, trusted[-1].message_end - 1).at_most if trusted else 0
    parts: list[list[Run]] = [[]]
    for run in trusted:
        before = parts[-1][-1] if parts[-1] else None
        if before is not None and run.place - before.end > far:
            parts.append([])
        parts[-1].append(run)
    return max(parts, key=_messages_of)


def _others(units: Iterable[Run], trusted: Iterable[Run]) -> list[range]:
    others = _unplaced(map(_turned, units), [*map(_turned, trusted)])
    return [range(run.message, run.message_end) for run, _, _ in others]


def _trusted(units: Sequence[Run], numbers: Sequence[Run]) -> list[Run]:
    # of equally large sets, take the one with the places that the numbers say
    agreed = increasing(_in_both(units, numbers))
    others = increasing(map(_turned, _fitting(map(_turned, units), [*map(_turned, agreed)])))
    return _larger(_joined([*agreed, *others]), increasing(units), [range(PLACE_END)])


def increasing(runs: Iterable[Run]) -> list[Run]:
    """Return the largest set in which places and messages both increase.

    It consists of parts of `runs`, whose places ascend; no two runs share one. Of equally large sets, the result is the
    one in which a message has its last place.
    """
    # Patience sorting, with whole runs. Each tail (message, message end, run) says at which messages the largest sets
    # end, each larger by one than the one before. A set that takes a part of a run takes it from the first message on,
    # because the largest set grows by at most one from message to message.
    known: list[Run] = []
    before: list[tuple[int, int] | None] = []  # for each run: the run, and its message end, after which it goes on
    tails: list[tuple[int, int, int]] = []
    for number, run in enumerate(runs):
        at = bisect_left(tails, (run.message,))
        if at and tails[at - 1][1] > run.message:  # the run begins within a tail
            start, end, owner = tails[at - 1]
            tails[at - 1 : at] = [(start, run.message, owner), (run.message, end, owner)]
        known.append(run)
        before.append((tails[at - 1][2], tails[at - 1][1]) if at else None)
        left, behind = run.length, at
        while left and behind < len(tails):  # each message of the run takes the place of the next tail
            start, end, owner = tails[behind]
            if end - start > left:
                tails[behind] = (start + left, end, owner)
                break
            left -= end - start
            behind += 1
        tails[at:behind] = [(run.message, run.message_end, number)]
    chosen: list[Run] = []
    step = (tails[-1][2], tails[-1][1]) if tails else None
    while step is not None:
        number, message_end = step
        chosen.append(known[number]._replace(length=message_end - known[number].message))
        step = before[number]
    return chosen[::-1]


def _by_number(numbers: Sequence[Run], placed: Sequence[Run]) -> list[Run]:
    # of two messages with one number, the first keeps it, as from a broker
    fitting = reversed([*_fitting(numbers, placed)])
    return [_mirrored(run) for run in reversed(increasing(map(_mirrored, fitting)))]


def _fitting(runs: Iterable[Run], placed: Sequence[Run]) -> Iterator[Run]:
    """Yield the parts of `runs` whose places lie between their neighbours'."""
    for run, before, after in _unplaced(runs, placed):
        start, stop = max(run.place, before.end), min(run.end, after.place)
        if start < stop:
            yield Run(start, run.message + start - run.place, stop - start)


def _turned(run: Run) -> Run:
    return Run(run.message, run.place, run.length)


def _mirrored(run: Run) -> Run:
    """Return a run with message for place, both counted from the end."""
    return Run(-run.message_end, -run.end, run.length)


def _as_dispatched(numbers: Sequence[Run], taken: Sequence[range], room: Callable[[int, int], Room]) -> list[Run]:
    anew = [at for at, run in enumerate(numbers) if run.place == 0 and run.length > 1]
    counting = numbers[anew[-1] :] if anew else numbers
    if len(counting) > 1 and counting[0].length == 1 and counting[0].place == counting[1].place > 0:
        counting = counting[1:]  # the queue begins with two of one number: there is a place before for the first
    placed = _joined(_by_number(counting, ()))
    placed = _without_leap(placed, placed[0].message_end if placed else 0, room)
    return _with_rest(_closed(placed, numbers, taken, room), numbers, taken)


def _without_leap(placed: list[Run], known_end: int, room: Callable[[int, int], Room]) -> list[Run]:
    """Leave out the last messages whose numbers leap.

    The numbers cannot be, or they alone say that other messages are lost. Messages before `known_end` stay.
    """
    end = len(placed)
    while end > 1 and placed[end - 1].message >= known_end:
        before, run = placed[end - 2 : end]
        may_lie_between = room(before.message_end - 1, run.message)
        if run.place - before.end <= (may_lie_between.lost if run.length == 1 else may_lie_between.at_most):
            break
        end -= 1
    return placed[:end]


def _closed(
    placed: list[Run], numbers: Sequence[Run], taken: Sequence[range], room: Callable[[int, int], Room]
) -> list[Run]:
    """Close gaps that later messages need.

    Lost messages do not explain these gaps, and a later message would get no place.
    """
    waiting = Counter[Run]()  # messages without a place, by the run behind them
    for run, _, after in _unplaced(numbers, placed):
        waiting[after] += run.length
    moves = [0] * (len(placed) + 1)  # by how much a run moves more than the one before
    gaps: list[tuple[int, int]] = []  # the run behind a gap, and the gap's free places
    for at, (before, run) in enumerate(pairwise(placed), 1):
        free = sum(map(len, _free(before.end, run.place, taken)))
        if free < run.place - before.end:  # units that stay
            gaps = []
        needed = waiting[run] - free
        while needed > 0 and gaps:
            behind, width = gaps.pop()
            by = min(needed, width)
            moves[behind] += by
            moves[at] -= by
            needed -= by
            if by < width:
                gaps.append((behind, width - by))
        if -needed > room(before.message_end - 1, run.message).lost:
            gaps.append((at, -needed))
    if not any(moves):
        return placed
    moved = [run._replace(place=run.place - by) for run, by in zip(placed, accumulate(moves), strict=False)]
    between = [run.part(moved[0].message, moved[-1].message_end) for run in numbers]
    return _joined([*moved, *_by_number([run for run in between if run.length > 0], moved)])


def _with_rest(placed: list[Run], numbers: Sequence[Run], taken: Sequence[range]) -> list[Run]:
    """Add the other messages at the free places between.

    Messages with successive numbers that others have, too, get no place, as from a broker: no damage makes these.
    """
    lone = {run.message for run in numbers if run.length == 1}
    slices: dict[tuple[Run, Run], list[range]] = {}
    for run, before, after in _unplaced(numbers, placed):
        if run.message in lone or not 0 <= run.place < before.end:
            slices.setdefault((before, after), []).append(range(run.message, run.message_end))
    rest: list[Run] = []
    for (before, after), messages in slices.items():
        at_front = before is _FRONT and after is not _BACK  # then next to the first one that has a place
        free = [*_free(before.end, after.place, () if at_front else taken)]
        spare = sum(map(len, free)) - sum(map(len, messages)) if at_front else 0
        rest += _paired(_without_first(free, spare), _without_first(messages, -spare))
    return _joined([*placed, *rest])


def _paired(places: list[range], messages: list[range]) -> Iterator[Run]:
    at = 0
    for some in messages:
        left = some
        while left and at < len(places):
            length = min(len(left), len(places[at]))
            yield Run(places[at].start, left.start, length)
            left, places[at] = left[length:], places[at][length:]
            at += not places[at]


def _without_first(ranges: list[range], count: int) -> list[range]:
    found = []
    for each in ranges:
        found.append(each[max(count, 0) :])
        count -= len(each)
    return [each for each in found if each]


def _larger(first: list[Run], second: list[Run], only: Sequence[range]) -> list[Run]:
    """Return `first`, or where it has more messages, `second`.

    Between places that they share, one of the two is taken whole; `second` only where one of the places `only`, which
    are in order, lies between.
    """
    chosen: list[Run] = []
    for before, after in pairwise((_FRONT, *_in_both(first, second), _BACK)):
        between = (before.message_end, after.message)
        found = _parts(first, *between)
        at = bisect_right(only, before.end, key=lambda places: places.stop)
        if at < len(only) and only[at].start < after.place:
            found = max(found, _parts(second, *between), key=_messages_of)
        chosen += (*found, after)
    return _joined(chosen[:-1])


def _messages_of(runs: Sequence[Run]) -> int:
    return sum(run.length for run in runs)


def _in_both(first: Sequence[Run], second: Sequence[Run]) -> Iterator[Run]:
    for run in first:
        for other in _parts(second, run.message, run.message_end):
            if other.place - other.message == run.place - run.message:
                yield other


def _parts(runs: Sequence[Run], start: int, stop: int) -> list[Run]:
    at = bisect_right(runs, start, key=lambda run: run.message_end)
    behind = bisect_left(runs, stop, key=lambda run: run.message)
    return [run.part(start, stop) for run in runs[at:behind]]


def _unplaced(numbers: Iterable[Run], placed: Sequence[Run]) -> Iterator[tuple[Run, Run, Run]]:
    behind = 0
    for run in numbers:
        start = run.message
        while start < run.message_end:
            while behind < len(placed) and placed[behind].message_end <= start:
                behind += 1
            before = placed[behind - 1] if behind else _FRONT
            after = placed[behind] if behind < len(placed) else _BACK
            if start < after.message:
                yield run.part(start, after.message), before, after
            start = after.message_end if after.message <= start else after.message


def _free(start: int, stop: int, taken: Sequence[range]) -> Iterator[range]:
    for at in range(bisect_right(taken, start, key=lambda places: places.stop), len(taken)):
        places = taken[at]
        if places.start >= stop:
            break
        if start < places.start:
            yield range(start, places.start)
        start = places.stop
    if start < stop:
        yield range(start, stop)


def _joined(runs: list[Run]) -> list[Run]:
    found: list[Run] = []
    for run in sorted(runs, key=lambda run: run.message):
        if found and (run.place, run.message) == (found[-1].end, found[-1].message_end):
            found[-1] = found[-1]._replace(length=found[-1].length + run.length)
        else:
            found.append(run)
    return found
