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
    log = {
        int(path.name): path.read_bytes()
        for path in (root / "commitlog").glob("*")
        if path.is_file() and is_offset(path)
    }
    begins = sorted(log)
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
            index = bisect_right(begins, offset) - 1
            if size > 0 and index >= 0 and _is_intact(log[begins[index]], begins[index], offset, size, topic, queue_id):
                found.add(Place(topic, queue_id, offset))
    return found


def _is_intact(data: bytes, begin: int, offset: int, size: int, topic: str, queue_id: int) -> bool:
    at = offset - begin
    if at + size > len(data):
        return False
    record = next(iter(records_of("", data[at : at + size])), None)
    if record is None or record.size != size:
        return False
    record_data = data[at : at + size]
    return (
        _ends_right(record)
        and _number(record_data, record, "physical-offset") == offset
        and _number(record_data, record, "queue-id") == queue_id
        and _bytes(record_data, record, "topic") == topic.encode()
        and zlib.crc32(_bytes(record_data, record, "body")) & POSITIVE == _number(record_data, record, "body-crc")
    )


def _ends_right(record: Record) -> bool:
    last = record.fields["properties"]
    return all(field.size >= 0 for field in record.fields.values()) and last.at + last.size == record.size


def _bytes(data: bytes, record: Record, name: str) -> bytes:
    field = record.fields[name]
    return data[field.at : field.at + field.size]


def _number(data: bytes, record: Record, name: str) -> int:
    return int.from_bytes(_bytes(data, record, name), signed=name != "body-crc")
