"""The golden store with a consume queue extension, without the 15 x 48 MiB of zeros of its other queues."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.conftest import DATA, READABLE_NAMES

NAME = "471-cqext"
QUEUE = ("%RETRY%billing", 0)
SMALL_NAMES = [name for name in READABLE_NAMES if name != NAME]
USED_MAX = 64 * 1024  # no file of a queue or extension is filled further
_FIRST_LEFT_OUT = "store/consumequeue_ext/%RETRY%billing/1"


def unpack_cqext(into: Path) -> Path:
    """The log, every queue, and the extension of `QUEUE`; returns the store's root."""
    with tarfile.open(DATA / f"{NAME}.tar.xz") as tar:
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11 has it since 3.11.4
        for member in tar:
            if member.name == _FIRST_LEFT_OUT:
                break
            tar.extract(member, into)
    return into / "store"


def used_parts(folder: str) -> dict[str, bytes]:
    """The used part of every file below a folder of the golden store, by its path in the store; read
    from the archive.
    """
    found = {}
    with tarfile.open(DATA / f"{NAME}.tar.xz") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.name.startswith(f"store/{folder}/") and member.isfile() else None
            if file is not None:
                found[member.name.removeprefix("store/")] = file.read(USED_MAX).rstrip(b"\0")
    return found
