"""The dispatch requests of many messages, as columns of numpy arrays."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from rmqctl.format import properties
from rmqctl.format.body.client_check import has_bad_compression, has_bad_port
from rmqctl.format.index_entry import key_hash, tag_key_hash, unique_key_hash
from rmqctl.format.message import PLACEHOLDER_SIGN, Message, tags_code
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.kernels import dispatch_scan
from rmqctl.kernels.dispatch_scan import (
    DELAYED,
    DISPATCH_COLUMNS,
    HAS_TAG,
    HAS_UNIQUE,
    IS_PLACEHOLDER,
    MULTI_DISPATCH,
    NO_PROPERTIES,
    ODD_DELAY,
    UNUSUAL,
    USUAL_DIGITS,
    WRONG_COMPRESSION,
    WRONG_PORT,
    DispatchTable,
)
from rmqctl.kernels.warm_up import runs_plain
from rmqctl.store.read.commit_log import ScanSummary
from rmqctl.store.read.file_scan import RecordRun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from rmqctl.format.columns import Numbers, Rows
    from rmqctl.format.message import Blank, Damage
    from rmqctl.kernels.dispatch_scan import Queue
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.commit_log import CommitLog

Item = TypeVar("Item")  # what a scan yields besides messages


class DispatchColumns(NamedTuple):
    """The dispatch requests of several messages, as numpy arrays."""

    messages: Rows  # DISPATCH_COLUMNS in log order
    hashes: Numbers  # int32: the key hashes of all messages


def joined(parts: Sequence[DispatchColumns]) -> DispatchColumns:
    """Return several dispatch columns as one, in the same order."""
    if len(parts) == 1:
        return parts[0]
    messages = np.concatenate([part.messages for part in parts])
    starts = np.cumsum([0, *(len(part.hashes) for part in parts[:-1])])
    messages["hashes_start"] += np.repeat(starts, [len(part.messages) for part in parts]).astype(np.int32)
    return DispatchColumns(messages, np.concatenate([part.hashes for part in parts]))


class NotPassed:
    """A filter that drops messages that the index already has.

    A broker does not index a message if the previous message with keys has a higher physical offset
    (IndexService.buildIndex), as happens if log files overlap.
    """

    def __init__(self) -> None:
        self._end_phy_offset = 0

    def take(self, described: DispatchColumns) -> DispatchColumns:
        """Return `described` without the messages that the index already has.

        After a message with keys at physical offset P, all later calls leave out messages before P.
        """
        messages = described.messages[int(described.messages["physical_offset"].searchsorted(self._end_phy_offset)) :]
        with_keys = np.flatnonzero(messages["hashes_count"])
        if len(with_keys):
            self._end_phy_offset = int(messages["physical_offset"][with_keys[-1]])
        return described._replace(messages=messages)


class DispatchRequestBuilder:
    """Makes dispatch columns from scanned columns; any thread may call the methods.

    `queues` is a list of (topic bytes, queueId), `keys` the same as (topic, queueId); a queue's number is its position
    in both. Keys are hashed `with_keys`, TAGS `with_keys` and `with_tags`: brokers index them since 5.4.0.
    """

    def __init__(self, *, with_keys: bool, with_tags: bool = False) -> None:
        self.queues: list[tuple[bytes, int]] = []
        self.keys: list[QueueKey] = []
        self._topics: dict[bytes, tuple[bytes, str]] = {}  # each topic once: a store may have 200,000 queues
        self.with_keys = with_keys
        self.with_tags = with_tags and with_keys
        self._numbers: dict[tuple[bytes, int], int] = {}
        self._lock = threading.Lock()
        self._local = threading.local()

    def leave_keys_out(self) -> None:
        """Stop hashing keys and TAGS, because the caller does not need the hashes."""
        self.with_keys = self.with_tags = False

    def scan(
        self, log: CommitLog, summary: ScanSummary | None = None, **how: Any
    ) -> Iterator[Blank | Damage | RecordRun]:
        """Scan the log as `CommitLog.scan_columns` does, which explains `how`.

        The `result` of each record run is its DispatchColumns. Raises OSError.
        """
        return self.runs(log.scan_columns(summary or ScanSummary(), self.take, **how))

    def runs(self, items: Iterable[Item | Message]) -> Iterator[Item | RecordRun]:
        """Yield the items of a scan, with each single message as a record run.

        A scan yields a message on its own if it is long, or of DLedger.
        """
        for item in items:
            if isinstance(item, Message):
                yield RecordRun(item.physical_offset, item.size, 1, self.of(item))
            else:
                yield item

    def take(self, columns: Columns) -> DispatchColumns:
        """Return the dispatch columns for the messages of a record run."""
        rows = columns.rows
        if runs_plain(dispatch_scan):
            return self._of_all(columns.messages(rows))
        messages = np.empty(len(rows), DISPATCH_COLUMNS)
        room = (int(rows["properties_length"].sum()) // 2 + len(rows)) if self.with_keys else 0
        hashes = self._room_for_hashes(room)
        table = self._table()
        reached, used = 0, 0
        while reached < len(rows):
            reached, used = dispatch_scan.describe(
                columns.buffer,
                columns.physical_offset,
                rows,
                reached,
                table,
                messages,
                hashes,
                used,
                with_keys=self.with_keys,
                with_tags=self.with_tags,
            )
            if reached < len(rows):
                table.add_missing(columns.buffer, rows, reached, self._numbers_of)
        described = DispatchColumns(messages, hashes[:used].copy())
        for row in np.flatnonzero(messages["traits"] & UNUSUAL).tolist():
            described = self._replaced(described, row, columns.message(row))
        return described

    def of(self, message: Message) -> DispatchColumns:
        """Return the dispatch columns for one message."""
        return self._of_all([message])

    def _of_all(self, messages: Iterable[Message]) -> DispatchColumns:
        """Compute the dispatch columns of messages in Python, not in the kernel."""
        rows: list[tuple[int, ...]] = []
        hashes: list[int] = []
        for message in messages:
            own = self._hashes(message)
            rows.append(
                (
                    message.physical_offset, message.queue_offset, tags_code(message.properties),
                    message.store_timestamp, message.size, self.number(message.topic_bytes, message.queue_id),
                    message.sys_flag, len(hashes), len(own), _traits(message, own, with_tags=self.with_tags),
                )
            )  # fmt: skip
            hashes += own
        return DispatchColumns(np.array(rows, DISPATCH_COLUMNS), np.array(hashes, np.int32))

    def number(self, topic: bytes, queue_id: int) -> int:
        """Return the number of a queue, its position in `queues`; a new one is added."""
        return self._numbers_of([(topic, queue_id)])[0]

    def _numbers_of(self, queues: list[Queue]) -> list[int]:
        with self._lock:
            return [self._numbers[queue] if queue in self._numbers else self._add_queue(*queue) for queue in queues]

    def _add_queue(self, topic: bytes, queue_id: int) -> int:
        raw, name = self._topics.setdefault(topic, (topic, topic.decode("utf-8", "replace")))
        key = (raw, queue_id)
        number = self._numbers[key] = len(self.queues)
        self.queues.append(key)
        self.keys.append((name, queue_id))
        return number

    def _table(self) -> DispatchTable:
        if not hasattr(self._local, "table"):
            self._local.table = DispatchTable()
        table: DispatchTable = self._local.table
        return table

    def _room_for_hashes(self, room: int) -> Numbers:
        """Return an array with room for at least `room` hashes.

        Each thread reuses one array: the caller must copy the hashes before the thread's next call.
        """
        if len(getattr(self._local, "hashes", ())) < room:
            self._local.hashes = np.empty(room, np.int32)
        return self._local.hashes if room else np.empty(0, np.int32)

    def _hashes(self, message: Message) -> list[int]:
        """Return the key hashes of a message, in the same order as the kernel.

        They are those of UNIQ_KEY, of the words in KEYS, and of TAGS. A rollback record has none.
        """
        if not self.with_keys or transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
            return []
        unique = unique_key_hash(message)
        words = [key_hash(message.topic, word) for word in properties.keys(message.properties)]
        tags = message.properties.get(properties.TAGS) if self.with_tags else None
        return [*([] if unique is None else [unique]), *words, *([tag_key_hash(message.topic, tags)] if tags else [])]

    def _replaced(self, described: DispatchColumns, row: int, message: Message) -> DispatchColumns:
        """Replace one row by the values of `message`, and append its hashes."""
        one = self.of(message)
        start = len(described.hashes)
        described.messages[row] = one.messages[0]
        described.messages[row]["hashes_start"] = start
        return DispatchColumns(described.messages, np.concatenate((described.hashes, one.hashes)))


def _traits(message: Message, hashes: list[int], *, with_tags: bool) -> int:
    found = message.properties
    delay = found.get(properties.DELAY)
    traits = 0 if delay is None else DELAYED
    if delay and not (delay.isascii() and delay.isdecimal() and len(delay) <= USUAL_DIGITS):
        traits |= ODD_DELAY
    traits |= 0 if message.properties_bytes else NO_PROPERTIES
    traits |= MULTI_DISPATCH if properties.INNER_MULTI_DISPATCH in found else 0
    traits |= HAS_UNIQUE if hashes and unique_key_hash(message) is not None else 0
    traits |= HAS_TAG if hashes and with_tags and found.get(properties.TAGS) else 0
    if transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
        return traits
    traits |= IS_PLACEHOLDER if message.prepared_transaction_offset == PLACEHOLDER_SIGN else 0
    traits |= WRONG_PORT if has_bad_port(message) else 0
    return traits | (WRONG_COMPRESSION if has_bad_compression(message) else 0)
