"""A log of a TiB that is nearly all holes, and how much of it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.system.storage import Storage
from tests.support.log_maker import BLANK, Record, encode

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GIB = 2**30
FILES = 1000


def write_sparse_log(root: Path) -> Path:
    """A thousand files of a GiB, each with one record and, but for the last, a blank."""
    (root / "commitlog").mkdir(parents=True)
    for number in range(FILES):
        data = encode(Record(), number * GIB)
        blank = (GIB - len(data)).to_bytes(4) + BLANK.to_bytes(4) if number < FILES - 1 else b""
        with (root / "commitlog" / f"{number * GIB:020d}").open("wb") as file:
            file.write(data + blank)
            file.truncate(GIB)
    return root


def watch_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each later read of a file gives."""
    read: list[int] = []
    real = Storage.read

    def counting(self: Storage, descriptor: int, position: int, size: int) -> bytes:
        data = real(self, descriptor, position, size)
        read.append(len(data))
        return data

    monkeypatch.setattr(Storage, "read", counting)
    return read
