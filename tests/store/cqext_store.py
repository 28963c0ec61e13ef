"""The golden store with a consume queue extension, without the 15 x 48 MiB of zeros of its other queues."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.conftest import DATA, READABLE_NAMES

NAME = "471-cqext"
QUEUE = ("%RETRY%billing", 0)
SMALL_NAMES = [name for name in READABLE_NAMES if name != NAME]
_FIRST_LEFT_OUT = "store/consumequeue_ext/%RETRY%billing/1"


def unpack_cqext(into: Path) -> Path:
    """The log, every queue, and the extension of `QUEUE`; returns the store's root."""
    with tarfile.open(DATA / f"{NAME}.tar.xz") as tar:
        for member in tar:
            if member.name == _FIRST_LEFT_OUT:
                break
            tar.extract(member, into, filter="data")
    return into / "store"
