"""What `clean` once deleted, by the receipts that it left in the store (`receipts.py` writes them)."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from rmqctl.logfile.mapped_file_queue import is_file_name
from rmqctl.logfile.storage import Kind
from rmqctl.store.store_path import QUEUE_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.storage import Storage

RECEIPTS_NAME = "rmqctl-clean.log"
ROTATED = ("", ".1")  # what logrotate took away last, too
RECEIPTS_SIZE_MAX = 64 * 1024 * 1024


def is_cleaned_up_to(storage: Storage, root: Path, offset: int) -> bool:
    """Whether `clean` deleted the file of the log that ended at a physical offset. Raises OSError."""
    paths = [root / f"{RECEIPTS_NAME}{ending}" for ending in ROTATED]
    files = [path for path in paths if storage.entry(path).kind is Kind.FILE]
    return any(offset in _log_ends(storage.read_file(path, RECEIPTS_SIZE_MAX)) for path in files)


def _log_ends(receipts: bytes) -> Iterator[int]:
    """Physical offsets at which deleted files of the log ended. A line that a crash cut, or that is no receipt, is passed over."""
    for line in receipts.splitlines():
        try:
            receipt: Any = json.loads(line)
            path, size = PurePath(receipt["path"]), int(receipt["bytes"])
        except (ValueError, TypeError, KeyError):
            continue
        if is_file_name(path.name) and path.parts[0] not in QUEUE_PARTS:
            yield int(path.name) + size
