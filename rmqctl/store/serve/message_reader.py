"""A reader with the read functions of DefaultMessageStore.

It finds messages by queue offset, key, message id and physical offset, and queue offsets by time.

The ends of the queues and of the log are found in the store's files, or come from the store's writer (`WritingSide`) if
it is open for writing. For an offset after the last known file, the folder is listed again. Records that are not
completely written are not read.

Many threads may call a reader; it serves one at a time.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rmqctl.format.host import parse_msg_id
from rmqctl.store.serve.get_message import (
    BROKER_LIMITS,
    EVERYTHING,
    GetMessageResult,
    GetMessageStatus,
    TransferLimits,
    get_message,
)
from rmqctl.store.serve.logic_queue import LogicQueue
from rmqctl.store.serve.offset_by_time import offset_in_queue_by_time
from rmqctl.store.serve.readable_log import ReadableLog

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from rmqctl.format.cq_unit import CqUnit
    from rmqctl.format.message import Message
    from rmqctl.format.profile import Profile
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore
    from rmqctl.store.serve.subscription import Subscription

MAX_MSGS_NUM_BATCH = 64
TIME_MAX = 2**63 - 1


class QueueEnd(NamedTuple):
    """The end of a consume queue."""

    max_offset: int  # in units
    files_end: int  # byte offset, in the queue, at which the last queue file ends


class WritingSide(Protocol):
    """A store's writer, which knows the ends of the log, the queues and the index."""

    @property
    def max_phy_offset(self) -> int:
        """Return the physical offset after the last completely written record."""

    def queue_end(self, key: QueueKey) -> QueueEnd | None:
        """Return the end of a queue, or None if the queue does not exist."""

    def index_written_out(self) -> AbstractContextManager[Path | None]:
        """Write all index entries; keep the index files unchanged in the `with` block.

        The block gets the path of the current index file, or None if none is open.
        """


class MessageReader:
    """A reader of `store` that returns the same results as a broker of `profile`.

    If the store is open for writing, `writing` is the store's writer. Queue offsets are in units, physical offsets in
    bytes, times in ms since 1970. Methods raise OSError and Unreadable.
    """

    def __init__(self, store: ReadOnlyStore, profile: Profile, writing: WritingSide | None = None) -> None:
        self._store = store
        self._profile = profile
        self._writing = writing or _AsTheFilesAre(store)
        self._lock = threading.Lock()

    def get_message(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        subscription: Subscription = EVERYTHING,
        limits: TransferLimits = BROKER_LIMITS,
    ) -> GetMessageResult:
        """Return messages of a queue from `offset` on; get_message.py has the rules."""
        with self._lock:
            log = self._log()
            queue = self._queue((topic, queue_id), log)
            if queue is None:
                return GetMessageResult(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)
            return get_message(queue, log, self._profile, offset, max_messages, subscription, limits)

    def query_message(self, topic: str, key: str, max_num: int, begin: int = 0, end: int = TIME_MAX) -> list[Message]:
        """Return the last messages that the index finds for a key, in log order.

        They are at most `max_num`, and never more than 64, stored in [begin, end] (ms since 1970; in the index without
        milliseconds). A message that is indexed twice appears twice.

        If two keys have the same hash, the messages of both are returned: the caller must compare the keys, for example
        with `rmqctl.store.read.read_only_store.has_key`.
        """
        with self._lock:
            with self._writing.index_written_out() as filled:
                files = self._store.index.files
                if filled is not None and (not files or files[-1].file.path != filled):
                    self._store.reopen_index()
                offsets = self._store.index.query_offset(topic, key, min(max_num, MAX_MSGS_NUM_BATCH), begin, end)
            log = self._log()
            return [message for offset in sorted(offsets) if (message := log.message(offset)) is not None]

    def look_message_by_offset(self, physical_offset: int) -> Message | None:
        """Return the message at a physical offset, or None if no message begins there."""
        with self._lock:
            return self._log().message(physical_offset)

    def look_message_by_id(self, msg_id: str) -> Message | None:
        """Return the message with an offset message id (offsetMsgId), or None.

        Raises ValueError if the id is not valid.
        """
        _, physical_offset = parse_msg_id(msg_id)
        message = self.look_message_by_offset(physical_offset)
        return message if message is not None and message.msg_id == msg_id.upper() else None

    def get_min_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue, or 0 if the queue does not exist."""
        with self._lock:
            queue = self._queue((topic, queue_id), self._log())
            return 0 if queue is None else queue.min_offset

    def get_max_offset_in_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after a queue's last message; 0 without the queue."""
        with self._lock:
            end = self._writing.queue_end((topic, queue_id))
            return 0 if end is None else end.max_offset

    def get_offset_in_queue_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset for a time; offset_by_time.py has the rules."""
        with self._lock:
            log = self._log()
            queue = self._queue((topic, queue_id), log)
            return 0 if queue is None else offset_in_queue_by_time(queue, log, self._profile, timestamp)

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[CqUnit]:
        """Return at most `count` units of a queue from `offset` on, all of one file.

        Of a queue with an extension, the tagsCodes are read from the extension.
        """
        with self._lock:
            queue = self._queue((topic, queue_id), self._log())
            units = None if queue is None else queue.iterate_from(offset, offset + count)
            return [] if units is None else list(units)

    def close(self) -> None:
        """Close all file descriptors of the store."""
        with self._lock:
            self._store.close()

    def _log(self) -> ReadableLog:
        end = self._writing.max_phy_offset
        if self._store.commit_log.queue.end < end:
            self._store.commit_log.queue.refresh()
        return ReadableLog(self._store.commit_log, end)

    def _queue(self, key: QueueKey, log: ReadableLog) -> LogicQueue | None:
        end = self._writing.queue_end(key)
        if end is None:
            return None
        if key not in self._store.queues or self._store.queues[key].queue.end < end.files_end:
            self._store.reopen_queue(key)
        return LogicQueue(self._store.queues[key], end.max_offset, log, self._profile, self._store.extensions.get(key))


class _AsTheFilesAre:
    """The ends of the log and queues of a read-only store, found from its files."""

    def __init__(self, store: ReadOnlyStore) -> None:
        self._store = store

    @cached_property
    def max_phy_offset(self) -> int:
        return self._store.commit_log.end()[0]

    def queue_end(self, key: QueueKey) -> QueueEnd | None:
        queue = self._store.queues.get(key)
        return None if queue is None else QueueEnd(queue.max_offset, queue.queue.end)

    def index_written_out(self) -> AbstractContextManager[Path | None]:
        return nullcontext()
