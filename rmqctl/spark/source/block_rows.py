"""Make a row with a digest for each block of a log, to compare two logs.

A block is BLOCK_SIZE bytes of physical offsets, and has the records that begin there. A split can have a part of a
block. Equal digests (SHA-256) prove that two parts have equal records. Parts without an equal part in the other log are
read again, record by record.
"""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format.message import Blank, Damage
from rmqctl.kernels import row_scan
from rmqctl.kernels.row_scan import TextTable
from rmqctl.spark.source.message_schema import KIND_BLOCK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.columns import Rows
    from rmqctl.logfile.column_reader import Columns
    from rmqctl.spark.source.message_schema import Blocks
    from rmqctl.store.read.file_scan import ScanItem

BLOCK_SIZE = 1024 * 1024
# the fields that `job diff` compares, as bytes of one size; the topic as a digest
FINGERPRINTS = np.dtype(
    [
        ("physical_offset", "<i8"), ("queue_offset", "<i8"), ("store_timestamp", "<i8"), ("size", "<i4"),
        ("queue_id", "<i4"), ("body_crc", "<i8"), ("topic", "V32"),
    ]
)  # fmt: skip
SCANNED = ("queue_offset", "store_timestamp", "size", "queue_id")


class _Part:
    """The part [begin, end) of a block, while it is read."""

    def __init__(self, block: int, begin: int) -> None:
        self.block, self.begin, self.end = block, begin, begin
        self.messages = 0
        self.hash: Any = hashlib.sha256()
        self.has_damage = False

    def row(self, file: int) -> dict[str, Any]:
        # `file` is the number of the part's file
        digest = None if self.hash is None else self.hash.digest()
        row = {"kind": KIND_BLOCK, "detail": None, "block": self.block, "fileNumber": file, "begin": self.begin}
        return row | {"end": self.end, "messages": self.messages, "digest": digest}


class BlockRows:
    """Makes the rows of BLOCK_COLUMNS for a split of the file with the number `file`.

    `schema` is their pyarrow schema. A damage and all that follows it in the split is one part, so that it is read
    again as it was read here.
    """

    def __init__(self, file: int, schema: Any, blocks: Blocks) -> None:
        self._file = file
        self._schema = schema
        self._bodies = blocks.bodies
        self._topics, self._hosts = TextTable(), TextTable()
        self._digests = np.zeros(0, "V32")
        self._part: _Part | None = None
        self._rows: list[dict[str, Any]] = []

    def of_run(self, columns: Columns) -> None:
        """Add the messages of a record run to the digests."""
        offsets = columns.rows["position"] + columns.physical_offset
        ends = offsets + columns.rows["size"]
        blocks = offsets // BLOCK_SIZE
        data = None if self._bodies else self._fingerprints(columns, offsets)
        cuts = [0, *(np.flatnonzero(np.diff(blocks)) + 1).tolist(), len(offsets)]
        for first, stop in pairwise(cuts):
            begin, end = int(offsets[first]), int(ends[stop - 1])
            part = self._part_at(begin)
            part.end, part.messages = end, part.messages + stop - first
            if part.hash is not None:
                base = columns.physical_offset
                part.hash.update(columns.buffer[begin - base : end - base] if data is None else data[first:stop])

    def of_item(self, item: ScanItem, path: str) -> list[dict[str, Any]]:
        """Add damage or a very large message to its part, which then has no digest."""
        del path
        if isinstance(item, Blank):
            if self._part is not None and self._part.has_damage:
                self._part.end = item.end
            return []
        part = self._part_at(item.physical_offset)
        part.hash = None
        part.end = max(item.end, item.physical_offset + 1)
        part.has_damage |= isinstance(item, Damage)
        part.messages += not isinstance(item, Damage)
        return []

    def rest(self) -> Any:
        """Return the record batch of all parts."""
        import pyarrow as pa

        rows = self._rows + ([] if self._part is None else [self._part.row(self._file)])
        return pa.RecordBatch.from_pylist(rows, schema=self._schema) if rows else None

    def _part_at(self, offset: int) -> _Part:
        block = offset // BLOCK_SIZE
        if self._part is None or (self._part.block != block and not self._part.has_damage):
            self._rows += [] if self._part is None else [self._part.row(self._file)]
            self._part = _Part(block, offset)
        return self._part

    def _fingerprints(self, columns: Columns, offsets: Rows) -> Any:
        described = row_scan.describe(columns.buffer, columns.rows, self._topics, self._hosts, with_values=False)
        new = [hashlib.sha256(text).digest() for text in self._topics.texts[len(self._digests) :]]
        self._digests = np.concatenate((self._digests, np.array(new, "V32")))
        found = np.empty(len(offsets), FINGERPRINTS)
        for name in SCANNED:
            found[name] = columns.rows[name]
        found["physical_offset"] = offsets
        found["body_crc"] = described["body_crc"]
        found["topic"] = self._digests[described["topic"]]
        return found.view(np.uint8).reshape(len(found), -1)


def damage_rows(damages: Sequence[Damage]) -> list[dict[str, Any]]:
    """Return the rows for damage between the files of a log.

    Their parts have no digest, so that the blocks are read again.
    """
    rows = []
    for damage in damages:
        part = _Part(damage.physical_offset // BLOCK_SIZE, damage.physical_offset)
        part.hash = None
        rows.append(part.row(-1))
    return rows
