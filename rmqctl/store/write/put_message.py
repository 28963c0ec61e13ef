"""What comes of storing a message: RocketMQ's PutMessageStatus and PutMessageResult.

Structs of msgspec: each message makes two, in a quarter of the time that named tuples take.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from rmqctl.format.host import Host, msg_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.format.columns import Rows
    from rmqctl.store.config.topics import QueueKey


class PutMessageStatus(Enum):
    """RocketMQ's names (5.x where the spelling changed)."""

    PUT_OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_MAPPED_FILE_FAILED = "CREATE_MAPPED_FILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    OS_PAGE_CACHE_BUSY = "OS_PAGE_CACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    @property
    def is_of_message(self) -> bool:
        """Return whether the message cannot be stored, here and by this broker.

        Any other failure is the store's, and the next message's, too.
        """
        return self in (PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED)


class AppendMessageResult(msgspec.Struct, frozen=True, gc=False):
    """Where messages were stored: offsets and sizes in bytes, `logics_offset` in units, of the first one.

    Time in ms since 1970. Topic and queue are those that they came to: a delayed message's are the schedule's.
    `takes_offset`: they are in the queue.
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
        """Return how many messages, those of an inner batch counted one by one."""
        return len(self.physical_offsets) * self.inner_num

    @property
    def msg_id(self) -> str:
        """Return the offset message id; of a batch, all of them, joined by commas."""
        return ",".join(msg_id(self.store_host, offset) for offset in self.physical_offsets)


class PutMessageResult(msgspec.Struct, frozen=True, gc=False):
    """The status.

    `append` where something was stored; `remark` says what is wrong, in words.
    """

    status: PutMessageStatus
    append: AppendMessageResult | None = None
    remark: str = ""

    @property
    def is_ok(self) -> bool:
        """Return whether it was stored, flushed in time or not."""
        return self.append is not None

    @property
    def is_store_failure(self) -> bool:
        """Return whether it was not stored, and the message is not why: a full disk, a store that is closed."""
        return self.append is None and not self.status.is_of_message


class PutEncodedResult(NamedTuple):
    """What came of so many records.

    `failure` where they were not stored, otherwise the queue offsets [first, behind) given in each queue.
    """

    records: int
    failure: PutMessageResult | None
    queues: list[tuple[QueueKey, int, int]]


class EncodingRules(NamedTuple):
    """What a record must be for a log to take it ready-made.

    Sizes in bytes; `takes` says whether a queue takes such records.

    `now` returns the born time of messages that have none, in ms since 1970.
    """

    ends_properties_with_separator: bool
    body_max: int
    record_max: int
    takes: Callable[[QueueKey], bool]
    now: Callable[[], int]


class EncodedLines(NamedTuple):
    """Records without their places.

    `records` (uint8), `rows` (LINE_COLUMNS) about them, and the queues by the numbers in `rows`.

    `end` is the position after the last of the lines. Good until the encoder's next call.
    """

    records: Any
    rows: Rows
    queues: list[QueueKey]
    end: int
