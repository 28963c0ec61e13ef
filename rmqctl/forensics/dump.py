"""Records as rows: which ones (filters, ranges, the last N, as they come), and what a row says."""

from __future__ import annotations

import base64
import re
import time
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest
from rmqctl.format import properties, sys_flag
from rmqctl.format.damage import Damage
from rmqctl.format.message import Blank, Message
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.commit_log import Item, ScanSummary

if TYPE_CHECKING:
    from rmqctl.store.read_only_store import ReadOnlyStore

BODY_ENCODINGS = ("none", "utf8", "hex", "base64")
ROW_KEYS = (
    "topic", "queueId", "queueOffset", "physicalOffset", "size", "bodyCrc", "bodyLength", "flag", "sysFlag", "bornTimestamp", "bornTime",
    "bornHost", "storeTimestamp", "storeTime", "storeHost", "reconsumeTimes", "preparedTransactionOffset", "msgId", "tagsCode", "path",
    "properties", "body", "bodyEncoding", "damage", "detail",
)  # fmt: skip
INFLATED_SIZE_MAX = 64 * 1024 * 1024
POLL_SECONDS = 0.2
TAIL_RECORD_SIZE = 4096
TAIL_GROWTH = 8


@dataclass(frozen=True)
class Filter:
    """Which messages: those that meet every condition given. Times in ms, both ends included; offsets in bytes, [from, to)."""

    topics: frozenset[str] = frozenset()
    queue_id: int | None = None
    key: str | None = None
    tag: str | None = None
    since: int | None = None
    until: int | None = None
    from_offset: int | None = None
    to_offset: int | None = None
    transaction: TransactionType | None = None
    body: re.Pattern[bytes] | None = field(default=None, compare=False)

    def matches(self, message: Message) -> bool:
        """Whether a message meets every condition; the cheap ones are asked first."""
        return (
            (self.queue_id is None or message.queue_id == self.queue_id)
            and (self.since is None or message.store_timestamp >= self.since)
            and (self.until is None or message.store_timestamp <= self.until)
            and self.in_range(message.physical_offset)
            and (self.transaction is None or transaction_type(message.sys_flag) == self.transaction)
            and (not self.topics or message.topic in self.topics)
            and self._has_properties(message)
            and (self.body is None or self.body.search(plain_body(message)) is not None)
        )

    def in_range(self, physical_offset: int) -> bool:
        """Whether an offset is in the range asked for."""
        return (self.from_offset is None or physical_offset >= self.from_offset) and (
            self.to_offset is None or physical_offset < self.to_offset
        )

    def _has_properties(self, message: Message) -> bool:
        if self.key is None and self.tag is None:
            return True
        found = message.properties
        if self.tag is not None and found.get(properties.TAGS) != self.tag:
            return False
        return self.key is None or self.key in properties.keys(found) or found.get(properties.UNIQ_KEY) == self.key


def plain_body(message: Message) -> bytes:
    """The body, inflated where it is zlib's and what comes out is below 64 MiB; else as stored."""
    body = bytes(message.body)
    if sys_flag.compression(message.sys_flag) != "zlib":
        return body
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, INFLATED_SIZE_MAX)
    except zlib.error:
        return body
    return plain if inflater.eof else body


def message_row(message: Message, *, path: str, tags_code: int, body: str = "none") -> dict[str, Any]:
    """A record under RocketMQ's names; `body` is the body's encoding (BODY_ENCODINGS). hex and base64 give it as stored."""
    row: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.size,
        "bodyCrc": message.body_crc,
        "bodyLength": len(message.body),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "bornTime": rfc3339(message.born_timestamp),
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeTime": rfc3339(message.store_timestamp),
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "msgId": message.msg_id,
        "tagsCode": tags_code,
        "path": path,
        "properties": message.properties,
    }
    if body != "none":
        row["body"] = _encoded(message, body)
        row["bodyEncoding"] = body
    return row


def _encoded(message: Message, encoding: str) -> str:
    if encoding == "utf8":
        return plain_body(message).decode("utf-8", "replace")
    return message.body.hex() if encoding == "hex" else base64.b64encode(message.body).decode()


def damage_row(damage: Damage, *, path: str, body: str = "none") -> dict[str, Any]:
    """A damaged place as a row: what its record says of itself where the frame is whole, with `damage` and `detail`."""
    place = {"physicalOffset": damage.physical_offset, "size": damage.size, "path": damage.path or path}
    row = message_row(damage.message, path=path, tags_code=0, body=body) if damage.message is not None else place
    return row | {"damage": damage.code, "detail": damage.detail}


class Dump:
    """Rows of a store's log that `wanted` lets through; `findings` and `summary` fill as the rows are taken."""

    def __init__(self, store: ReadOnlyStore, wanted: Filter, *, body: str = "none", damaged: bool = False) -> None:
        self.summary = ScanSummary()
        self.findings: list[Damage] = []
        self._store = store
        self._log = store.commit_log
        self._wanted = wanted
        self._body = body
        self._damaged = damaged

    def rows(self) -> Iterator[dict[str, Any]]:
        """All rows, in the order of the log."""
        for item in self._log.scan(self.summary, start=self._start()):
            if self._wanted.to_offset is not None and item.physical_offset >= self._wanted.to_offset:
                self.summary.stopped = f"--to-offset {self._wanted.to_offset}"
                return
            yield from self._row(item)

    def tail(self, count: int) -> list[dict[str, Any]]:
        """The last `count` rows: read backwards in growing steps, as only forwards a record can be found."""
        first = max(self._log.min_offset, self._start() or 0)
        end, _ = self._log.end()
        span = max(count, 1) * TAIL_RECORD_SIZE
        while True:
            self.findings.clear()
            self.summary = ScanSummary()
            start = max(end - span, first)
            rows = deque((row for item in self._log.scan(self.summary, start=start) for row in self._row(item)), maxlen=count)
            if len(rows) == count or start == first:
                return list(rows)
            span *= TAIL_GROWTH

    def around(self, physical_offset: int, context: int) -> list[dict[str, Any]]:
        """`context` records before the one that holds an offset, that one, and as many behind; damage included."""
        file = self._log.queue.find(physical_offset)
        if file is None:
            hint = f"it begins at {self._log.min_offset}; `rmqctl info` shows where it ends"
            raise BadRequest(f"no file of the commit log holds the offset {physical_offset}", hint=hint)
        before: deque[Item] = deque(maxlen=context + 1)
        scan = self._log.scan(self.summary, start=file.file_from_offset)
        for item in scan:
            before.append(item)
            if item.physical_offset + max(item.size, 1) > physical_offset:
                break
        found = [*before, *islice(scan, context)]
        self.summary.stopped = f"{context} records behind {physical_offset}"
        return [row for item in found if not isinstance(item, Blank) for row in self._any_row(item)]

    def follow(self, position: int | None = None) -> Iterator[dict[str, Any]]:
        """New rows from `position` (default: the offset asked for, or the log's end) on, for ever; never one that is not wholly written.

        A record counts as written when it is valid, its last bytes are there (files are zero before they are written, and a
        record is copied from its front to its end), and another record follows or it stays the same for a whole poll.
        """
        if position is None:
            position = self._log.end()[0] if self._wanted.from_offset is None else self._wanted.from_offset
        unsure: Message | None = None
        while True:
            item = self._log.at(position)
            if isinstance(item, Blank):
                position = item.end
            elif isinstance(item, Message) and _last_byte_written(item) and (item == unsure or self._is_followed(item)):
                position, unsure = item.end, None
                self.summary.count(item)
                yield from self._row(item)
            else:
                unsure = item if isinstance(item, Message) and _last_byte_written(item) else None
                time.sleep(POLL_SECONDS)
                self._log.queue.refresh()

    def _is_followed(self, message: Message) -> bool:
        following = self._log.at(message.end)
        return following is not None and not (isinstance(following, Damage) and following.code == "outside-log")

    def _row(self, item: Item) -> Iterator[dict[str, Any]]:
        if isinstance(item, Damage):
            self.findings.append(item)
            if self._damaged and self._wanted.in_range(item.physical_offset):
                yield from self._any_row(item)
        elif isinstance(item, Message) and self._wanted.matches(item):
            yield from self._any_row(item)

    def _any_row(self, item: Item) -> Iterator[dict[str, Any]]:
        path = self._log.path_of(item.physical_offset)
        if isinstance(item, Damage):
            yield damage_row(item, path=path, body=self._body)
        elif isinstance(item, Message):
            yield message_row(item, path=path, tags_code=self._store.tags_code(item), body=self._body)

    def _start(self) -> int | None:
        """Where to begin: the offset asked for, or the last file whose first message is not younger than `since`."""
        if self._wanted.from_offset is not None:
            return max(self._wanted.from_offset, self._log.min_offset)
        if self._wanted.since is None:
            return None
        start = None
        for file in self._log.queue.files:
            first = self._log.message_at(file.file_from_offset)
            if first is None or first.store_timestamp >= self._wanted.since:
                break
            start = file.file_from_offset
        return start


def _last_byte_written(message: Message) -> bool:
    last = message.properties_bytes or message.topic_bytes
    return not last or last[-1] != 0
