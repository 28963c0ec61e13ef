"""The checkpoint of a DLedger node: the text file `dledger-ID/checkpoint`.

Its lines are `committedIndex=N` and `endIndex=N`: the last entry that the group has agreed on, and the last one that
the node has. DLedger writes it every few seconds, so a good log ends at `committedIndex` or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import CHECKPOINT

if TYPE_CHECKING:
    from pathlib import Path

    from rmqctl.logfile.system.storage import Storage

SIZE_MAX, DIGITS_MAX = 4096, 19
COMMITTED = "committedIndex="


def committed_index(storage: Storage, folder: Path) -> int | None:
    """Return `committedIndex` of the node in `folder`, or None without one.

    The file holds -1 before the first entry. Raises OSError.
    """
    path = folder / CHECKPOINT
    if storage.entry(path).kind is not Kind.FILE:
        return None
    lines = storage.read_file(path, SIZE_MAX).decode("latin-1").splitlines()
    found = next((line.removeprefix(COMMITTED).strip() for line in lines if line.startswith(COMMITTED)), "")
    return int(found) if found.isdecimal() and len(found) <= DIGITS_MAX else None
