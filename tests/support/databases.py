"""Databases as brokers write them, by rocksdict."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from rocksdict import Options, Rdict

Rows = Mapping[bytes, bytes]


def write_database(folder: Path, families: Mapping[str, Rows]) -> None:
    """Write a database with these rows by family; `default` always exists."""
    folder.mkdir(parents=True, exist_ok=True)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    database = Rdict(str(folder), options)
    for name, rows in families.items():
        family = database if name == "default" else database.create_column_family(name, Options(raw_mode=True))
        for key, value in rows.items():
            family[key] = value
    database.flush()
    database.close()
    (folder / "rocksdict-config.json").unlink()


def change_database(folder: Path, family: str, rows: Mapping[bytes, bytes | None]) -> None:
    """Put rows into a family of a database, and delete those whose value is None."""
    raw = Options(raw_mode=True)
    database = Rdict(str(folder), raw, dict.fromkeys(Rdict.list_cf(str(folder), raw), raw))
    changed = database.get_column_family(family)
    for key, value in rows.items():
        if value is None:
            del changed[key]
        else:
            changed[key] = value
    database.close()
    (folder / "rocksdict-config.json").unlink(missing_ok=True)


def unit_row(topic: str, queue_id: int, queue_offset: int, unit: tuple[int, int, int]) -> tuple[bytes, bytes]:
    """Return the row of a unit: (physicalOffset, size, tagsCode)."""
    name = topic.encode()
    key = struct.pack(">i", len(name)) + b"\1" + name + b"\1" + struct.pack(">I", queue_id) + b"\1"
    return key + struct.pack(">q", queue_offset), struct.pack(">qiqq", *unit, 0)


def pop_row(
    group: str, topic: str, queue_id: int, queue_offset: int, pop_ms: int, invisible_ms: int
) -> tuple[bytes, bytes]:
    """Return the row of kvStore/ for a popped message (PopConsumerRecord)."""
    key = struct.pack(">q", pop_ms + invisible_ms) + f"{group}@{topic}@".encode()
    key += struct.pack(">I", queue_id) + b"@" + struct.pack(">q", queue_offset)
    record = {"popTime": pop_ms, "groupId": group, "topicId": topic, "queueId": queue_id, "retryFlag": 0}
    record |= {"invisibleTime": invisible_ms, "offset": queue_offset, "attemptTimes": 0, "suspend": False}
    return key, json.dumps(record, separators=(",", ":")).encode()


def offset_row(topic: str, queue_id: int, queue_offset: int, end: str = "max") -> tuple[bytes, bytes]:
    """Return the row that says a queue's last unit, or with `min` its first."""
    name = topic.encode()
    key = struct.pack(">i", len(name)) + b"\1" + name + b"\1" + end.encode() + b"\1" + struct.pack(">I", queue_id)
    return key, struct.pack(">qq", 0, queue_offset)


def timer_row(due_ms: int, unique_key: str, size: int, physical_offset: int) -> tuple[bytes, bytes]:
    """Return the row of a timer message in rocksdbstore/."""
    return struct.pack(">q", due_ms) + unique_key.encode(), struct.pack(">iq", size, physical_offset)
