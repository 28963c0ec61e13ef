"""Bytes, numbers and JSON in a store's files, read and overwritten."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

UNIT = 20
FIRST_FILE = f"{0:020d}"
LOG_FILE_SIZE = 65536
QUEUE_FILE = f"consumequeue/OrderPaid/0/{FIRST_FILE}"


def write_at(path: Path, offset: int, data: bytes) -> None:
    """Write bytes at an offset of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def flip_bits(path: Path, offset: int, bits: int = 1) -> None:
    """Flip bits of the byte at an offset of a file."""
    (byte,) = peek(path, offset, "B")
    poke(path, offset, "B", byte ^ bits)


def overwrite(root: Path, physical_offset: int, data: bytes) -> None:
    """Write bytes into a file of the log."""
    path = max(path for path in (root / "commitlog").iterdir() if int(path.name) <= physical_offset)
    write_at(path, physical_offset - int(path.name), data)


def poke(path: Path, offset: int, layout: str, *values: int) -> None:
    """Write numbers, big-endian, at an offset of a file."""
    write_at(path, offset, struct.pack(f">{layout}", *values))


def peek(path: Path, offset: int, layout: str) -> tuple[int, ...]:
    """The numbers at an offset of a file."""
    with path.open("rb") as file:
        file.seek(offset)
        return struct.unpack(f">{layout}", file.read(struct.calcsize(f">{layout}")))


def set_unit(root: Path, number: int, unit: tuple[int, int, int], name: str = QUEUE_FILE) -> None:
    poke(root / name, number * UNIT, "qiq", *unit)


def get_unit(root: Path, number: int, name: str = QUEUE_FILE) -> tuple[int, int, int]:
    physical_offset, size, tags_code = peek(root / name, number * UNIT, "qiq")
    return physical_offset, size, tags_code


def write_queue(
    root: Path, topic: str, queue_id: int, units: Iterable[tuple[int, int, int]], *, slots: int = 50
) -> str:
    """A queue of one file; returns its name in the store."""
    name = f"consumequeue/{topic}/{queue_id}/{FIRST_FILE}"
    (root / name).parent.mkdir(parents=True)
    (root / name).write_bytes(b"".join(struct.pack(">qiq", *unit) for unit in units).ljust(slots * UNIT, b"\0"))
    return name


def edit_json(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Change a config file whose keys are quoted."""
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
