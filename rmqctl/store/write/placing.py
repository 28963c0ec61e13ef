"""Give records their places in the log and in the queues, and their store time.

CommitLogWriter knows these only under its lock, just before it writes the records. `table` has the next queue offset of
each queue. The first record begins at the physical offset `at`, the last one ends at `limit` or before; there is always
room for the first record or batch. `stored` is the store time in ms since 1970.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
import numpy as np

from rmqctl.format import properties
from rmqctl.format.encode import Encoded
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels import line_encode
from rmqctl.store.config.topics import DEFERRED_TOPICS, QueueKey, is_topic
from rmqctl.store.write.put_message import AppendMessageResult, PutEncodedResult, PutMessageResult, PutMessageStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.store.write.put_message import EncodedLines

Batch = tuple[list[Encoded], int]  # records of one queue that are stored together, and their bytes
Result = TypeVar("Result")
NO_UNIT = (int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))
PUT_OK = PutMessageStatus.PUT_OK  # a look-up in an Enum takes longer than the result itself


class Placed(msgspec.Struct, Generic[Result], frozen=True, gc=False):
    """Records with their places, and what changes when they are written."""

    records: bytes | memoryview
    next_offsets: dict[QueueKey, int]  # of each queue that gets units
    queues: Iterable[QueueKey]
    """Also those of prepared and rollback messages, and the real ones of delayed and half messages."""
    result: Result  # of the put


Place = Callable[[dict[QueueKey, int], int, int, int], Placed[Result]]


def place_run(
    run: list[Batch], table: dict[QueueKey, int], at: int, limit: int, stored: int
) -> Placed[list[PutMessageResult]]:
    """Place batches up to the first that has no room.

    A single message is a batch of one.
    """
    next_offsets: dict[QueueKey, int] = {}
    queues: set[QueueKey] = set()
    records: list[bytes] = []
    results: list[PutMessageResult] = []
    for batch, size in run:
        if at + size > limit:
            break
        topic, _, found, _, host, _, queue_id, _, sys_flag, _, _ = batch[0].message
        key, begin = (topic, queue_id), 0
        if takes_offset := not sys_flag or sys_flag & TRANSACTION_MASK not in NO_UNIT:
            begin = next_offsets[key] if key in next_offsets else table.get(key, 0)
            next_offsets[key] = begin + len(batch)
        queues.add(key)
        if topic in DEFERRED_TOPICS:
            queues.update(_real_queue(found))
        offsets: tuple[int, ...] = (at,)
        if len(batch) == 1:  # most batches
            records.append(batch[0].placed(begin, at, stored))
        else:
            offsets = tuple(accumulate([encoded.size for encoded in batch[:-1]], initial=at))
            numbers = range(begin, begin + len(batch))
            places = zip(batch, numbers, offsets, strict=True)
            records += [encoded.placed(number, offset, stored) for encoded, number, offset in places]
        appended = AppendMessageResult(topic, queue_id, takes_offset, at, size, offsets, host, stored, begin)
        results.append(PutMessageResult(PUT_OK, appended))
        at += size
    return Placed(b"".join(records), next_offsets, queues, results)


def place_lines(
    encoded: EncodedLines, begin: int, table: dict[QueueKey, int], at: int, limit: int, stored: int
) -> Placed[PutEncodedResult]:
    """Place encoded lines from row `begin` on, up to the first without room."""
    rows = encoded.rows[begin:]
    firsts = [table.get(key, 0) for key in encoded.queues]
    nexts = np.array(firsts, np.int64)
    count = line_encode.place(encoded.records, rows, encoded.numbers[begin:], nexts, at, stored, limit)
    start, last = int(rows[0]["position"]), rows[count - 1]
    end = int(last["position"]) + int(last["size"])
    grown = [
        (key, first, behind)
        for key, first, behind in zip(encoded.queues, firsts, nexts.tolist(), strict=True)
        if behind > first
    ]
    next_offsets = {key: behind for key, _, behind in grown}
    result = PutEncodedResult(count, None, grown, at, at + end - start)
    return Placed(encoded.records[start:end].data, next_offsets, next_offsets, result)


def _real_queue(found: dict[str, str]) -> list[QueueKey]:
    key = properties.real_queue(found)
    return [key] if key is not None and is_topic(key[0]) else []
