"""Copy selected messages into a small new store, which real brokers serve.

The messages are read twice: first their number, sizes and queues, which say how long the new files must be, then their
bytes. A record keeps all its fields but its two offsets, what is redacted, and the checksums that follow.

With kept queue offsets, the log begins at its second file, so that pre-blank units, which lead to 0, lead before it: a
broker begins such a queue at its first message. Between two messages of a queue, the places of messages that were not
selected get gap units. They lead into the first log file with a size that no record has. A broker finds no message
there, and goes on at the next log file (CommitLog.rollNextFile), so the first file has nothing but a blank, and no
message is passed over. They do not lead to the start of the log: 5.x takes such a unit for the first of its queue
(ConsumeQueue.correctMinOffset). Real brokers of 4.9.7, 5.3.3 and 5.5.0 serve each message once so, at its offset.
"""

from __future__ import annotations

import secrets
import struct
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rmqctl.errors import ChangeFailed
from rmqctl.forensics.dump import Dump
from rmqctl.format import crc, properties
from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CQ_UNIT, DELAY_UNIT_MS, GAP_POSITION
from rmqctl.format.encode import ends_in_property_crc, message_bytes
from rmqctl.format.message import BLANK_SIZE, MAGIC_BLANK, Damage
from rmqctl.logfile.system.storage import Kind, tree_of
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.extract.config import broker_conf_text, trimmed_configs, trimmed_topics
from rmqctl.operations.extract.places import Places
from rmqctl.operations.extract.redaction import Redaction
from rmqctl.store.config import store_path
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.config_file import TOPICS_CONFIG, batch_topics
from rmqctl.store.config.file_sizes import Geometry
from rmqctl.store.config.topics import SCHEDULE_TOPIC, is_topic
from rmqctl.store.dispatch.dispatch_rules import queue_destinations
from rmqctl.store.dispatch.light_queues import is_light_name
from rmqctl.store.engine.message_store import MessageStore
from rmqctl.store.engine.new_store import named_when_complete, unfinished
from rmqctl.store.ha.received_log import ReceivedLog
from rmqctl.store.read.version_guess import guess_profile
from rmqctl.store.write.commit_log_writer import put_settings
from rmqctl.store.write.config_writer import write_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

LOG_FILE_MAX = 64 * 1024 * 1024  # bytes; more only for a larger record
UNITS_MAX = 20_000  # in a queue file
INDEX_ENTRIES_MAX = 1_000_000  # in an index file
SPARE_ENTRIES, SPARE_UNITS = 64, 64  # for messages that a broker adds
PAGE = 4096
LEVELS_MAX, DELAY_MAX_MS = 100, 10**11  # of messageDelayLevel
WRITTEN_AT_ONCE = 4 * 1024 * 1024
_BLANK = struct.Struct(">iI")


@dataclass
class Selected:
    """What the first pass over the messages finds; sizes in bytes."""

    messages: int = 0
    size: int = 0
    largest: int = 0
    keys: int = 0  # entries of the index
    topics: Counter[str] = field(default_factory=Counter)
    impossible: int = 0  # messages that no broker serves: no topic or queue can have their name
    queues: set[QueueKey] = field(default_factory=set)  # also those of messages without a unit


class Extraction:
    """The messages of `source` that `wanted` selects, as a new store.

    `redact` is what to redact (see Redaction). `on_damage` is called with each damage in the selected range.
    """

    def __init__(
        self,
        source: ReadOnlyStore,
        wanted: Filter,
        redact: Sequence[str],
        *,
        keep_offsets: bool,
        threads: int,
        on_damage: Callable[[Damage], None],
    ) -> None:
        self.redaction = Redaction(redact, secrets.token_bytes(32))
        self.selected = Selected()
        self.dump = Dump(source, wanted, on_damage=on_damage, threads=threads)
        self._source = source
        self._wanted = wanted
        self._threads = threads
        self._keep = keep_offsets
        self._batch_topics = batch_topics(source.config(TOPICS_CONFIG))
        self._profile = guess_profile(source)
        self._delays_ms = [*source.conf.delays_ms]
        self._seen_levels: set[int] = set()

    def select(self) -> Selected:
        """Read the messages for the first time. Raises BadRequest."""
        found, places = self.selected, Places(self._batch_topics, keep=self._keep)
        for message in self._messages(self.dump):
            if message.topic == SCHEDULE_TOPIC:
                self._see_delay(message)
            placed = places.of(message)
            names = placed.properties
            found.messages += 1
            found.size += placed.size
            found.largest = max(found.largest, placed.size)
            found.keys += len(properties.keys(names)) + (properties.UNIQ_KEY in names) + (properties.TAGS in names)
            found.topics[placed.topic] += 1
            found.queues.add((placed.topic, placed.queue_id))
        self._places = places
        return found

    def _see_delay(self, message: Message) -> None:
        # the unit of a delayed message has the delivery time, and so tells the delay of its level
        level = message.queue_id
        delay = self._source.tags_code(message) - message.store_timestamp
        if level in self._seen_levels or level >= LEVELS_MAX or not 0 < delay < DELAY_MAX_MS or delay % DELAY_UNIT_MS:
            return
        self._seen_levels.add(level)
        self._delays_ms += self._delays_ms[-1:] * (level + 1 - len(self._delays_ms))
        self._delays_ms[level] = delay

    def write(self, new: Path) -> int:
        """Create the store `new`, and return the bytes of its files.

        If this fails, `new` is not there. Raises BadRequest if it is in use, OSError, and ChangeFailed if messages of
        the source changed since `select`, or if a path to redact is in no body.
        """
        if missing := self.redaction.in_no_body:
            hint = "are capitals and points right? `rmqctl dump --body utf8` shows the bodies"
            raise ChangeFailed(f"{', '.join(missing)}: in no body; nothing was written", hint=hint)
        storage = WritableStorage(unfinished(new))
        with named_when_complete(new):
            self._write(storage, storage.root)
            return sum(stamp.size for _, stamp in tree_of(storage, storage.root) if stamp.kind is Kind.FILE)

    def _write(self, storage: WritableStorage, new: Path) -> None:
        for name in (store_path.COMMITLOG, store_path.CONSUMEQUEUE, store_path.INDEX, store_path.CONFIG):
            storage.make_folder(new / name)
        config, geometry = new / store_path.CONFIG, self._geometry()
        topics = trimmed_topics(self._source, set(self.selected.topics))
        if topics is not None:
            write_config(storage, config, TOPICS_CONFIG, topics)
        conf = BrokerConf(delays_ms=tuple(self._delays_ms))
        store = MessageStore(new, conf, settings=put_settings(conf, self._profile), geometry=geometry)
        try:
            places = self._append(store, geometry)
            store.topic_configs.note(self.selected.queues)
            for name, content in trimmed_configs(self._source, places.queues).items():
                write_config(storage, config, name, content)
            has_light = any(topic.startswith(properties.LMQ_PREFIX) for topic, _ in places.queues)
            text = broker_conf_text(geometry, self._profile, conf, has_light_queues=has_light)
            storage.replace_file(new / store_path.BROKER_CONF, text.encode())
        finally:
            store.close()

    def _append(self, store: MessageStore, geometry: Geometry) -> Places:
        places = Places(self._batch_topics, keep=self._keep)
        begin = geometry.commitlog_file_size if self._keep else 0
        log = NewLog(store, begin, geometry.commitlog_file_size)
        if self._places.gaps:
            store.queue_store.gap_at = begin + GAP_POSITION
            log.fill_file()
        end = self.dump.summary.end  # of the first pass: a live broker has written more since
        limit = end if self._wanted.to_offset is None else min(end, self._wanted.to_offset)
        again = Dump(
            self._source, replace(self._wanted, to_offset=limit), on_damage=lambda _: None, threads=self._threads
        )
        count = 0
        self.redaction.start_anew()
        for message in self._messages(again):
            count += 1
            log.append(places.of(message))
        log.finish()
        if count != self.selected.messages:
            what = f"{count} messages were selected the second time, and {self.selected.messages} the first time"
            raise ChangeFailed(f"the store changed while it was read: {what}", path=str(self._source.path.root))
        return places

    def _messages(self, dump: Dump) -> Iterator[Message]:
        """Yield the redacted messages, without those that no queue can have."""
        impossible = 0
        for message in dump.messages():
            lights = [target.topic for target in queue_destinations(message)[1:]]
            if is_topic(message.topic) and message.queue_id >= 0 and all(map(is_light_name, lights)):
                redacted = self.redaction.of(message)
                grown = len(redacted.body) - len(message.body)
                yield redacted._replace(size=message.size + grown, body_crc=crc.masked_crc32(redacted.body))
            else:
                impossible += 1
        self.selected.impossible = impossible

    def _geometry(self) -> Geometry:
        found = self.selected
        room = max(found.largest, min(found.size, LOG_FILE_MAX)) + BLANK_SIZE
        longest = max((queue.end - queue.first for queue in self._places.queues.values()), default=0)
        units = min(longest + SPARE_UNITS, UNITS_MAX)
        entries = min(found.keys + SPARE_ENTRIES, INDEX_ENTRIES_MAX)
        return Geometry(
            commitlog_file_size=-(-room // PAGE) * PAGE,
            consumequeue_file_size=units * CQ_UNIT.size,
            index_slots=entries,
            index_entries=entries,
            batchconsumequeue_file_size=units * BATCH_CQ_UNIT.size,
        )


class NewLog:
    """Gives records their places in the log of `store`, and appends them.

    The log begins at `begin`; its files have `file_size` bytes.
    """

    def __init__(self, store: MessageStore, begin: int, file_size: int) -> None:
        self._store = store
        self._file_size = file_size
        self._end = begin
        self._received = ReceivedLog(begin, file_size)

    def append(self, message: Message) -> None:
        """Append a message, whose `size` may differ by its properties. Raises OSError."""
        raw = message.properties_bytes
        has_crc = ends_in_property_crc(raw)
        data = self._record(message, raw[: -crc.PROPERTY_CRC_SIZE] if has_crc else raw, property_crc=has_crc)
        if len(data) + BLANK_SIZE > self._file_size - self._end % self._file_size:
            self.fill_file()
            data = self._record(message, raw[: -crc.PROPERTY_CRC_SIZE] if has_crc else raw, property_crc=has_crc)
        self._add(data)

    def fill_file(self) -> None:
        """Fill the rest of the current file with a blank. Raises OSError."""
        room = self._file_size - self._end % self._file_size
        self._add(_BLANK.pack(room, MAGIC_BLANK).ljust(room, b"\0"))

    def finish(self) -> None:
        """Append what is left in memory. Raises OSError."""
        for part in self._received.parts():
            if isinstance(part.item, Damage):
                raise ChangeFailed(f"the new record cannot be read: {part.item.detail}", offset=part.offset)
            self._store.append_to_commit_log(part.offset, part.data, part.item)

    def _record(self, message: Message, raw: bytes, *, property_crc: bool) -> bytes:
        at = self._end
        placed = message._replace(physical_offset=at, stored_physical_offset=at, properties_bytes=raw)
        data = message_bytes(placed, property_crc=property_crc)
        if len(data) == placed.size:
            return data
        return message_bytes(placed._replace(size=len(data)), property_crc=property_crc)

    def _add(self, data: bytes) -> None:
        self._received.add(memoryview(data))
        self._end += len(data)
        if self._received.waiting >= WRITTEN_AT_ONCE:
            self.finish()
