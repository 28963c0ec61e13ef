"""The receipts in the store, which record the files that `clean` deleted.

`operations/clean/receipts.py` writes them.
"""

from __future__ import annotations

import io
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from rmqctl.format.body import bounded_json
from rmqctl.logfile.mapped_file_queue import is_file_name
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import QUEUE_PARTS

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage

RECEIPTS_NAME = "rmqctl-clean.log"
ROTATED = ("", ".1")  # what logrotate took away last, too
RECEIPTS_SIZE_MAX = 64 * 1024 * 1024
LINE_SIZE_MAX = 64 * 1024
SIGNS_MAX = 10_000


class Receipt(msgspec.Struct):
    """The fields of a receipt that are needed here: path and size of a file."""

    path: str
    bytes: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class ReceiptsRead(NamedTuple):
    """The result of a search for a receipt that explains where the log begins."""

    is_cleaned: bool
    ignored: list[str]  # `file:line` of each line that is not a receipt


def read_receipts(storage: Storage, root: Path, offset: int) -> ReceiptsRead:
    """Return whether receipts record that `clean` deleted a file of the log.

    The file ended at the physical offset `offset`. Raises OSError, for example if the path of the receipts is not a
    file.
    """
    found = ReceiptsRead(False, [])
    for name in (f"{RECEIPTS_NAME}{ending}" for ending in ROTATED):
        if storage.entry(root / name).kind is Kind.MISSING:
            continue
        for number, line in enumerate(io.BytesIO(storage.read_file(root / name, RECEIPTS_SIZE_MAX)), 1):
            receipt = _receipt(line)
            if receipt is None and line.strip():
                found.ignored.append(f"{name}:{number}")
            elif receipt is not None and _log_end(receipt) == offset:
                found = found._replace(is_cleaned=True)
    return found


def _log_end(receipt: Receipt) -> int | None:
    # the physical offset at which a deleted file of the log ended, None for other files
    path = PurePath(receipt.path)
    return int(path.name) + receipt.bytes if is_file_name(path.name) and path.parts[0] not in QUEUE_PARTS else None


def _receipt(line: bytes) -> Receipt | None:
    # the receipt in a line, or None for another line, or one that a crash cut
    if len(line) > LINE_SIZE_MAX:
        return None
    try:
        return msgspec.convert(bounded_json.loads(line.decode(), SIGNS_MAX), Receipt)
    except (ValueError, msgspec.ValidationError):
        return None
