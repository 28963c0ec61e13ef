"""The rows of rocksdbstore/: index, timers and half messages since 5.4.

Brokers of 5.4 and later always make the folder; its database has rows only with indexRocksDBEnable, timerRocksDBEnable
or transRocksDBEnable. Numbers are big-endian, texts UTF-8 (IndexRocksDBRecord, TimerRocksDBRecord, TransRocksDBRecord
of 5.5.0):

| family | key | value |
|---|---|---|
| default | hour8 `@topic@K@` key `@uniqKey@` physicalOffset8 | storeTime8 |
| default | the same with `T` and TAGS | storeTime8 |
| default | hour8 `@topic@U@uniqKey@` physicalOffset8 | storeTime8 |
| default | `lastOffsetPy` | physicalOffset8 of the last message in the index |
| timer | dueMs8 uniqKey | size4 physicalOffset8 |
| timer | `sys_topic_scan_offset_checkpoint` | queueOffset8 up to which the timer's queue is in the database |
| timer | `timeline_checkpoint` | dueMs8 up to which messages are delivered |
| trans | physicalOffset8 `@topic@uniqKey` | checkTimes4 size4 |
| trans | `lastOffsetPy` | physicalOffset8 |

hour8 is the store time in ms, rounded down to an hour. A message without UNIQ_KEY has no row.

A broker flushes the database every 5 minutes, and its write-ahead log only when it stops: after a crash, the database
has the rows of some minutes ago.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.system.rocksdb import DEFAULT_FAMILY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.system.rocksdb import Database

TIMER, TRANS = "timer", "trans"
KEY, TAG, UNIQUE = "K", "T", "U"
LAST_OFFSET = b"lastOffsetPy"
TIMELINE, SCANNED = b"timeline_checkpoint", b"sys_topic_scan_offset_checkpoint"
WORDS_MAX = 16  # between the @ of a UNIQ_KEY; those of POP have 6
_OFFSET = struct.Struct(">q")
_TIMER = struct.Struct(">iq")
_HALF = struct.Struct(">4xi")  # without checkTimes


class IndexRow(NamedTuple):
    """A message in the index, under one of its keys."""

    topic: str
    kind: str  # KEY, TAG or UNIQUE
    text: str  # the key
    physical_offset: int
    stored_ms: int  # since 1970


class TimerRow(NamedTuple):
    """A timer message. Delivered ones stay for half an hour."""

    due_ms: int  # since 1970
    unique_key: str
    size: int  # of the record, in bytes
    physical_offset: int


class HalfRow(NamedTuple):
    """A half message that waits for its commit or rollback."""

    physical_offset: int
    topic: str  # to which it goes
    unique_key: str
    size: int  # of the record, in bytes


def index_rows(database: Database, prefix: bytes = b"", start: bytes = b"") -> Iterator[IndexRow]:
    """Yield the index, sorted by hour, topic, kind and text.

    `prefix` and `start` are those of `Database.rows`. Raises OSError.
    """
    for key, value in database.rows(prefix=prefix, start=start):
        parts = key[8:-8].decode("utf-8", "replace").split("@")  # "", topic, kind, key, uniqKey, ""
        if len(value) == _OFFSET.size and len(parts) >= 5 and parts[0] == parts[-1] == "":
            topic, kind, words = parts[1], parts[2], parts[3:-1]
            size = len(words) if kind == UNIQUE else _words_of_text(database, key, topic, words)
            yield IndexRow(topic, kind, "@".join(words[:size]), *_OFFSET.unpack(key[-8:]), *_OFFSET.unpack(value))


def _words_of_text(database: Database, key: bytes, topic: str, words: list[str]) -> int:
    """Return how many of the words are the text; the others are the UNIQ_KEY.

    Both can have @ (the UNIQ_KEY of acknowledgements of POP). The message's own row shows its UNIQ_KEY.
    """
    for size in range(max(1, len(words) - WORDS_MAX), len(words) - 1):
        own = key[:8] + f"@{topic}@{UNIQUE}@{'@'.join(words[size:])}@".encode() + key[-8:]
        if next(database.rows(prefix=own), None) is not None:
            return size
    return len(words) - 1


def hours(database: Database) -> Iterator[bytes]:
    """Yield the hours of the index as in its keys. Raises OSError."""
    found = next(database.rows(), None)
    while found is not None and len(found[0]) > 16 and found[0][8:9] == b"@":
        yield found[0][:8]
        found = next(database.rows(start=found[0][:8] + b"A"), None)  # A follows @


def timer_rows(database: Database, since_ms: int = 0) -> Iterator[TimerRow]:
    """Yield the timer messages by the time at which they are due. Raises OSError."""
    for key, value in database.rows(TIMER, start=_OFFSET.pack(since_ms)):
        if len(value) == _TIMER.size and len(key) > 8:
            due_ms, (size, physical_offset) = int.from_bytes(key[:8], "big"), _TIMER.unpack(value)
            yield TimerRow(due_ms, key[8:].decode("utf-8", "replace"), size, physical_offset)


def half_rows(database: Database) -> Iterator[HalfRow]:
    """Yield the half messages without an end, by physical offset. Raises OSError."""
    for key, value in database.rows(TRANS):
        parts = key[8:].decode("utf-8", "replace").split("@", 2)  # "", topic, uniqKey
        if len(value) == _HALF.size and len(parts) == 3:
            yield HalfRow(int.from_bytes(key[:8], "big"), parts[1], parts[2], *_HALF.unpack(value))


def checkpoint_of(database: Database, name: bytes, family: str = DEFAULT_FAMILY) -> int | None:
    """Return the value of a row that says how far a family is, or None.

    Raises OSError.
    """
    found = next(database.rows(family, prefix=name), None)
    return int.from_bytes(found[1], "big", signed=True) if found is not None and found[0] == name else None
