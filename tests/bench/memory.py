"""The most memory that commands have on 1 GiB and on 20 GiB: it must be the same."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

from tests.bench.command import peak_memory
from tests.bench.stores import written_store
from tests.support.log_maker import BLANK, V1

FILE_SIZE = 1 << 30
BODY_SIZE = 256 * 1024
COMMANDS = {
    "verify --level 1": ["verify", "--level", "1"],
    "verify": ["verify"],
    "dump -o jsonl": ["dump", "-o", "jsonl"],
    "dump --tag": ["dump", "-o", "jsonl", "--tag", "TagB"],
    "recover --dry-run": ["recover", "--dry-run", "-o", "json"],
    "query --scan": ["query", "--scan", "--topic", "topic-0", "--key", "order-4711"],
    "info": ["info"],
    "queue": ["queue"],
}


def memory_rows(work: Path) -> list[list[str]]:
    """A row a command: on 1 and on 20 GiB of large bodies, and on 1 GiB of 100-byte bodies by eight threads."""
    stores = [_sparse_store(work / f"sparse-{files}", files) for files in (1, 20)]
    small_bodies = written_store(work, 100)
    rows = []
    for what, (verb, *options) in COMMANDS.items():
        threads = ["--threads", "8"] if verb in ("verify", "dump", "query", "recover") else []
        peaks = [peak_memory([verb, str(store), *options]) for store in stores]
        peaks.append(peak_memory([verb, str(small_bodies), *options, *threads]))
        rows.append([what, *(f"{peak / 1e6:.0f}" for peak in peaks)])
    return rows


def _sparse_store(store: Path, files: int) -> Path:
    """A log of whole files; bodies are zeros, and so are holes on disk."""
    folder = store / "commitlog"
    if not store.exists():
        folder.mkdir(parents=True)
        body_crc = zlib.crc32(bytes(BODY_SIZE)) & 0x7FFFFFFF
        for number in range(files):
            _write_file(folder / f"{number * FILE_SIZE:020d}", number * FILE_SIZE, body_crc)
    return store


def _write_file(path: Path, base: int, body_crc: int) -> None:
    tail = b"\x09OrderPaid" + struct.pack(">h", 9) + b"TAGS\x01TagA"
    size = 88 + BODY_SIZE + len(tail)
    with path.open("wb") as file:
        file.truncate(FILE_SIZE)
        position = 0
        while position + size + 8 <= FILE_SIZE:
            file.seek(position)
            offset = (base + position) // size
            head = struct.pack(">iIIiiqqiq", size, V1, body_crc, 0, 0, offset, base + position, 0, 1_795_252_516_848)
            hosts = struct.pack(">Qq", 0, 1_795_252_516_848) + bytes(8)
            file.write(head + hosts + struct.pack(">iqi", 0, 0, BODY_SIZE))
            file.seek(position + 88 + BODY_SIZE)
            file.write(tail)
            position += size
        file.seek(position)
        file.write(struct.pack(">iI", FILE_SIZE - position, BLANK))
