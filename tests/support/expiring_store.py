"""Small stores whose files have the ages that a test asks for, byte by byte."""

from __future__ import annotations

import os
import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqctl.format.profile import PROFILE_4_9, Profile
from rmqctl.operations.clean.disk_use import DiskUse
from rmqctl.operations.clean.plan import plan_expiry
from rmqctl.operations.clean.plan_types import ExpiryPlan
from rmqctl.store.config.broker_conf import BrokerConf
from rmqctl.store.config.clean_config import ExpirySettings
from rmqctl.store.read.read_only_store import ReadOnlyStore
from tests.support.log_maker import BLANK, Record, encode

NOW = 1_800_000_000_000  # 2027-01-15T08:00:00Z
HOUR_MS = 3_600_000
FILE_SIZE = 1024
RECORDS_A_FILE = 4
UNITS_A_FILE = 5
UNIT = struct.Struct(">qiq")
INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_SIZE = 40 + 10 * 4 + 40 * 20
TIME: dict[str, Any] = {"delete_when": (8,)}  # NOW is 8 o'clock in UTC
OLD = (100, 90, 80, 1, 0)  # hours: three of five files have expired


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


def plan(
    root: Path,
    profile: Profile = PROFILE_4_9,
    *,
    now: int = NOW,
    disks: tuple[float, ...] = (50,),
    logics: float = 50,
    conf: BrokerConf | None = None,
    links: bool = False,
    **settings: Any,
) -> ExpiryPlan:
    """The plan with disks that are so full."""
    logics_disk = DiskUse(root / "consumequeue", logics)
    with closing(ReadOnlyStore(root, conf, follow_links=links)) as store:
        uses = [DiskUse(path, percent) for path, percent in zip(store.path.commitlogs, disks, strict=True)]
        return plan_expiry(store, ExpirySettings(**settings), profile, now_ms=now, disks=uses, logics_disk=logics_disk)


def removed(planned: ExpiryPlan) -> int:
    """How many files of the log go; the leading ones, always."""
    decisions = [file.goes for file in planned.files if file.kind == "commitlog"]
    assert decisions == sorted(decisions, reverse=True)
    return sum(decisions)


def first_left(planned: ExpiryPlan) -> str:
    """Why the first file of the log that is left stays."""
    return next(file.why for file in planned.files if file.kind == "commitlog" and not file.goes)
