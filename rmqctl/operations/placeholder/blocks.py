"""Placeholders (`record.py`) that are planned but not written yet.

They are kept in memory as compressed blocks, because most of their bytes are spaces.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right, insort
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.format import message
from rmqctl.format.message import MIN_SIZE, Message
from rmqctl.format.sys_flag import TRANSACTION_MASK, TransactionType
from rmqctl.kernels import scan
from rmqctl.logfile.column_reader import Columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.format.columns import Flags, Rows

_FAST = 1
_BLOCKS_UNPACKED = 2


class PlaceholderBlock(NamedTuple):
    """Adjacent records that will be written into the log file `path`.

    The file may not exist yet, or may be too short for the records.
    """

    physical_offset: int  # of the first record
    path: str
    offset: int  # byte of the file where they are written
    size: int  # of `data`; if the last record is a blank, `data` has only its first 8 bytes
    code: str  # of the finding that reports the replaced damage
    served: int  # number of records that consumers receive
    packed: bytes

    @classmethod
    def pack(cls, physical_offset: int, path: str, offset: int, code: str, data: bytes) -> PlaceholderBlock:
        """Return a block of the records `data`."""
        block = cls(physical_offset, path, offset, len(data), code, 0, zlib.compress(data, _FAST))
        return block._replace(served=int(np.count_nonzero(are_served(block.columns().rows))))

    @property
    def data(self) -> bytes:
        """The records of the block, as bytes to be written."""
        return _unpacked(self.packed)

    @property
    def is_one_message(self) -> bool:
        """Whether the block is one placeholder that consumers receive."""
        return self.served == len(self.columns().rows) == 1

    def columns(self) -> Columns:
        """Return the placeholders and fillers of the block as columns.

        A blank has no row.
        """
        buffer = np.frombuffer(self.data, np.uint8)
        room = np.empty(self.size // MIN_SIZE, scan.RECORD_COLUMNS)
        rows = room[: scan.walk(buffer, self.physical_offset, self.size, room, check_bodies=True)]
        return Columns(self.physical_offset, int(rows["size"].sum(dtype=np.int64)), rows, buffer, self.path)

    def message_at(self, physical_offset: int) -> Message | None:
        """Return the block's record at a physical offset, or None."""
        at = physical_offset - self.physical_offset
        found = message.decode(self.data, at, physical_offset, self.size - at)
        return found if isinstance(found, Message) else None

    def describe(self) -> str:
        """Describe the planned write in one line."""
        return f"write placeholders, {self.size} bytes, at byte {self.offset} of {self.path}"

    def to_json(self) -> dict[str, Any]:
        """Return the planned write, without the data."""
        return {"action": "write", "path": self.path, "fileOffset": self.offset, "bytes": self.size}


class PlaceholderBlocks:
    """The placeholders of a repair; iteration yields the blocks in log order."""

    def __init__(self) -> None:
        self._by_damage: dict[int, Sequence[PlaceholderBlock]] = {}
        self._blocks: list[PlaceholderBlock] = []

    def put(self, damages_at: Sequence[int], blocks: Sequence[PlaceholderBlock]) -> None:
        """Add the blocks that replace the damages at the physical offsets `damages_at`."""
        self._by_damage |= dict.fromkeys(damages_at, ())
        self._by_damage[damages_at[0]] = blocks
        for block in blocks:
            insort(self._blocks, block)

    def of_damage(self, physical_offset: int) -> Sequence[PlaceholderBlock] | None:
        """Return the placeholders for the damage at a physical offset, None without one.

        If several damages lie between two good records, the first has the placeholders, and the others have none
        (empty).
        """
        return self._by_damage.get(physical_offset)

    def message_at(self, physical_offset: int) -> Message | None:
        """Return the placeholder that begins at a physical offset, or None."""
        at = bisect_right(self._blocks, physical_offset, key=lambda block: block.physical_offset) - 1
        return self._blocks[at].message_at(physical_offset) if at >= 0 else None

    @property
    def served(self) -> int:
        """The number of placeholders that consumers receive."""
        return sum(block.served for block in self._blocks)

    def __iter__(self) -> Iterator[PlaceholderBlock]:
        return iter(self._blocks)

    def __bool__(self) -> bool:
        return bool(self._by_damage)


def are_served(messages: Rows) -> Flags:
    """Return, for each row, whether consumers receive the message.

    `messages` must have the column `sys_flag`: fillers are rollbacks, which consumers do not receive.
    """
    found: Flags = (messages["sys_flag"] & TRANSACTION_MASK) != int(TransactionType.ROLLBACK)
    return found


@lru_cache(_BLOCKS_UNPACKED)
def _unpacked(packed: bytes) -> bytes:
    return zlib.decompress(packed)
