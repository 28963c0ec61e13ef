"""Writes small commit logs for tests, byte by byte as FORMAT says: an encoder that shares nothing with the decoder
under test.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from tests.support.file_edits import write_at

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
BORN_V6, STORE_V6 = 16, 32
FILE_SIZE = 4096  # of a Log


@dataclass
class Record:
    """What goes into one record; the rest is made up."""

    topic: str = "OrderPaid"
    queue_id: int = 1
    queue_offset: int = 0
    body: bytes = b"hello"
    properties: bytes = b"TAGS\x01TagA\x02KEYS\x01k1 k2\x02"
    sys_flag: int = 0
    magic: int = V1
    store_timestamp: int = 1_795_252_516_848
    property_crc: bool = False


def encode(record: Record, physical_offset: int) -> bytes:
    """The record's bytes at a physical offset."""
    born = bytes(range(16)) if record.sys_flag & BORN_V6 else bytes([10, 1, 2, 3])
    store = bytes(range(16, 32)) if record.sys_flag & STORE_V6 else bytes([192, 168, 7, 9])
    topic = record.topic.encode()
    properties_length = len(record.properties) + (20 if record.property_crc else 0)
    body_crc = zlib.crc32(record.body) & 0x7FFFFFFF
    numbers = (body_crc, record.queue_id, 3, record.queue_offset, physical_offset, record.sys_flag, 1_795_252_516_000)
    rest = (
        struct.pack(">Iiiqqiq", *numbers)
        + born + struct.pack(">i", 30001) + struct.pack(">q", record.store_timestamp) + store
        + struct.pack(">iiqi", 10911, 0, 0, len(record.body)) + record.body
        + struct.pack(">B" if record.magic == V1 else ">h", len(topic)) + topic
        + struct.pack(">h", properties_length) + record.properties
    )  # fmt: skip
    size = 8 + len(rest) + (20 if record.property_crc else 0)
    encoded = struct.pack(">iI", size, record.magic) + rest
    if record.property_crc:
        encoded += b"__CRC32#\x01" + f"{zlib.crc32(encoded) & 0x7FFFFFFF:010d}"[::-1].encode() + b"\x02"
    return encoded


def log_bytes(records: list[Record], base: int = 0) -> bytes:
    """The records one after the other."""
    out = b""
    for record in records:
        out += encode(record, base + len(out))
    return out


def write_log(root: Path, records: list[Record], *, file_size: int | None = None, blank: bool = False) -> bytes:
    """A store at `root` with one commit log file: the records, and a blank or zeros up to `file_size`.

    Returns the file's bytes.
    """
    data = log_bytes(records)
    if file_size is not None:
        room = file_size - len(data)
        data += (struct.pack(">iI", room, BLANK) + bytes(room - 8)) if blank else bytes(room)
    folder = root / "commitlog"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020d}").write_bytes(data)
    return data


def sample_records(count: int, *, magic: int = V1, sys_flag: int = 0, property_crc: bool = False) -> list[Record]:
    """Records that differ in body, keys and queue."""
    return [
        Record(
            topic="OrderPaid" if magic == V1 else "T" * 130,
            queue_id=i % 3,
            queue_offset=i // 3,
            body=bytes((i * 7 + j) % 251 for j in range(i % 23)),
            properties=f"TAGS\x01Tag{i % 4}\x02KEYS\x01key-{i}\x02UNIQ_KEY\x01{i:032X}\x02".encode(),
            sys_flag=sys_flag,
            magic=magic,
            store_timestamp=1_795_252_516_848 + i,
            property_crc=property_crc,
        )
        for i in range(count)
    ]


def entry(record: Record, position: int, index: int, term: int = 0) -> bytes:
    """The entry of DLedger's log at `position`: its header of 48 bytes, and the record."""
    encoded = encode(record, position + 48)
    return struct.pack(">iiqqqiiii", 1, 48 + len(encoded), index, term, position, 0, 0, 0, len(encoded)) + encoded


def write_entries(root: Path, counts: list[int], *, base: int = 0, file_size: int = 2048) -> list[list[int]]:
    """A DLedger log below `root` with so many entries in each file, all but the last closed by a blank; where the
    entries begin.
    """
    data = root / "dledger-n0" / "data"
    data.mkdir(parents=True)
    starts: list[list[int]] = []
    index = 0
    for number, count in enumerate(counts):
        first, out = base + number * file_size, b""
        starts.append([])
        for _ in range(count):
            starts[-1].append(first + len(out))
            out += entry(Record(queue_offset=index, body=b"hello %d" % index), first + len(out), index)
            index += 1
        if number < len(counts) - 1:
            out += struct.pack(">ii", -1, file_size - len(out))
        (data / f"{first:020d}").write_bytes(out.ljust(file_size, b"\0"))
    return starts


def placed(records: list[Record]) -> list[tuple[Record, int, int]]:
    """(record, physical offset, size) as write_log places them."""
    out = []
    at = 0
    for record in records:
        size = len(encode(record, at))
        out.append((record, at, size))
        at += size
    return out


def java_hash(text: str) -> int:
    """String.hashCode() over UTF-16 units."""
    value = 0
    for unit in struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be")):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def of_properties(**properties: str) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode()


class Log:
    """A log that is written as a broker does: into files of zeros, closed by blanks."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.end = 0
        (root / "commitlog").mkdir(parents=True)
        self._new_file()

    def append(self, record: Record, *, part: float = 1.0) -> int:
        """Write a record, or the first part of one; its offset."""
        raw = encode(record, self.end)
        room = FILE_SIZE - self.end % FILE_SIZE
        if len(raw) + 8 > room:
            self._write(struct.pack(">iI", room, BLANK))
            self.end += room
            self._new_file()
            raw = encode(record, self.end)
        at = self.end
        self._write(raw[: int(len(raw) * part)])
        self.end += len(raw) if part == 1.0 else 0
        return at

    def _new_file(self) -> None:
        (self.root / "commitlog" / f"{self.end:020d}").write_bytes(bytes(FILE_SIZE))

    def _write(self, raw: bytes) -> None:
        write_at(self.root / "commitlog" / f"{self.end - self.end % FILE_SIZE:020d}", self.end % FILE_SIZE, raw)
