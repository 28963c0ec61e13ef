"""Dispatch requests of many messages at once: what queues and index need of them, as columns."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.format import dispatch_scan, properties
from rmqctl.format.dispatch_scan import DELAYED, DISPATCH_COLUMNS, HAS_UNIQUE, MULTI_DISPATCH, STANDS_IN, UNUSUAL, DispatchTable
from rmqctl.format.index_entry import key_hash
from rmqctl.format.message import MARK, tags_code
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.store.destinations import unique_key_hash

if TYPE_CHECKING:
    from rmqctl.format.message import Message
    from rmqctl.logfile.column_reader import Columns


class DispatchColumns(NamedTuple):
    """`messages` is a numpy array of DISPATCH_COLUMNS in log order, `hashes` (int32) has the keyHashes of all of them."""

    messages: Any
    hashes: Any


class Describer:
    """Makes dispatch columns of scanned columns, in any thread; `queues` are the (topic bytes, queueId) by their numbers.

    Only `with_keys` the keys are hashed.
    """

    def __init__(self, *, with_keys: bool) -> None:
        self.queues: list[tuple[bytes, int]] = []
        self.with_keys = with_keys
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    def take(self, columns: Columns) -> DispatchColumns:
        """The dispatch columns of a stretch."""
        rows = columns.rows
        messages = np.empty(len(rows), DISPATCH_COLUMNS)
        room = (int(rows["properties_length"].sum()) // 2 + len(rows)) if self.with_keys else 0
        hashes = self._room_for_hashes(room)
        table = self._table()
        reached, used = 0, 0
        while reached < len(rows):
            reached, used = dispatch_scan.describe(
                columns.buffer, columns.physical_offset, rows, reached, table, messages, hashes, used, with_keys=self.with_keys
            )
            if reached < len(rows):
                self._add_queue(table, columns.message(reached))
        described = DispatchColumns(messages, hashes[:used].copy())
        for row in np.flatnonzero(messages["marks"] & UNUSUAL).tolist():
            described = self._replaced(described, row, columns.message(row))
        return described

    def of(self, message: Message) -> DispatchColumns:
        """The dispatch columns of one message."""
        hashes = self._hashes(message)
        row = (
            message.physical_offset, message.queue_offset, tags_code(message.properties), message.store_timestamp, message.size,
            self.number(message.topic_bytes, message.queue_id), message.sys_flag, 0, len(hashes), _marks(message, hashes),
        )  # fmt: skip
        return DispatchColumns(np.array([row], DISPATCH_COLUMNS), np.array(hashes, np.int32))

    def number(self, topic: bytes, queue_id: int) -> int:
        """The number of a queue; a new one for a new queue."""
        key = (topic, queue_id)
        with self._lock:
            if key not in self._numbers:
                self._numbers[key] = len(self.queues)
                self.queues.append(key)
            return self._numbers[key]

    def _table(self) -> DispatchTable:
        if not hasattr(self._local, "table"):
            self._local.table = DispatchTable()
        table: DispatchTable = self._local.table
        return table

    def _room_for_hashes(self, room: int) -> Any:
        """An array of this thread's, for one call at a time."""
        if len(getattr(self._local, "hashes", ())) < room:
            self._local.hashes = np.empty(room, np.int32)
        return self._local.hashes if room else np.empty(0, np.int32)

    def _add_queue(self, table: DispatchTable, message: Message) -> None:
        table.add(message.topic_bytes, message.queue_id, self.number(message.topic_bytes, message.queue_id))

    def _hashes(self, message: Message) -> list[int]:
        """UNIQ_KEY's first, then each word's in order, as the kernel has them."""
        if not self.with_keys or transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
            return []
        unique = unique_key_hash(message)
        words = [key_hash(message.topic, word) for word in properties.keys(message.properties)]
        return words if unique is None else [unique, *words]

    def _replaced(self, described: DispatchColumns, row: int, message: Message) -> DispatchColumns:
        """The same with one row by the one-record decoder."""
        one = self.of(message)
        start = len(described.hashes)
        described.messages[row] = one.messages[0]
        described.messages[row]["hashes_start"] = start
        return DispatchColumns(described.messages, np.concatenate((described.hashes, one.hashes)))


def _marks(message: Message, hashes: list[int]) -> int:
    found = message.properties
    delayed = DELAYED if properties.DELAY in found else 0
    multi = MULTI_DISPATCH if properties.INNER_MULTI_DISPATCH in found else 0
    unique = HAS_UNIQUE if hashes and unique_key_hash(message) is not None else 0
    is_mark = message.prepared_transaction_offset == MARK and transaction_type(message.sys_flag) is not TransactionType.ROLLBACK
    return delayed | multi | unique | (STANDS_IN if is_mark else 0)
