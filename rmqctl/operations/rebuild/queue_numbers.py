"""Find the queue offset of a record whose QUEUEOFFSET may be damaged.

No checksum covers QUEUEOFFSET. Therefore a QUEUEOFFSET is compared with the QUEUEOFFSETs of later messages of the
queue. From one message of a queue to the next, QUEUEOFFSET increases by one. A wrong QUEUEOFFSET must not change the
queue offsets of other messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.cq_unit import PLACES_MAX
from rmqctl.format.message import MIN_SIZE
from rmqctl.format.properties import INNER_MULTI_DISPATCH
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels.cq_unit_build import next_of_queue
from rmqctl.kernels.dispatch_scan import MULTI_DISPATCH
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.read.commit_log import message_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.columns import Flags, Int, Numbers, Rows
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.file_scan import ScanItem

FOLLOWING_MAX = 4
LOOK_AHEAD = 8 * 1024 * 1024  # bytes of the log in which later messages are searched
PART = 1024 * 1024  # bytes of the log that are kept or dropped together
NEAR = 1024 * 1024  # bytes of the log in which the next message of a queue is near
FEW_ROWS = 64
_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()
_IN_NO_QUEUE = (int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))


class Following(NamedTuple):
    """A message that follows a given message of a queue.

    `number` is the QUEUEOFFSET of the message. `lost` counts bytes of damage and of rollback records between the two
    messages. The damage may have destroyed other messages of the queue. The fillers of `recover --keep-going` are
    rollback records.
    """

    number: int
    lost: int


class QueueNumbers:
    """Finds the next messages of a queue.

    The search ends at the physical offset `end` (None: the end of the log).
    """

    def __init__(self, log: CommitLog, end: int | None) -> None:
        self._ahead, self._light_ahead = _Ahead(log), _Ahead(log)  # each is used in log order
        self._end = log.queue.end if end is None else end

    def following(self, messages: Rows, row: int, key: QueueKey) -> list[Following]:
        """Return the next messages of a queue after the message in row `row`.

        The result has at most FOLLOWING_MAX messages. `messages` has DISPATCH_COLUMNS. Raises OSError.
        """
        message, rest = messages[row], messages[row + 1 :]
        begin = int(message["physical_offset"]) + int(message["size"])
        limit = min(begin + LOOK_AHEAD, self._end)
        rest = rest[: bisect_left(rest["physical_offset"], limit)]  # searchsorted would copy the column first
        places, rest = _first_of_queue(rest, message["queue"])
        good = np.concatenate(([0], np.cumsum(np.where(may_be_fillers(rest), 0, rest["size"]), dtype=np.int64)))
        found = [
            Following(int(rest[at]["queue_offset"]), int(rest[at]["physical_offset"]) - begin - int(good[at]))
            for at in places
        ]
        behind = int(rest[-1]["physical_offset"]) + int(rest[-1]["size"]) if len(rest) else begin
        is_all_read = len(rest) < len(messages) - row - 1 or behind >= limit
        if len(found) < FOLLOWING_MAX and not is_all_read:
            lost = behind - begin - int(good[-1])
            further = self._ahead.of_queue(key, behind, limit)
            found += [
                Following(after.number, lost + after.lost) for after in islice(further, FOLLOWING_MAX - len(found))
            ]
        return found

    def following_in_light_queue(self, key: QueueKey, physical_offset: int) -> list[Following]:
        """Return the next messages of a light queue. Raises OSError.

        The result has at most FOLLOWING_MAX messages, from `physical_offset` on.
        """
        limit = min(physical_offset + LOOK_AHEAD, self._end)
        return list(islice(self._light_ahead.of_queue(key, physical_offset, limit), FOLLOWING_MAX))

    def goes_on(self, messages: Rows, row: int, key: QueueKey) -> bool:
        """Return whether the queue's next message continues from QUEUEOFFSET.

        If the next NEAR bytes of the log have no message of the queue, the result is True if the log before `row` has
        room for QUEUEOFFSET messages. The result does not depend on where `messages` ends. Raises OSError.
        """
        number, at = int(messages[row]["queue_offset"]), int(messages[row]["physical_offset"])
        limit = min(at + int(messages[row]["size"]) + NEAR, self._end)
        near = messages[: bisect_left(messages["physical_offset"], limit)]
        found = next_of_queue(near, row, len(near))
        if found >= 0:
            return number + 1 == int(near[found]["queue_offset"])
        behind = int(messages[-1]["physical_offset"]) + int(messages[-1]["size"])
        further = self._ahead.of_queue(key, behind, limit) if len(near) == len(messages) and behind < limit else ()
        after = next(iter(further), None)
        return number + 1 == after.number if after is not None else 0 <= number * MIN_SIZE <= at


def _first_of_queue(rows: Rows, queue: Int) -> tuple[Numbers, Rows]:
    """Return the row numbers of a queue's first messages, and the rows read.

    Reading stops as soon as FOLLOWING_MAX messages of the queue are found.
    """
    count = FEW_ROWS
    while True:
        looked_at = rows[:count]
        places = np.flatnonzero((looked_at["queue"] == queue) & _have_unit(looked_at))[:FOLLOWING_MAX]
        if len(places) == FOLLOWING_MAX or count >= len(rows):
            return places, looked_at
        count *= 8


class _Part:
    """A part of the log, with the QUEUEOFFSETs of its messages.

    `messages` has the physical offset and the QUEUEOFFSET of each message, by queue. `lost_before` returns the number
    of lost bytes before a physical offset.
    """

    def __init__(self, begin: int, lost: int) -> None:
        self.begin = self.end = begin
        self.lost_at, self.lost = [begin], [lost]
        self.messages: dict[QueueKey, list[tuple[int, int]]] = {}

    def take(self, item: ScanItem) -> None:
        message = message_of(item)
        self.end = max(self.end, item.end)
        if message is None or message.sys_flag & TRANSACTION_MASK == TransactionType.ROLLBACK:
            self.lost_at.append(self.end)
            self.lost.append(self.lost[-1] + item.size)
        elif message.sys_flag & TRANSACTION_MASK not in _IN_NO_QUEUE:
            key = message.topic, message.queue_id
            self.messages.setdefault(key, []).append((item.physical_offset, message.queue_offset))
            for light in queue_destinations(message)[1:] if _MULTI_DISPATCH in message.properties_bytes else ():
                self.messages.setdefault((light.topic, light.queue_id), []).append(
                    (item.physical_offset, light.queue_offset)
                )

    def lost_before(self, physical_offset: int) -> int:
        return self.lost[bisect_right(self.lost_at, physical_offset) - 1]


class _Ahead:
    """Reads messages of the log ahead of the rebuild.

    Each part of the log is read once for all queues. The result for a queue does not depend on calls for other queues.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._items: Iterator[ScanItem] = iter(())
        self._parts: deque[_Part] = deque()

    def of_queue(self, key: QueueKey, start: int, limit: int) -> Iterator[Following]:
        """Yield a queue's messages in [start, limit) of the log. Raises OSError.

        `start` and `limit` are physical offsets of records.
        """
        self._go_to(start)
        before = self._parts[0].lost_before(start)
        for part in self._until(limit):
            for at, number in part.messages.get(key, ()):
                if start <= at < limit:
                    yield Following(number, part.lost_before(at) - before)

    def _go_to(self, start: int) -> None:
        while self._parts and self._parts[0].end <= start:
            self._parts.popleft()
        if not self._parts or self._parts[0].begin > start:
            self._items = self._log.scan(start=start)
            self._parts = deque((_Part(start, 0),))

    def _until(self, limit: int) -> Iterator[_Part]:
        yield from self._parts
        while self._parts[-1].end < limit:
            part = _Part(self._parts[-1].end, self._parts[-1].lost[-1])
            for item in self._items:
                part.take(item)
                if part.end >= part.begin + PART:
                    break
            if part.end == part.begin:
                return
            self._parts.append(part)
            yield part


def _have_unit(rows: Rows) -> Flags:
    return ~np.isin(rows["sys_flag"] & TRANSACTION_MASK, _IN_NO_QUEUE)


def may_be_fillers(rows: Rows) -> Flags:
    """Return, for each row, whether the record may be a filler.

    The fillers of `recover --keep-going` are rollback records (see `QueueBuilder.put`).
    """
    found: Flags = (rows["sys_flag"] & TRANSACTION_MASK == TransactionType.ROLLBACK) & (
        rows["traits"] & MULTI_DISPATCH == 0
    )
    return found


def first_number(found: int, following: Sequence[Following], in_queue: int | None) -> int:
    """Return the correct queue offset of a queue's first message.

    `found` is the QUEUEOFFSET of the message. `in_queue` is the queue offset of the message in the existing queue
    (None: not in the queue). If `found` and `in_queue` are equal, the result is `found`. If `found` and `in_queue`
    differ, the majority of the following messages decides. A QUEUEOFFSET that seems too low may be right, because the
    next messages of the queue may be lost.
    """
    if in_queue == found:
        return found
    bases = [found, *(after.number - place for place, after in enumerate(following, 1))]
    votes = Counter(base for base in bases if 0 <= base < PLACES_MAX)
    if in_queue is not None:
        votes[in_queue] += 1
    base = max(votes, key=lambda base: (votes[base], base == in_queue, -base), default=0)
    gaps = (after.lost for after, of in zip(following, bases[1:], strict=True) if of == base)
    is_gap = 0 <= found < base and any(lost >= (base - found) * MIN_SIZE for lost in gaps)
    return found if is_gap or votes[found] == votes[base] > 1 else base


def is_misnumbered(expected: int, found: int, following: Sequence[Following], in_queue: int | None) -> bool:
    """Return whether a message has a wrong QUEUEOFFSET and belongs at `expected`.

    `found` is the QUEUEOFFSET of the message. `expected` is the next queue offset of the queue. Later messages of the
    queue show which of the two numbers is right. `found` can be right and differ from `expected` if messages were lost,
    or if the topic was created again. A broker that lost a part of a queue uses some queue offsets a second time.
    """
    votes = Counter(after.number - place for place, after in enumerate(following, 1))
    if votes[found] or votes[expected]:
        return votes[expected] > votes[found]
    if following:
        after = following[0].number
        return expected < after and not expected < found < after
    return in_queue == expected or (0 != found < expected and in_queue != found)


def go_on(found: int, following: Sequence[Following]) -> bool:
    """Return whether most messages in `following` confirm the queue offset `found`."""
    votes = sum(after.number - place == found for place, after in enumerate(following, 1))
    return 2 * votes > len(following)
