"""Find the queue offset of a record whose QUEUEOFFSET may be damaged.

No checksum covers QUEUEOFFSET, so later messages of the same queue decide. The numbers of a queue's messages increase
by one. Therefore the QUEUEOFFSET of each message shows at which queue offset the queue begins. If the number of one
record does not fit the records around it, this number is wrong, and must not move the queue.
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
LOOK_AHEAD = 8 * 1024 * 1024  # bytes of the log in which the messages after one are looked for
PART = 1024 * 1024  # bytes of the log that are kept, or dropped, together
FEW_ROWS, NEAR_ROWS = 64, 4096
_MULTI_DISPATCH = INNER_MULTI_DISPATCH.encode()
_IN_NO_QUEUE = (int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))


class Following(NamedTuple):
    """A later message of the same queue.

    `number` is the QUEUEOFFSET of the message. `lost` counts bytes before the message that are damaged, or that belong
    to records without a queue. These bytes may have contained other messages of the queue. For example, the fillers of
    `recover --keep-going` are records without a queue.
    """

    number: int
    lost: int


class QueueNumbers:
    """Finds the later messages in the queue of a message.

    The search ends at the physical offset `end` (None: the end of the log).
    """

    def __init__(self, log: CommitLog, end: int | None) -> None:
        self._ahead, self._light_ahead = _Ahead(log), _Ahead(log)  # each is asked in log order
        self._end = log.queue.end if end is None else end

    def following(self, messages: Rows, row: int, key: QueueKey) -> list[Following]:
        """Return the messages after the message in row `row`, the nearest first.

        `messages` has DISPATCH_COLUMNS. Raises OSError.
        """
        message, rest = messages[row], messages[row + 1 :]
        begin = int(message["physical_offset"]) + int(message["size"])
        limit = min(begin + LOOK_AHEAD, self._end)
        rest = rest[: bisect_left(rest["physical_offset"], limit)]  # searchsorted copies the column first
        places, rest = _first_of_queue(rest, message["queue"])
        good = np.concatenate(([0], np.cumsum(np.where(_may_stand_in(rest), 0, rest["size"]), dtype=np.int64)))
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
        """Return the messages of a light queue, the nearest first. Raises OSError.

        Only messages at or after `physical_offset` are returned.
        """
        limit = min(physical_offset + LOOK_AHEAD, self._end)
        return list(islice(self._light_ahead.of_queue(key, physical_offset, limit), FOLLOWING_MAX))

    def goes_on(self, messages: Rows, row: int) -> bool:
        """Return whether the number of the queue's next message continues from `row`.

        Usually one of the next few rows has the next message of the queue, so only these rows are read. If none of
        these rows is a message of the queue, the result says whether the number of the message in `row` is possible. A
        number is too high if the log before the message is too small for this number of messages.
        """
        number = int(messages[row]["queue_offset"])
        near = next_of_queue(messages, row, NEAR_ROWS)
        if near >= 0:
            return number + 1 == int(messages[near]["queue_offset"])
        return 0 <= number * MIN_SIZE <= int(messages[row]["physical_offset"])


def _first_of_queue(rows: Rows, queue: Int) -> tuple[Numbers, Rows]:
    """Return the first FOLLOWING_MAX messages of a queue, and all rows read.

    If the queue has fewer messages, the result has fewer messages. Reading stops when enough messages are found.
    """
    count = FEW_ROWS
    while True:
        looked_at = rows[:count]
        places = np.flatnonzero((looked_at["queue"] == queue) & _have_unit(looked_at))[:FOLLOWING_MAX]
        if len(places) == FOLLOWING_MAX or count >= len(rows):
            return places, looked_at
        count *= 8


class _Part:
    """A part of the log, with the numbers of its messages.

    For each queue, the part has the physical offsets and the QUEUEOFFSETs of the messages. The part also has the number
    of lost bytes before each physical offset.
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
    """The log after the part that was already read.

    Each part is read only once, even if several queues need the part. Parts are in log order, so the result for one
    queue does not depend on earlier calls for other queues.
    """

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._items: Iterator[ScanItem] = iter(())
        self._parts: deque[_Part] = deque()

    def of_queue(self, key: QueueKey, start: int, limit: int) -> Iterator[Following]:
        """Yield the messages of a queue in [start, limit). Raises OSError.

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


def _may_stand_in(rows: Rows) -> Flags:
    """Return, for each row, whether its record may replace lost records.

    See `QueueBuilder.put`.
    """
    found: Flags = (rows["sys_flag"] & TRANSACTION_MASK == TransactionType.ROLLBACK) & (
        rows["traits"] & MULTI_DISPATCH == 0
    )
    return found


def first_number(found: int, following: Sequence[Following], in_queue: int | None) -> int:
    """Return the queue offset of a queue's first message, whose number is `found`.

    `in_queue` is the queue offset of the message in the existing queue. If `found` and `in_queue` are equal, the result
    is this number. Otherwise the majority of the following messages decides. A number that seems too low may be right,
    because damage in the log may have destroyed messages after this message.
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
    """Return whether a message has a wrong number and belongs at `expected`.

    The number of the message is `found`, and the queue continues at `expected`. A number that differs from `expected`
    can also be right: if messages before this message were lost, if the topic was deleted and created again, or if a
    broker lost a part of the queue and used numbers a second time. In these cases, the following messages continue from
    `found`.
    """
    votes = Counter(after.number - place for place, after in enumerate(following, 1))
    if votes[found] or votes[expected]:
        return votes[expected] > votes[found]
    if following:
        after = following[0].number
        return expected < after and not expected < found < after
    return in_queue == expected or (0 != found < expected and in_queue != found)


def go_on(found: int, following: Sequence[Following]) -> bool:
    """Return whether most of the following messages continue from `found`."""
    votes = sum(after.number - place == found for place, after in enumerate(following, 1))
    return 2 * votes > len(following)


def one_bit_off(key: QueueKey) -> Iterator[QueueKey]:
    """Yield the queues whose topic or queueId differs from `key` in one bit."""
    topic, queue_id = key
    yield from ((topic, queue_id ^ 1 << bit) for bit in range(31))
    raw = topic.encode()
    for at in range(len(raw)):
        for bit in range(8):
            flipped = raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]
            yield flipped.decode("utf-8", "replace"), queue_id
