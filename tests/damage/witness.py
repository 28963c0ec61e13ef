"""What a store has, read without rmqctl: every file as it is, and the intact messages that its queues lead to."""

from __future__ import annotations

import hashlib
import struct
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from tests.damage.pristine import Record, records_of
from tests.damage.victim import UNIT, is_offset
from tests.support.golden_archive import blocks_of

LMQ = "%LMQ%"
POSITIVE = 0x7FFFFFFF


class Entry(NamedTuple):
    """A file or folder of a store; `mtime_ns` is 0 of folders, which a journal does not keep."""

    mode: int
    mtime_ns: int
    digest: str


class Place(NamedTuple):
    """An intact message and the queue that leads to it."""

    topic: str
    queue_id: int
    physical_offset: int


def snapshot(root: Path) -> dict[str, Entry]:
    """Every file and folder below a store's root."""
    found = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        is_file = path.is_file()
        digest = _digest(path) if is_file else ""
        found[str(path.relative_to(root))] = Entry(stat.st_mode, stat.st_mtime_ns if is_file else 0, digest)
    return found


def _digest(path: Path) -> str:
    """The size, and a hash of all that is not zero."""
    digest = hashlib.blake2b()
    for at, block in blocks_of(path):
        digest.update(at.to_bytes(8) + block)
    return f"{path.stat().st_size} {digest.hexdigest()}"


def differences(before: dict[str, Entry], after: dict[str, Entry]) -> list[str]:
    """Where two snapshots differ."""
    names = sorted(before.keys() | after.keys())
    return [f"{name}: {before.get(name)} -> {after.get(name)}" for name in names if before.get(name) != after.get(name)]


def reachable(root: Path, ends: Mapping[tuple[str, int], tuple[int, int]] | None = None) -> set[Place]:
    """The intact messages that units lead to; without LMQ's, which are other queues', too.

    `ends` has the begin and the end of each queue, as queue offsets; without it, a unit may stand anywhere.
    """
    log = Log(root)
    found = set()
    for path in sorted((root / "consumequeue").rglob("*")):
        if not path.is_file() or not is_offset(path) or not path.parent.name.isdigit():
            continue
        topic, queue_id = path.parent.parent.name, int(path.parent.name)
        if topic.startswith(LMQ):
            continue
        data = path.read_bytes()
        low, high = (0, OFFSET_MAX) if ends is None else ends.get((topic, queue_id), (0, 0))
        first = int(path.name) // UNIT
        for number, (offset, size, _) in enumerate(struct.iter_unpack(">qiq", data[: len(data) // UNIT * UNIT])):
            if not low <= first + number < high:
                continue
            record = log.record(offset, size)
            if record and names_of(record) == (topic, queue_id):
                found.add(Place(topic, queue_id, offset))
    return found


def names_of(data: bytes) -> tuple[str, int]:
    """The topic and the queueId of a record."""
    record = next(iter(records_of("", data)))
    return _bytes(data, record, "topic").decode(errors="replace"), _number(data, record, "queue-id")


class Log:
    """The files of a store's log, as they are now."""

    def __init__(self, root: Path) -> None:
        self._files = {
            int(path.name): path.read_bytes()
            for path in (root / "commitlog").glob("*")
            if path.is_file() and is_offset(path)
        }
        self._begins = sorted(self._files)

    def record(self, offset: int, size: int) -> bytes:
        """The record at a physical offset; empty if it is not intact, with its offset and a body with its checksum."""
        index = bisect_right(self._begins, offset) - 1
        if size <= 0 or index < 0:
            return b""
        begin = self._begins[index]
        data = self._files[begin][offset - begin : offset - begin + size]
        record = next(iter(records_of("", data)), None)
        is_intact = (
            record is not None
            and record.size == size
            and _ends_right(record)
            and (data[-1] or not record.fields["properties"].size)  # properties end in no zero, but in a torn write
            and _number(data, record, "physical-offset") == offset
            and zlib.crc32(_bytes(data, record, "body")) & POSITIVE == _number(data, record, "body-crc")
        )
        return data if is_intact else b""


def _ends_right(record: Record) -> bool:
    last = record.fields["properties"]
    return all(field.size >= 0 for field in record.fields.values()) and last.at + last.size == record.size


def _bytes(data: bytes, record: Record, name: str) -> bytes:
    field = record.fields[name]
    return data[field.at : field.at + field.size]


def _number(data: bytes, record: Record, name: str) -> int:
    return int.from_bytes(_bytes(data, record, name), signed=name != "body-crc")
