"""One or a few messages: through index and queues, or by reading the whole log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqctl.errors import BadRequest
from rmqctl.forensics.dump import damage_row, message_row
from rmqctl.format import properties
from rmqctl.format.damage import Damage
from rmqctl.format.host import parse_msg_id
from rmqctl.format.message import Message
from rmqctl.store.commit_log import Item, ScanSummary
from rmqctl.store.read_only_store import has_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.consume_queue import UnitQueue
    from rmqctl.store.read_only_store import ReadOnlyStore


@dataclass(frozen=True)
class Question:
    """What is asked for; `at` in ms since 1970, `offset` in units. Which fields go together, the command line checks."""

    topic: str | None = None
    key: str | None = None
    msg_id: str | None = None
    unique_key: str | None = None
    queue_id: int | None = None
    offset: int | None = None
    at: int | None = None


class Search:
    """Answers one question; `findings` is the damage met on the way, `remarks` what the asker should know."""

    def __init__(self, store: ReadOnlyStore, question: Question, *, body: str = "none") -> None:
        self.findings: list[Damage] = []
        self.remarks: list[str] = []
        self._store = store
        self._question = question
        self._body = body

    def rows(self) -> Iterator[dict[str, Any]]:
        """The messages, in the order of the log, through msgId, index or queue. Raises BadRequest when there is no index or queue."""
        asked = self._question
        if asked.msg_id is not None:
            return self._by_msg_id(asked.msg_id)
        if asked.unique_key is not None:
            return self._by_key(asked.unique_key, [asked.topic] if asked.topic is not None else self._topics(), unique=True)
        if asked.key is not None:
            return self._by_key(asked.key, [asked.topic or ""])
        return self._by_queue()

    def by_scan(self) -> Iterator[dict[str, Any]]:
        """The same, by reading the whole log."""
        summary = ScanSummary()
        nearest: Message | None = None
        for item in self._store.commit_log.scan(summary):
            if isinstance(item, Damage):
                self.findings.append(item)
            elif isinstance(item, Message) and self._matches(item):
                if self._question.at is None:
                    yield self._row(item)
                elif nearest is None:
                    nearest = item
        if nearest is not None:
            yield self._row(nearest)
        self.remarks.append(
            f"scanned {summary.bytes_scanned} bytes: {summary.messages} messages, ok up to {summary.ok_up_to}; {summary.stopped}"
        )

    def _matches(self, message: Message) -> bool:
        asked = self._question
        if asked.msg_id is not None:
            return message.msg_id == asked.msg_id.upper()
        if asked.topic is not None and message.topic != asked.topic:
            return False
        if asked.unique_key is not None:
            return message.properties.get(properties.UNIQ_KEY) == asked.unique_key
        if asked.key is not None:
            return has_key(message, asked.key)
        if message.queue_id != asked.queue_id:
            return False
        return message.queue_offset == asked.offset if asked.at is None else message.store_timestamp >= asked.at

    def _by_msg_id(self, msg_id: str) -> Iterator[dict[str, Any]]:
        _, offset = parse_msg_id(msg_id)
        found = self._store.commit_log.at(offset)
        if isinstance(found, Damage) and found.code == "outside-log":
            low, log = self._store.commit_log.min_offset, self._store.commit_log.size
            self.remarks.append(f"the id's offset {offset} is not in the log, which begins at {low} and has {log} bytes of files")
            return
        message = self._store.commit_log.message_at(offset)
        if message is not None and message.msg_id != msg_id.upper():
            self.remarks.append(f"the record at {offset} has the id {message.msg_id}: another broker's message is asked for")
            return
        yield from self._found(found)

    def _by_key(self, key: str, topics: list[str], *, unique: bool = False) -> Iterator[dict[str, Any]]:
        if not self._store.index.files:
            raise BadRequest("there is no index file", path=str(self._store.index.folder), hint="--scan reads the whole log instead")
        for topic in topics:
            for found in self._store.by_key(topic, key):
                message = found.message if isinstance(found, Damage) else found
                if not unique or (message is not None and message.properties.get(properties.UNIQ_KEY) == key):
                    yield from self._found(found)

    def _by_queue(self) -> Iterator[dict[str, Any]]:
        asked = self._question
        key = (asked.topic or "", asked.queue_id or 0)
        queue = self._store.queues.get(key)
        if queue is None:
            raise BadRequest(f"there is no queue {key[0]}/{key[1]}", hint="`rmqctl queue STORE` lists them; --scan reads the log instead")
        unit = self._store.by_time(queue, asked.at) if asked.at is not None else queue.find(asked.offset or 0)
        if unit is None or unit.is_pre_blank:
            self.remarks.append(self._span(queue))
            return
        yield from self._found(self._store.commit_log.at(unit.physical_offset))

    def _span(self, queue: UnitQueue) -> str:
        low, high = queue.min_offset(self._store.commit_log.min_offset), queue.max_offset
        return f"the queue has the offsets [{low}, {high})"

    def _topics(self) -> list[str]:
        return sorted({topic for topic, _ in self._store.queues})

    def _found(self, item: Item | None) -> Iterator[dict[str, Any]]:
        if isinstance(item, Damage):
            self.findings.append(item)
            if item.message is not None:
                yield damage_row(item, path=self._path(item), body=self._body)
        elif isinstance(item, Message):
            yield self._row(item)

    def _row(self, message: Message) -> dict[str, Any]:
        return message_row(message, path=self._path(message), tags_code=self._store.tags_code(message), body=self._body)

    def _path(self, item: Item) -> str:
        return self._store.commit_log.path_of(item.physical_offset)
