"""CommitLog.putMessage: check, encode and append messages to the log.

A record fits into a log file if at least eight bytes remain after it. Otherwise a blank fills the file, and the next
file gets the record. A batch is stored completely or not at all.

Prepared and rollback records have queue offset 0, and do not increase the queue's next offset. In 4.7 to 5.x, delayed
records are stored in SCHEDULE_TOPIC_XXXX, with the real topic and queue in their properties.
"""

from __future__ import annotations

import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from rmqctl.errors import reason
from rmqctl.format import properties
from rmqctl.format.encode import (
    PROPERTIES_LENGTH_MAX,
    TOPIC_LENGTH_MAX_V1,
    Encoded,
    MessageExtBrokerInner,
    TopicField,
    body_crc_of,
    encode,
    properties_to_bytes,
    record,
    topic_field,
)
from rmqctl.format.message import BLANK_SIZE, MAGIC_BLANK
from rmqctl.format.profile import PROFILE_4_7, PROFILE_5_3, Profile
from rmqctl.format.sys_flag import INNER_BATCH, TRANSACTION_MASK
from rmqctl.store.config.broker_conf import DELAYS_MS
from rmqctl.store.config.message_store_config import USUAL
from rmqctl.store.config.topics import DEFERRED_TOPICS, SCHEDULE_TOPIC, TOPIC_LENGTH_MAX, is_topic
from rmqctl.store.dispatch.dispatch_rules import INNER_NUM_MAX
from rmqctl.store.dispatch.light_queues import is_left_out_topic, is_light_name, java_split
from rmqctl.store.write.placing import NO_UNIT, PUT_OK, place_lines, place_run
from rmqctl.store.write.put_message import (
    AppendMessageResult,
    EncodingRules,
    PutEncodedResult,
    PutMessageResult,
    PutMessageStatus,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rmqctl.logfile.writable_mapped_file import WritableMappedFile
    from rmqctl.logfile.writable_mapped_file_queue import WritableMappedFileQueue
    from rmqctl.store.config.broker_conf import BrokerConf
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.write.placing import Batch, Place, Result
    from rmqctl.store.write.put_message import EncodedLines

_BLANK = struct.Struct(">iI")
_NOT_PLAIN = frozenset((properties.DELAY, properties.INNER_MULTI_DISPATCH, properties.INNER_NUM))


class PutSettings(NamedTuple):
    """The settings for putting messages; sizes in bytes, times in ms."""

    profile: Profile = PROFILE_5_3
    max_message_size: int = USUAL.max_message_size
    property_crc: bool = False
    multi_dispatch: bool = False
    delay_level_max: int = len(DELAYS_MS)
    os_page_cache_busy_ms: int = USUAL.os_page_cache_busy_ms


def put_settings(
    conf: BrokerConf, profile: Profile, *, property_crc: bool = False, has_light_queues: bool = False
) -> PutSettings:
    """Return the settings of broker.conf that a broker of `profile` knows.

    `property_crc` turns the property CRC on, even if broker.conf turns it off. Without an LMQ setting in broker.conf,
    LMQ is on for a store that `has_light_queues`.
    """
    multi_dispatch = has_light_queues if conf.writing.multi_dispatch is None else conf.writing.multi_dispatch
    return PutSettings(
        profile=profile,
        max_message_size=conf.writing.max_message_size,
        property_crc=property_crc or (conf.writing.property_crc and profile.knows_long_topics),
        multi_dispatch=multi_dispatch and profile != PROFILE_4_7,
        delay_level_max=len(conf.delays_ms),
        os_page_cache_busy_ms=conf.writing.os_page_cache_busy_ms,
    )


class CommitLogWriter:
    """The writer that appends messages to `queue`, from any thread.

    `topic_queue_table` has the next queue offset of each queue, including LMQ queues. `waiting_since` is the time
    (time.monotonic) at which a put began to wait for the file system, or 0 if none waits. `now` returns the time in ms
    since 1970.
    """

    def __init__(
        self,
        queue: WritableMappedFileQueue,
        topic_queue_table: dict[QueueKey, int],
        settings: PutSettings,
        now: Callable[[], int],
        batch_topics: frozenset[str] = frozenset(),
    ) -> None:
        self.queue = queue
        self.topic_queue_table = topic_queue_table
        self._settings = settings
        self._end_with_separator = settings.profile.ends_properties_with_separator
        self._property_crc = settings.property_crc
        self._max_message_size = settings.max_message_size
        self._now = now
        self._batch_topics = batch_topics
        self._written_queues: set[QueueKey] = set()
        self._put_lock = threading.Lock()
        self.waiting_since = 0.0
        self._topic_fields: dict[str, TopicField] = {}  # of topics with a put message, without DEFERRED_TOPICS

    def put_message(self, message: MessageExtBrokerInner, *, as_it_is: bool = False) -> PutMessageResult:
        """Store one message.

        With `as_it_is`, it is a copy of a stored message, and its property DELAY is ignored.

        Most messages become one ordinary record in a file with room: these take few calls here. `_put_any` does the
        rest.
        """
        topic, body, found, _, host, _, queue_id, _, sys_flag, _, _ = message
        field = self._topic_fields.get(topic)
        if field is None or sys_flag & INNER_BATCH or not _NOT_PLAIN.isdisjoint(found):  # `_is_plain`, in place
            return self._put_any(message, as_it_is=as_it_is)
        raw = properties_to_bytes(found, end_with_separator=self._end_with_separator, property_crc=self._property_crc)
        if queue_id < 0 or len(raw) > PROPERTIES_LENGTH_MAX or len(body) > self._max_message_size:
            return self._put_any(message, as_it_is=as_it_is)
        body_crc, key = body_crc_of(body), (topic, queue_id)
        takes_offset = not sys_flag or sys_flag & TRANSACTION_MASK not in NO_UNIT
        self._put_lock.acquire()  # `with` takes twice as long
        try:
            if (file := self.queue.last) is not None:
                position = file.wrote_position
                begin = self.topic_queue_table.get(key, 0) if takes_offset else 0
                stored, at = self._now(), file.file_from_offset + position
                made = record(message, field, raw, body_crc, begin, at, stored, property_crc=self._property_crc)
                size = len(made)
                if position + size + BLANK_SIZE <= file.size:
                    self.waiting_since = time.monotonic()
                    file.append(made)
                    file.store_timestamp = stored
                    if takes_offset:
                        self.topic_queue_table[key] = begin + 1
                    self._written_queues.add(key)
                    appended = AppendMessageResult(topic, queue_id, takes_offset, at, size, (at,), host, stored, begin)
                    return PutMessageResult(PUT_OK, appended)
        except OSError as error:
            return _not_written(error)
        finally:
            self.waiting_since = 0.0
            self._put_lock.release()
        return self._put_any(message, as_it_is=as_it_is)

    def _put_any(self, message: MessageExtBrokerInner, *, as_it_is: bool) -> PutMessageResult:
        """Store a message of any kind, at any place of the log; see `put_message`."""
        if not as_it_is and properties.DELAY in message.properties:
            message = self._scheduled(message)
        if self._is_for_light_queues(message):
            return self._put_multi_dispatch(message)
        if message.sys_flag & INNER_BATCH or properties.INNER_NUM in message.properties:
            return self._put_inner_batch(message)
        encoded = self._encoded(message)
        return self._put_run([([encoded], encoded.size)])[0] if isinstance(encoded, Encoded) else encoded

    def put_each(self, messages: Sequence[MessageExtBrokerInner], *, as_it_is: bool = False) -> list[PutMessageResult]:
        """Do the same as `put_message` for each message, but several times faster.

        All records for one log file are stored by one write. If the store fails, the remaining messages are not
        written, and their results show the same failure.
        """
        results: list[PutMessageResult] = []
        run: list[Batch] = []
        for message in messages:
            encoded = self._encoded(message) if _is_plain(message) else None
            if isinstance(encoded, Encoded):
                run.append(([encoded], encoded.size))
                continue
            results += self._put_run(run)
            run = []
            if not _has_failed(results):
                results.append(self.put_message(message, as_it_is=as_it_is) if encoded is None else encoded)
            if _has_failed(results):
                break
        results += self._put_run(run)
        return results + results[-1:] * (len(messages) - len(results))

    def put_messages(self, messages: Sequence[MessageExtBrokerInner]) -> PutMessageResult:
        """Store all messages of a batch, or none.

        They must be in one queue, without transactions, delays or inner batches.
        """
        first = messages[0]
        for message in messages:
            if (message.topic, message.queue_id) != (first.topic, first.queue_id):
                return _illegal("a batch has messages of one queue only")
            delayed = _delay_level(message) > 0 and message.topic != SCHEDULE_TOPIC
            is_batch = message.sys_flag & INNER_BATCH or properties.INNER_NUM in message.properties
            if delayed or is_batch or message.sys_flag & TRANSACTION_MASK:
                return _illegal("a batch has no transactions, delays or inner batches")
        batch = []
        for message in messages:
            encoded = self._encoded(message)
            if not isinstance(encoded, Encoded):
                return encoded
            batch.append(encoded)
        size = sum(encoded.size for encoded in batch)
        if size > self._max_message_size:
            return _illegal("the batch is larger than the largest allowed message")
        return self._put_run([(batch, size)])[0]

    def encoding_rules(self) -> EncodingRules | None:
        """Return the rules for records that `put_encoded` accepts, or None.

        None with the property CRC, because `__CRC32#` depends on a record's offsets.
        """
        if self._property_crc:
            return None
        return EncodingRules(
            ends_properties_with_separator=self._end_with_separator,
            body_max=self._max_message_size,
            record_max=self.queue.file_size - BLANK_SIZE,
            takes=self._takes_records,
            now=self._now,
        )

    def _takes_records(self, key: QueueKey) -> bool:
        topic, queue_id = key
        return is_topic(topic) and topic not in DEFERRED_TOPICS and topic not in self._batch_topics and queue_id >= 0

    def put_encoded(self, encoded: EncodedLines, begin: int) -> PutEncodedResult:
        """Store the encoded records from row `begin` on, with one write.

        Records that do not fit into the current log file are not stored.
        """
        rows = encoded.rows[begin:]
        with self._put_lock:
            result = self._append(int(rows[0]["size"]), partial(place_lines, encoded, begin))
        return PutEncodedResult(len(rows), result, []) if isinstance(result, PutMessageResult) else result

    def append_to_commit_log(self, start_offset: int, data: memoryview, store_timestamp: int = 0) -> None:
        """Append whole records of a master's log (CommitLog.appendData).

        They must belong to one log file. `start_offset` is the physical offset of the first one, which must be the end
        of the log if it has files. `store_timestamp` is the store time of the last message in ms since 1970, or 0
        without one.

        The first eight bytes of `data` are written last, so a reader never finds a torn record, even after SIGKILL.
        Raises ValueError if the log does not end at `start_offset`, and OSError.
        """
        with self._put_lock:
            if self.queue.last is not None and self.queue.max_offset != start_offset:
                raise ValueError(f"the log ends at {self.queue.max_offset}, not at {start_offset}")
            file = self.queue.last_with_room(start_offset)
            file.append_head_last(data, BLANK_SIZE)
            file.store_timestamp = store_timestamp or file.store_timestamp

    def take_written_queues(self) -> set[QueueKey]:
        """Return the queues that received messages since the last call.

        The real queues of delayed and half messages are among them.
        """
        with self._put_lock:
            taken, self._written_queues = self._written_queues, set()
        return taken

    @property
    def is_os_page_cache_busy(self) -> bool:
        """Return whether a put has been waiting too long for the file system.

        The limit is osPageCacheBusyTimeOutMills of broker.conf (default: 1000 ms).
        """
        since = self.waiting_since
        return since > 0 and (time.monotonic() - since) * 1000 > self._settings.os_page_cache_busy_ms

    def _scheduled(self, message: MessageExtBrokerInner) -> MessageExtBrokerInner:
        level = _delay_level(message)
        if level <= 0 or message.sys_flag & TRANSACTION_MASK in NO_UNIT:
            return message
        level = min(level, self._settings.delay_level_max)
        real = {
            properties.DELAY: str(level),
            properties.REAL_TOPIC: message.topic,
            properties.REAL_QUEUE_ID: str(message.queue_id),
        }
        return message._replace(topic=SCHEDULE_TOPIC, queue_id=level - 1, properties=message.properties | real)

    def _encoded(self, message: MessageExtBrokerInner) -> Encoded | PutMessageResult:
        name, body, found, _, _, _, queue_id, _, _, _, _ = message
        topic = self._topic_fields.get(name) or self._topic_field(name)
        if isinstance(topic, PutMessageResult):
            return topic
        if queue_id < 0:
            return _illegal(f"queueId {queue_id} is negative")
        raw = properties_to_bytes(found, end_with_separator=self._end_with_separator, property_crc=self._property_crc)
        if len(raw) > PROPERTIES_LENGTH_MAX:
            remark = f"properties of {len(raw)} bytes, at most {PROPERTIES_LENGTH_MAX} fit"
            return PutMessageResult(PutMessageStatus.PROPERTIES_SIZE_EXCEEDED, remark=remark)
        if len(body) > self._max_message_size:
            return _illegal(f"a body of {len(body)} bytes, at most {self._max_message_size} are taken")
        return encode(message, raw, topic, property_crc=self._property_crc)

    def _topic_field(self, topic: str) -> TopicField | PutMessageResult:
        if not is_topic(topic):
            return _illegal(f"a topic name has 1 to {TOPIC_LENGTH_MAX} letters, digits and %|-_ only")
        field = topic_field(topic, long_topics=self._settings.profile.knows_long_topics)
        if field is None:
            return _illegal(f"a topic of {len(topic)} bytes, 4.x takes at most {TOPIC_LENGTH_MAX_V1}")
        if topic not in DEFERRED_TOPICS:
            self._topic_fields[topic] = field
        return field

    def _put_run(self, run: list[Batch]) -> list[PutMessageResult]:
        """Append batches in order, with one write for each log file.

        After a failure of the store, the remaining batches get no result.
        """
        results: list[PutMessageResult] = []
        while len(results) < len(run) and not _has_failed(results):
            with self._put_lock:
                results += self._append_run(run[len(results) :])
        return results

    def _append_run(self, run: list[Batch]) -> list[PutMessageResult]:
        """Append the batches that one log file has room for, at least one.

        If the first batch cannot be stored, the result has only the reason. The caller holds the lock.
        """
        results = self._append(run[0][1], partial(place_run, run))
        return [results] if isinstance(results, PutMessageResult) else results

    def _append(self, size: int, place: Place[Result]) -> Result | PutMessageResult:
        """Append records with one write, or return why nothing was appended.

        Every put ends here, except the short way of `put_message`. The caller holds the lock. If the last file has no
        room for the first `size` bytes, which stay together, a new file begins. `place` is a function of
        `rmqctl.store.write.placing` without its last four parameters.
        """
        if size + BLANK_SIZE > self.queue.file_size:
            return _illegal(f"a record of {size} bytes does not fit into a file of {self.queue.file_size}")
        file: WritableMappedFile | None = None
        self.waiting_since = time.monotonic()
        try:
            file = self._file_with_room(size)
            stored = self._now()
            at = file.file_from_offset + file.wrote_position
            placed = place(self.topic_queue_table, at, file.end - BLANK_SIZE, stored)
            file.append(placed.records)
            file.store_timestamp = stored
        except OSError as error:
            return _not_written(error) if file is not None else _no_file(error)
        finally:
            self.waiting_since = 0.0
        self.topic_queue_table.update(placed.next_offsets)
        self._written_queues.update(placed.queues)
        return placed.result

    def _file_with_room(self, size: int) -> WritableMappedFile:
        """Fill the last file with a blank if it has too little room. Raises OSError."""
        file = self.queue.last_with_room()
        room = file.size - file.wrote_position
        if size + BLANK_SIZE > room:
            file.append(_BLANK.pack(room, MAGIC_BLANK)[:room])
            file.skip_to_end()
            file = self.queue.last_with_room()
        return file

    def _is_for_light_queues(self, message: MessageExtBrokerInner) -> bool:
        """Return False if INNER_MULTI_QUEUE_OFFSET does not change."""
        if not self._settings.multi_dispatch or not message.properties.get(properties.INNER_MULTI_DISPATCH, "").strip():
            return False
        return self._settings.profile.light_queues_for_all_topics or not is_left_out_topic(message.topic)

    def _is_light_name(self, name: str) -> bool:
        """Return whether the broker dispatches messages to an LMQ queue called `name`.

        5.x cannot dispatch to one without the prefix %LMQ%, because the message gets no offset.
        """
        is_light = self._settings.profile.light_queues_for_all_topics or name.startswith(properties.LMQ_PREFIX)
        return is_light and is_light_name(name)

    def _put_multi_dispatch(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store a message for LMQ queues (4.9.3 and later).

        Its queue offsets in them are written into its properties.
        """
        names = java_split(message.properties[properties.INNER_MULTI_DISPATCH])
        unusable = [name for name in names if not self._is_light_name(name)]
        if unusable:
            return _illegal(f"INNER_MULTI_DISPATCH names {unusable[0]!r}, which is not the name of a light queue")
        keys = [(name, 0 if name.startswith(properties.LMQ_PREFIX) else message.queue_id) for name in names]
        return self._put_numbered(message, properties.INNER_MULTI_QUEUE_OFFSET, keys)

    def _put_inner_batch(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Store an inner batch, which is many messages of a topic in one record.

        The topic must have queue.type=BatchCQ (5.x). The record of an inner batch has INNER_NUM queue offsets, from
        INNER_BASE on.
        """
        key, number = (message.topic, message.queue_id), message.properties.get(properties.INNER_NUM, "1")
        if not message.sys_flag & INNER_BATCH:
            return _illegal("INNER_NUM is for records with the flag INNER_BATCH")
        if message.topic not in self._batch_topics:
            return _illegal("an inner batch needs a topic with queue.type=BatchCQ in config/topics.json")
        if message.sys_flag & TRANSACTION_MASK in NO_UNIT or not _is_inner_num(number):
            return _illegal("an inner batch is no half message and has an INNER_NUM")
        return self._put_numbered(message, properties.INNER_BASE, [key], int(number))

    def _put_numbered(
        self, message: MessageExtBrokerInner, name: str, keys: list[QueueKey], number: int = 1
    ) -> PutMessageResult:
        """Store a message whose property `name` has its offsets in `keys`.

        It takes `number` queue offsets of each of these queues.
        """
        with self._put_lock:
            offsets = [self.topic_queue_table.get(key, 0) for key in keys]
            numbers = properties.LMQ_SEPARATOR.join(map(str, offsets))
            encoded = self._encoded(message._replace(properties=message.properties | {name: numbers}))
            if not isinstance(encoded, Encoded):
                return encoded
            (result,) = self._append_run([([encoded], encoded.size)])
            if result.append is None:
                return result
            if result.append.takes_offset or self._settings.profile.half_messages_take_light_offsets:
                self.topic_queue_table.update({key: offset + number for key, offset in zip(keys, offsets, strict=True)})
            return replace(result, append=replace(result.append, inner_num=number))


def _illegal(remark: str) -> PutMessageResult:
    return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, remark=remark)


def _no_file(error: OSError) -> PutMessageResult:
    return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED, remark=f"no new file: {reason(error)}")


def _not_written(error: OSError) -> PutMessageResult:
    return PutMessageResult(PutMessageStatus.UNKNOWN_ERROR, remark=f"cannot be written: {error.strerror}")


def _has_failed(results: list[PutMessageResult]) -> bool:
    return bool(results) and results[-1].is_store_failure


def _is_plain(message: MessageExtBrokerInner) -> bool:
    """Return False for delayed messages, those for LMQ, and inner batches."""
    return not (message.sys_flag & INNER_BATCH) and _NOT_PLAIN.isdisjoint(message.properties)


def _is_inner_num(text: str) -> bool:
    return (
        text.isascii() and text.isdecimal() and len(text) <= len(str(INNER_NUM_MAX)) and 0 < int(text) <= INNER_NUM_MAX
    )


def _delay_level(message: MessageExtBrokerInner) -> int:
    text = message.properties.get(properties.DELAY)
    if text is None:
        return 0
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
