"""The results of a put: RocketMQ's PutMessageStatus and PutMessageResult.

PutMessageResult and AppendMessageResult are msgspec structs, because a struct is created four times as fast as a named
tuple.
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
    """RocketMQ's names for the results of a put.

    If RocketMQ has two spellings of a name, the spelling of 5.x is used.
    """

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

        Any other failure is a failure of the store, and the next message would fail, too.
        """
        return self in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class AppendMessageResult(msgspec.Struct, frozen=True, gc=False):
    """The place in the log and in the queue where messages were stored.

    Physical offsets and sizes are in bytes, `logics_offset` is in units. `wrote_offset` and `logics_offset` are the
    offsets of the first message. `store_timestamp` is in ms since 1970. `topic` and `queue_id` are the topic and the
    queue that received the messages. For a delayed message, `topic` is SCHEDULE_TOPIC_XXXX, and `queue_id` is the queue
    of the delay level. `takes_offset` is False for prepared and rollback messages, because they do not increase the
    queue's next offset.
    """

    topic: str
    queue_id: int
    takes_offset: bool
    wrote_offset: int
    wrote_bytes: int
    physical_offsets: tuple[int, ...]
    store_host: Host
    store_timestamp: int
    logics_offset: int
    inner_num: int = 1

    @property
    def msg_num(self) -> int:
        """Return how many messages were stored.

        The messages of an inner batch are counted one by one.
        """
        return len(self.physical_offsets) * self.inner_num

    @property
    def msg_id(self) -> str:
        """Return the offset message id.

        For a batch, the result has the ids of all messages, joined by commas.
        """
        return ",".join(msg_id(self.store_host, offset) for offset in self.physical_offsets)


class PutMessageResult(msgspec.Struct, frozen=True, gc=False):
    """The result of a put.

    `append` is set if at least one message was stored. `remark` is a text that describes the failure.
    """

    status: PutMessageStatus
    append: AppendMessageResult | None = None
    remark: str = ""

    @property
    def is_ok(self) -> bool:
        """Return whether the message was stored.

        A late flush or a late replication does not change the result.
        """
        return self.append is not None

    @property
    def is_store_failure(self) -> bool:
        """Return whether the put failed because of the store, not the message.

        A failure of the store is, for example, a full disk or a closed store.
        """
        return self.append is None and not self.status.is_of_message


class PutEncodedResult(NamedTuple):
    """The result of a put of encoded records.

    `records` is the number of records. `failure` is set if the records were not stored. If the records were stored,
    `queues` has the new queue offsets [first, behind) of each queue, and [wrote_offset, end) are the physical offsets
    of the records.
    """

    records: int
    failure: PutMessageResult | None
    queues: list[tuple[QueueKey, int, int]]
    wrote_offset: int = 0
    end: int = 0


class EncodingRules(NamedTuple):
    """The rules for encoded records that a log accepts.

    Sizes are in bytes. `takes` returns whether a queue accepts encoded records.

    `now` returns the born time (ms since 1970) for messages without a born time.
    """

    ends_properties_with_separator: bool
    body_max: int
    record_max: int
    takes: Callable[[QueueKey], bool]
    now: Callable[[], int]


class EncodedLines(NamedTuple):
    """Encoded records that have no place in the log yet.

    `records` has the bytes of all records (uint8). `rows` describes each record (RECORD_COLUMNS). `numbers` (int32) has
    the number of each record's queue, which is an index of `queues`. A put fills in the offsets and the store time in
    `records` and `rows`.

    `end` is the position in the input after the last encoded line. The encoder's next call overwrites the data.
    """

    records: Bytes
    rows: Rows
    numbers: Numbers
    queues: list[QueueKey]
    end: int


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
