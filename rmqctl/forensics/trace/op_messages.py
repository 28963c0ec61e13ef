"""The op messages of one store, which name half messages by queue offset.

The first search in a queue looks for the digits of the queue offsets in the bytes of each op message. The second
decodes all op messages, and keeps the queue offsets for later searches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rmqctl.forensics.trace.queue_records import by_queue, record_at
from rmqctl.format.body import op_message
from rmqctl.store.config.topics import TRANS_OP_HALF_TOPIC

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from rmqctl.forensics.trace.log_scan import LogScan
    from rmqctl.forensics.trace.stage import Record


class OpMessages:
    """Finds the op messages in the store of `scan`."""

    def __init__(self, scan: LogScan) -> None:
        self.scan = scan
        self._asked: set[int] = set()
        self._in_queue: dict[int, tuple[int, dict[int, list[int]]]] = {}
        self._in_tail: dict[int, tuple[int, list[Record]]] = {}

    def in_queue(self, queue_id: int, half_offsets: Collection[int], after: int) -> list[Record]:
        """Return the op messages in a queue that may name one of `half_offsets`.

        They are after the physical offset `after`.
        """
        if queue_id not in self._asked:
            self._asked.add(queue_id)
            words = [str(at).encode() for at in half_offsets]
            return list(by_queue(self.scan, (TRANS_OP_HALF_TOPIC, queue_id), after, partial(_has_any, words)))
        places = self._places(queue_id, after)
        found = {place for at in half_offsets for place in places.get(at, ()) if place >= after}
        records = (record_at(self.scan, place) for place in sorted(found))
        return [record for record in records if record is not None]

    def in_tail(self, queue_id: int, after: int) -> list[Record]:
        """Return the op messages that are in the log, but have no unit in the queue yet.

        They are after the physical offset `after`.
        """
        queue = self.scan.store.queue(TRANS_OP_HALF_TOPIC, queue_id)
        last = queue.last() if queue is not None else None
        begin = max(after, 0 if last is None else last.physical_offset + 1)
        start, records = self._in_tail.get(queue_id, (None, []))
        if start is None or begin < start:
            from rmqctl.forensics.message_filter import Filter

            wanted = Filter(topics=frozenset({TRANS_OP_HALF_TOPIC}), queue_id=queue_id, from_offset=begin)
            records = list(self.scan.records(wanted, begin))
            self._in_tail[queue_id] = (begin, records)
        return [record for record in records if record.message.physical_offset >= begin]

    def _places(self, queue_id: int, after: int) -> dict[int, list[int]]:
        start, places = self._in_queue.get(queue_id, (None, {}))
        if start is None or after < start:
            places = _by_half_offset(by_queue(self.scan, (TRANS_OP_HALF_TOPIC, queue_id), after))
            self._in_queue[queue_id] = (after, places)
        return places


def _has_any(words: Sequence[bytes], raw: bytes) -> bool:
    return any(word in raw for word in words)


def _by_half_offset(ops: Iterable[Record]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for record in ops:
        for at in op_message.decode(bytes(record.message.body)).half_offsets:
            found.setdefault(at, []).append(record.message.physical_offset)
    return found
