"""Small stores whose files have the ages that a test asks for, byte by byte."""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.support.log_maker import BLANK, Record, encode

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z
HOUR_MS = 3_600_000
FILE_SIZE = 1024
RECORDS_A_FILE = 4
UNITS_A_FILE = 5
UNIT = struct.Struct(">qiq")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_SIZE = 40 + 10 * 4 + 40 * 20


def write_aged(root: Path, ages: Sequence[float], *, topic: str = "OrderPaid") -> Path:
    """A store with a file of four messages for each age, in hours since it was last written to: when the next one's
    first was stored.

    An index file ends with the first message of every second file.
    """
    stored = [ms(ages[0] + 1), *(ms(age) for age in ages[:-1])]
    write_store(root, [[Record(topic=topic, store_timestamp=time)] * RECORDS_A_FILE for time in stored])
    set_ages(root, ages)
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{}}')
    (root / "index").mkdir()
    for number, base in enumerate(range(0, len(ages) * FILE_SIZE, 2 * FILE_SIZE)):
        header = INDEX_HEADER.pack(NOW, NOW, 0, base, 1, 2)
        (root / "index" / f"202701010000000{number:02}").write_bytes(header.ljust(INDEX_SIZE, b"\0"))
    return root


def ms(hours: float) -> int:
    """The time so many hours before now."""
    return NOW - round(hours * HOUR_MS)


def set_ages(root: Path, ages: Iterable[float]) -> None:
    """When the log's files were last written to, in hours before now, oldest first."""
    for path, hours in zip(log_files(root), ages, strict=False):
        os.utime(path, ns=(ms(hours) * 1_000_000, ms(hours) * 1_000_000))


def log_files(root: Path) -> list[Path]:
    """The files of the log, oldest first."""
    return sorted((root / "commitlog").iterdir())


def write_store(root: Path, files: Sequence[Sequence[Record]], file_size: int = FILE_SIZE) -> Path:
    """A store whose log has these records in these files, and the queues that belong to them."""
    units: dict[tuple[str, int], bytes] = defaultdict(bytes)
    (root / "commitlog").mkdir(parents=True)
    for number, records in enumerate(files):
        base = number * file_size
        data = b""
        for record in records:
            key = record.topic, record.queue_id
            encoded = encode(replace(record, queue_offset=len(units[key]) // UNIT.size), base + len(data))
            units[key] += UNIT.pack(base + len(data), len(encoded), 0)
            data += encoded
        room = file_size - len(data)
        blank = struct.pack(">iI", room, BLANK) if number < len(files) - 1 else b""
        (root / "commitlog" / f"{base:020d}").write_bytes((data + blank).ljust(file_size, b"\0"))
    for (topic, queue_id), raw in units.items():
        write_queue(root / "consumequeue" / topic / str(queue_id), raw)
    return root


def write_queue(folder: Path, raw: bytes) -> None:
    """Files of a queue that have these units."""
    folder.mkdir(parents=True)
    size = UNITS_A_FILE * UNIT.size
    for base in range(0, len(raw), size):
        (folder / f"{base:020d}").write_bytes(raw[base : base + size].ljust(size, b"\0"))
