"""Consume queues in RocksDB, shown as the queue files of a default store.

Brokers of 5.2 and later write them with storeType=defaultRocksDB. Family `default` has a row for each unit, with the
same content as in a queue file, and family `offset` two for each queue. Numbers are big-endian, and SEP is the byte 01
(RocksDBConsumeQueueTable, RocksDBConsumeQueueOffsetTable):

| family | key | value |
|---|---|---|
| default | topicLen4 SEP topic SEP queueId4 SEP queueOffset8 | physicalOffset8 size4 tagsCode8 storeTime8 |
| offset | topicLen4 SEP topic SEP `max` SEP queueId4 | physicalOffset8 queueOffset8 of the last unit |
| offset | the same with `min`, also for queues that were only asked for | of the first unit |

A broker serves the units up to `max`: after it cut its log, later ones are stale.
"""

from __future__ import annotations

import struct
from functools import cached_property
from typing import TYPE_CHECKING, Final

from rmqctl.format.cq_unit import CQ_UNIT, PLACES_MAX, PRE_BLANK_SIZE
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS, is_file_name
from rmqctl.logfile.system.rocksdb import DEFAULT_FAMILY

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.logfile.system.rocksdb import Database

OFFSETS = "offset"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"  # its `max` is the end of the dispatched log in 8 bytes, not a queue
USUAL_FILE_SIZE: Final = 20_000 * CQ_UNIT.size  # bytes: a look at one unit reads the rows of a file
_SEP = b"\1"
_MAX, _MIN = (_SEP + end + _SEP for end in (b"max", b"min"))
_PLACE, _OFFSET = struct.Struct(">qq"), struct.Struct(">q")
_CHECKPOINT = len(CHECKPOINT_TOPIC).to_bytes(4, "big") + _SEP + CHECKPOINT_TOPIC.encode() + _MAX + bytes(4)
_PRE_BLANK = CQ_UNIT.struct.pack(0, PRE_BLANK_SIZE, 0)


class QueueFiles:
    """The queue files, each of `file_size` bytes, of one database.

    `opened` opens it when it is needed. The units that a queue lacks up to its last one are pre-blank, as those before
    the first one in a broker's files.
    """

    def __init__(self, opened: Callable[[], Database], file_size: int) -> None:
        self._opened = opened
        self._per_file = file_size // CQ_UNIT.size
        self._open: Database | None = None
        self._damage: OSError | None = None
        self._is_read = False
        self._known: dict[tuple[str, int], dict[int, None]] = {}

    def hides(self, names: tuple[str, ...]) -> bool:
        """Return True: a file in the folder belongs to the database."""
        del names
        return True

    def names(self, names: tuple[str, ...]) -> list[str] | None:
        """Return the topics, the queueIds of a topic, or the files of a queue."""
        match names:
            case ():
                return sorted(self._lasts)
            case (topic,) if topic in self._lasts:
                return sorted(map(str, self._lasts[topic]))
            case (topic, queue_id) if (last := self._last(topic, queue_id)) is not None:
                numbers = self._numbers(topic, int(queue_id), last)
                return [f"{number * self._per_file * CQ_UNIT.size:0{FILE_NAME_DIGITS}d}" for number in numbers]
        return None

    def size(self, names: tuple[str, ...]) -> int | None:
        """Return the length of a queue file in bytes, or None."""
        match names:
            case (topic, queue_id, name) if is_file_name(name) and (last := self._last(topic, queue_id)) is not None:
                size = self._per_file * CQ_UNIT.size
                number, rest = divmod(int(name), size)
                return size if not rest and number in self._numbers(topic, int(queue_id), last) else None
        return None

    def content(self, names: tuple[str, ...]) -> bytes:
        """Return the units of a queue file that exists."""
        topic, queue_id, name = names
        first = int(name) // CQ_UNIT.size
        return self.units(topic, int(queue_id), first, min(self.end(topic, int(queue_id)), first + self._per_file))

    def end(self, topic: str, queue_id: int) -> int:
        """Return the queue offset after a queue's last unit; 0 without the queue."""
        return self._lasts.get(topic, {}).get(queue_id, -1) + 1

    def has_only(self, prefix: str) -> bool:
        """Return whether it has queues, and all of topics with this prefix."""
        return bool(self._lasts) and all(topic.startswith(prefix) for topic in self._lasts)

    def units(self, topic: str, queue_id: int, first: int, end: int) -> bytes:
        """Return the units [first, end) of a queue as in a queue file."""
        key, stop = _unit_key(topic, queue_id), min(self.end(topic, queue_id), end)
        content = bytearray(_PRE_BLANK * (end - first))
        for at, value in self._database.rows(prefix=key, start=key + _OFFSET.pack(first)):
            queue_offset = int.from_bytes(at[len(key) :], "big", signed=True)
            if queue_offset >= stop:
                break
            begin = (queue_offset - first) * CQ_UNIT.size
            content[begin : begin + CQ_UNIT.size] = value[: CQ_UNIT.size].ljust(CQ_UNIT.size, b"\0")
        return bytes(content)

    @property
    def dispatched_end(self) -> int:
        """Return up to which physical offset the log is dispatched; 0 without it."""
        value = next((value for _, value in self._database.rows(OFFSETS, prefix=_CHECKPOINT)), b"")
        return int.from_bytes(value[:8], "big", signed=True)

    def said_min(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """Return physical offset and queue offset in a queue's row `min`, if any."""
        name = topic.encode(errors="surrogateescape")
        key = len(name).to_bytes(4, "big") + _SEP + name + _MIN + queue_id.to_bytes(4, "big")
        value = next((value for _, value in self._database.rows(OFFSETS, prefix=key)), b"")
        return _PLACE.unpack(value) if len(value) == _PLACE.size else None

    def read_all(self) -> None:
        """Read the whole database, once; of a damaged one, nothing is shown from then on."""
        if self._is_read:
            return
        self._is_read = True
        try:
            for family in (OFFSETS, DEFAULT_FAMILY):
                for _ in self._database.rows(family):
                    pass
        except OSError as error:
            self._damage = error

    @property
    def _database(self) -> Database:
        if self._damage is not None:
            raise self._damage
        if self._open is None:
            self._open = self._opened()
        return self._open

    @property
    def _lasts(self) -> dict[str, dict[int, int]]:
        # the queue offset of the last unit by topic and queueId; OSError for a damaged database
        if self._damage is not None:
            raise self._damage
        return self._found

    @cached_property
    def _found(self) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {}
        for key, value in self._database.rows(OFFSETS):
            size = int.from_bytes(key[:4], "big")
            topic, rest = key[5 : 5 + size], key[5 + size :]
            if not rest.startswith(_MAX) or len(rest) != len(_MAX) + 4 or len(value) != 16:
                continue
            name = topic.decode(errors="surrogateescape")
            queue_id, last = int.from_bytes(rest[-4:], "big"), int.from_bytes(value[8:], "big", signed=True)
            if name != CHECKPOINT_TOPIC and _can_be_a_folder(name) and 0 <= last < PLACES_MAX:
                found.setdefault(name, {})[queue_id] = last
        return found

    def _last(self, topic: str, queue_id: str) -> int | None:
        return self._lasts.get(topic, {}).get(int(queue_id)) if queue_id.isdecimal() else None

    def _numbers(self, topic: str, queue_id: int, last: int) -> dict[int, None]:
        """Return the numbers of the files that have rows, from 0 on, in order.

        Also that of the row `last`, if it is at most one file further: a larger `max` is not believed.
        """
        if (topic, queue_id) not in self._known:
            key, found, start = _unit_key(topic, queue_id), dict[int, None](), 0
            while start <= last and (
                row := next(self._database.rows(prefix=key, start=key + _OFFSET.pack(start)), None)
            ):
                number = int.from_bytes(row[0][len(key) :], "big", signed=True) // self._per_file
                if not start <= number * self._per_file + self._per_file - 1 or number > last // self._per_file:
                    break
                found[number] = None
                start = (number + 1) * self._per_file
            if last // self._per_file <= max(found, default=last // self._per_file) + 1:
                found[last // self._per_file] = None
            self._known[topic, queue_id] = found
        return self._known[topic, queue_id]


def _unit_key(topic: str, queue_id: int) -> bytes:
    name = topic.encode(errors="surrogateescape")
    return struct.pack(">i", len(name)) + _SEP + name + _SEP + struct.pack(">I", queue_id) + _SEP


def _can_be_a_folder(topic: str) -> bool:
    return topic not in ("", ".", "..") and "/" not in topic and "\0" not in topic
