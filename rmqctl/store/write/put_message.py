"""The results of a put: RocketMQ's PutMessageStatus and PutMessageResult.

PutMessageResult and AppendMessageResult are msgspec structs, which are created four times as fast as named tuples.
"""

from __future__ import annotations

from enum import Enum, IntFlag
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rmqctl.format.host import Host, msg_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Bytes, Numbers, Rows
    from rmqctl.store.config.topics import QueueKey


class PutMessageStatus(Enum):
    """RocketMQ's names for the results of a put; of two spellings, that of 5.x."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    IN_SYNC_REPLICAS_NOT_ENOUGH = "IN_SYNC_REPLICAS_NOT_ENOUGH"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    @property
    def is_of_message(self) -> bool:
        """Return whether the message itself is the reason for the failure.

        Any other failure is one of the store, and the next message would fail, too.
        """
        return self in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class AppendMessageResult(msgspec.Struct, frozen=True, gc=False):
    """The place in the log and in the queue where messages were stored.

    Physical offsets and sizes are in bytes.
    """

    topic: str  # that received the messages; of a delayed one SCHEDULE_TOPIC_XXXX
    queue_id: int  # of a delayed message that of its delay level
    takes_offset: bool  # False for prepared and rollback messages: the queue's next offset stays
    wrote_offset: int  # of the first message
    wrote_bytes: int
    physical_offsets: tuple[int, ...]
    store_host: Host
    store_timestamp: int  # ms since 1970
    logics_offset: int  # of the first message, in units
    inner_num: int = 1

    @property
    def msg_num(self) -> int:
        """Return how many messages were stored; an inner batch counts its messages."""
        return len(self.physical_offsets) * self.inner_num

    @property
    def msg_id(self) -> str:
        """Return the offset message id; of a batch those of all messages, with commas."""
        return ",".join(msg_id(self.store_host, offset) for offset in self.physical_offsets)


class PutMessageResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a put."""

    status: PutMessageStatus
    append: AppendMessageResult | None = None  # set if at least one message was stored
    remark: str = ""  # describes a failure

    @property
    def is_ok(self) -> bool:
        """Return whether the message was stored, even if flushed or replicated late."""
        return self.append is not None

    @property
    def is_store_failure(self) -> bool:
        """Return whether the put failed because of the store, not the message.

        Examples: a full disk, a closed store.
        """
        return self.append is None and not self.status.is_of_message


class PutEncodedResult(NamedTuple):
    """The result of a put of encoded records."""

    records: int  # their number
    failure: PutMessageResult | None  # set if the records were not stored
    queues: list[tuple[QueueKey, int, int]]  # new queue offsets [first, behind) of each queue
    wrote_offset: int = 0  # the records are at [wrote_offset, end) of the log
    end: int = 0


class EncodingRules(NamedTuple):
    """The rules for encoded records that a log accepts; sizes are in bytes."""

    ends_properties_with_separator: bool
    body_max: int
    record_max: int
    takes: Callable[[QueueKey], bool]  # does this queue accept encoded records?
    now: Callable[[], int]  # ms since 1970, for messages without a born time


class EncodedLines(NamedTuple):
    """Encoded records that have no place in the log yet.

    A put fills in the offsets and the store time in `records` and `rows`. The encoder's next call overwrites the data.
    """

    records: Bytes  # the bytes of all records (uint8)
    rows: Rows  # describe each record (RECORD_COLUMNS)
    numbers: Numbers  # int32: each record's queue, as an index of `queues`
    queues: list[QueueKey]
    end: int  # position in the input after the last encoded line


class RunningFlags(IntFlag):
    """Flags for the reasons why a store accepts no messages, as in RocketMQ."""

    NONE = 0
    NOT_READABLE = 1
    NOT_WRITEABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16

    @property
    def is_writeable(self) -> bool:
        """Return whether the store accepts messages."""
        return not self & ~RunningFlags.NOT_READABLE
