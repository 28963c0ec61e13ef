"""Follow a log while a broker writes it.

Each record is yielded exactly once. If a starting broker cuts the log and overwrites records, the new ones are yielded.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from rmqctl.format.message import Blank, Damage, Message
from rmqctl.store.read.commit_log import ScanSummary

if TYPE_CHECKING:
    from rmqctl.store.read.commit_log import CommitLog
    from rmqctl.store.read.file_scan import ScanItem

POLL_SECONDS = 0.2
REMEMBERED_RECORDS = 1024
REMEMBERED_BYTES = 256 * 1024  # before the start
HEAD_BYTES = 88  # of a record, up to BODYLENGTH: they have the store time, which differs between records


class Passed(NamedTuple):
    """A record before the current position, with its physical offset and first bytes."""

    physical_offset: int
    head: bytes


class LogFollower:
    """Yields the records that a broker appends after physical offset `position`.

    If a broker cuts the log, `on_cut` is called with the physical offset of the cut, which is exact if the log keeps at
    least one of the last 1024 records before the current position.
    """

    def __init__(self, log: CommitLog, position: int, on_cut: Callable[[int], None]) -> None:
        self._log = log
        self._position = position
        self._on_cut = on_cut
        self._passed: deque[Passed] = deque(maxlen=REMEMBERED_RECORDS)
        self._cut: dict[
            int, bytes
        ] = {}  # records that were passed and cut: their bytes stay until they are overwritten
        self._cut_end = 0
        self._remember_before(position)

    def items(self, until: int | None) -> Iterator[Message | Damage]:
        """Yield messages, and each damage that is followed by a whole record.

        This stops at physical offset `until`, or never. A broker writes a message over zeros, from the first byte to
        the last: it is complete only if it is valid and its last byte was written. It is yielded when another record
        follows, or when it stays unchanged for a whole poll.
        """
        unsure: Message | None = None
        while until is None or self._position < until:
            item = self._log.at(self._position)
            if isinstance(item, Blank):
                self._remember(item)
                self._position = item.end
            elif self._is_written(item) and (item == unsure or self._is_followed(item)):
                unsure = None
                self._remember(item)
                self._position = item.end
                yield item
            elif (damage := self._followed_damage(item)) is not None:
                unsure = None
                self._position = damage.end
                yield damage
            else:
                unsure = item if self._is_written(item) else None
                time.sleep(POLL_SECONDS)
                self._log.queue.refresh()
                self._go_back_to_cut()

    def _followed_damage(self, item: ScanItem | None) -> Damage | None:
        """Return a damage that extends up to the next record, or None.

        Without a next record, it may be a record that a broker is writing.
        """
        if not isinstance(item, Damage):
            return None
        if item.code == "outside-log":
            later = (file.file_from_offset for file in self._log.queue.files)
            following = next((base for base in later if base > self._position), None)
        else:
            following = self._log.next_record(item.physical_offset + 1)
            while following is not None and self._is_cut(following):
                following = self._log.next_record(following + 1)
        if following is None:
            return None
        code = "file-gap" if item.code == "outside-log" else item.code
        return item._replace(code=code, size=following - item.physical_offset, message=None)

    def _is_written(self, item: ScanItem | None) -> TypeGuard[Message]:
        return isinstance(item, Message) and last_byte_written(item) and not self._is_cut(item.physical_offset)

    def _is_cut(self, physical_offset: int) -> bool:
        """Return whether the record at an offset was cut and is not overwritten yet."""
        return physical_offset in self._cut and self._cut[physical_offset] == self._head(physical_offset)

    def _is_followed(self, message: Message) -> bool:
        if message.end < self._cut_end:
            return False  # only bytes of cut records follow
        following = self._log.at(message.end)
        return following is not None and not (isinstance(following, Damage) and following.code == "outside-log")

    def _remember_before(self, position: int) -> None:
        # a broker may cut them
        file = self._log.queue.at_or_before(position - 1)
        if file is None or position <= self._log.min_offset:
            return
        start = max(position - REMEMBERED_BYTES, file.file_from_offset)
        for item in self._log.scan(ScanSummary(), start=start, stop=position):
            if isinstance(item, Message | Blank):
                self._remember(item)

    def _remember(self, item: Message | Blank) -> None:
        self._passed.append(Passed(item.physical_offset, self._head(item.physical_offset)))

    def _head(self, physical_offset: int) -> bytes:
        """Return the first bytes of a record, or b"" if they cannot be read."""
        file = self._log.queue.find(physical_offset)
        try:
            return file.read(physical_offset - file.file_from_offset, HEAD_BYTES) if file is not None else b""
        except OSError:
            return b""

    def _go_back_to_cut(self) -> None:
        # to the first known record whose bytes have changed; those in deleted log files do not count
        first = self._log.min_offset
        for number, passed in enumerate(self._passed):
            if passed.physical_offset >= first and self._head(passed.physical_offset) != passed.head:
                self._cut_end = max(self._cut_end, self._position)
                self._position = passed.physical_offset
                self._cut |= dict(islice(self._passed, number, None))
                self._passed = deque(islice(self._passed, number), REMEMBERED_RECORDS)
                self._on_cut(self._position)
                return


def last_byte_written(message: Message) -> bool:
    """Return whether the last byte of a record was written.

    A broker writes a record over zeros, from its first byte to its last.
    """
    last = message.properties_bytes or message.topic_bytes
    return not last or last[-1] != 0


def end_of_records(log: CommitLog) -> int:
    """Return the physical offset where the last whole record of the log ends.

    Damage may come before.
    """
    end, _ = log.end()
    summary = ScanSummary()
    for _ in log.scan(summary, start=end):
        pass
    return max(end, summary.end)
