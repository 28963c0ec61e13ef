"""Golden stores before any damage, unpacked once a process: where their records lie, how large their files are, how
brokers open them.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from rmqctl.format.profile import PROFILES
from tests.support.golden_archive import blocks_of, write_archive

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
BORNHOST_V6, STOREHOST_V6 = 16, 32
LARGE_AND_APART = ("compaction", "timerwheel")  # hundreds of MB of zeros, and not what is damaged
SLOT_SIZE, ENTRIES_A_SLOT, ENTRY_SIZE, INDEX_HEADER_SIZE = 4, 4, 20, 40


class Field(NamedTuple):
    """A field of a record: its place in the file, and its bytes."""

    at: int
    size: int


class Record(NamedTuple):
    """A record of a log file, by its frame: the name of the file, the place there, and where its fields are."""

    file: str
    at: int
    size: int
    fields: dict[str, Field]


class Pristine:
    """A golden store `name` of the folder `golden`, unpacked below `scratch`."""

    def __init__(self, name: str, golden: Path, scratch: Path) -> None:
        self.name = name
        folder = scratch / "pristine" / name
        if not folder.exists():
            write_archive(golden / f"{name}.tar.xz", folder)
        self.root = folder / "store"
        for name_of_large in LARGE_AND_APART:
            path = self.root / name_of_large
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        topics = self.root / "config" / "topics.json"
        if topics.exists():
            topics.write_text(topics.read_text().replace('"cleanup.policy":"COMPACTION"', ""))  # as compaction/ is gone

    @property
    def version(self) -> str:
        """The broker's, such as `4.9.7`."""
        return ".".join(self.name.removeprefix("broker-")[:3])

    @property
    def profile(self) -> str:
        """The one of rmqctl for that version."""
        major, minor = (int(part) for part in self.version.split(".")[:2])
        if (major, minor) >= (5, 4) and "5.4" in PROFILES:
            return "5.4"
        return "5.3" if major >= 5 else "4.9" if (major, minor) >= (4, 9) else "4.7"

    @property
    def settings(self) -> dict[str, str]:
        """What the broker was told, beside the sizes."""
        if "lmq" in self.name:
            return {"enableLmq": "true", "enableMultiDispatch": "true"}
        return {"enableConsumeQueueExt": "true"} if "cqext" in self.name else {}

    @cached_property
    def log_files(self) -> list[Path]:
        """In their order."""
        return sorted((self.root / "commitlog").iterdir())

    @property
    def log_file_size(self) -> int:
        """Bytes."""
        return self.log_files[0].stat().st_size

    @cached_property
    def queue_file_size(self) -> int:
        """Bytes."""
        return next(
            path.stat().st_size
            for path in sorted((self.root / "consumequeue").rglob("0*"))
            if path.is_file() and path.stat().st_size
        )

    @cached_property
    def index_slots(self) -> int:
        """How many slots an index file has; entries are four times as many."""
        size = next((path.stat().st_size for path in sorted((self.root / "index").glob("2*"))), None)
        return 100 if size is None else (size - INDEX_HEADER_SIZE) // (SLOT_SIZE + ENTRIES_A_SLOT * ENTRY_SIZE)

    def broker_conf(self) -> dict[str, str]:
        """What a copy's files may not show any more."""
        return self.settings | {
            "mappedFileSizeCommitLog": str(self.log_file_size),
            "mappedFileSizeConsumeQueue": str(self.queue_file_size),
            "maxHashSlotNum": str(self.index_slots),
            "maxIndexNum": str(ENTRIES_A_SLOT * self.index_slots),
        }

    @cached_property
    def records(self) -> list[Record]:
        """The messages of the log."""
        return [record for path in self.log_files for record in records_of(path.name, path.read_bytes())]

    @cached_property
    def blanks(self) -> list[Record]:
        """The blank at the end of each file that has one."""
        found = []
        for path in self.log_files:
            data = path.read_bytes()
            at = max((record.at + record.size for record in self.records if record.file == path.name), default=0)
            if len(data) - at >= 8 and struct.unpack_from(">I", data, at + 4)[0] == BLANK:
                found.append(Record(path.name, at, 8, {"size": Field(at, 4), "magic": Field(at + 4, 4)}))
        return found

    def copy(self, to: Path) -> Path:
        """A copy of the store with its times; returns its root."""
        return copy_store(self.root, to)


def copy_store(root: Path, to: Path) -> Path:
    """Copy a store with its times to `to`, which is returned; zeros become holes, which files of an extension consist
    of.
    """
    shutil.copytree(root, to, copy_function=_copy_with_holes)
    return to


def _copy_with_holes(source: str, target: str) -> str:
    with Path(target).open("wb") as file:
        for at, block in blocks_of(Path(source)):
            file.seek(at)
            file.write(block)
        file.truncate(Path(source).stat().st_size)
    shutil.copystat(source, target)
    return target


def stores_of(golden: Path, scratch: Path, is_wanted: Callable[[str], bool] = lambda _: True) -> dict[str, Pristine]:
    """The golden stores of a folder of which brokers say what is in them: those that rmqctl reads.

    They are unpacked below `scratch`.
    """
    names = sorted(path.name.removesuffix(".expected.json.xz") for path in golden.glob("*.expected.json.xz"))
    return {name: Pristine(name, golden, scratch) for name in names if is_wanted(name)}


def records_of(name: str, data: bytes) -> list[Record]:
    """The messages from a file's begin on, up to what is none; RocketMQ's CommitLog.checkMessageAndReturnSize without
    its checks.
    """
    found = []
    at = 0
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if magic not in (V1, V2) or size < 91 or at + size > len(data):
            break
        found.append(Record(name, at, size, _fields(data, at, is_long=magic == V2)))
        at += size
    return found


def _fields(data: bytes, at: int, *, is_long: bool) -> dict[str, Field]:
    flags = int.from_bytes(data[at + 36 : at + 40])
    sizes = {
        "size": 4,
        "magic": 4,
        "body-crc": 4,
        "queue-id": 4,
        "flag": 4,
        "queue-offset": 8,
        "physical-offset": 8,
        "sys-flag": 4,
    }
    sizes |= {"born-timestamp": 8, "born-host": 20 if flags & BORNHOST_V6 else 8, "store-timestamp": 8}
    sizes |= {
        "store-host": 20 if flags & STOREHOST_V6 else 8,
        "reconsume-times": 4,
        "prepared-offset": 8,
        "body-length": 4,
    }
    found = {}
    place = at
    for name, size in sizes.items():
        found[name] = Field(place, size)
        place += size
    body = int.from_bytes(data[place - 4 : place], signed=True)
    found["body"] = Field(place, body)
    place += body
    length_size = 2 if is_long else 1
    topic = int.from_bytes(data[place : place + length_size])
    found["topic-length"] = Field(place, length_size)
    found["topic"] = Field(place + length_size, topic)
    place += length_size + topic
    found["properties-length"] = Field(place, 2)
    found["properties"] = Field(place + 2, int.from_bytes(data[place : place + 2]))
    return found
