"""The header that DLedger puts before each record of its log.

The files of DLedger's log are in `dledger-ID/data/`. An entry is a header and one ordinary record.

{table}

A file ends with a blank: the magic code -1 and the number of bytes left in the file, 4 bytes each.

In a valid header, MAGIC is 1, POS is the physical offset of the entry, SIZE is BODYSIZE plus 48, the entry ends inside
its file, and channel, chainCrc and bodyCrc are 0, as brokers write them. From one entry to the next, the index
increases by one and the term never decreases; to check that takes the previous entry. The PHYSICALOFFSET of the record
is POS + 48.

DLedger's own index, in `dledger-ID/index/`, has a unit for each entry, at 32 times its index:

{units}

Its files have 160 MiB, and holes. Entries after `committedIndex` (in the text file dledger-ID/checkpoint) may be
uncommitted.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqctl.format.layout import Field, Layout
from rmqctl.format.message import MIN_SIZE

ENTRY_HEADER = Layout(
    "entry header",
    (
        Field("magic", "i", "1; -1 in a blank"),
        Field("size", "i", "bytes of the entry; in a blank: left in the file"),
        Field("index", "q", "number of the entry, from 0"),
        Field("term", "q", "of the leader that appended it"),
        Field("pos", "q", "physical offset of the entry"),
        Field("channel", "i", "0"),
        Field("chainCrc", "i", "0"),
        Field("bodyCrc", "i", "0"),
        Field("bodySize", "i", "bytes of the record"),
    ),
)
ENTRY_UNIT = Layout(
    "unit of DLedger's index",
    (
        Field("magic", "i", "1"),
        Field("pos", "q", "physical offset of the entry"),
        Field("size", "i", "bytes of the entry"),
        Field("index", "q", "number of the entry"),
        Field("term", "q", "as in the entry"),
    ),
)
ENTRY_INDEX_FILE_SIZE = 5 * 1024 * 1024 * ENTRY_UNIT.size
MAGIC_ENTRY, MAGIC_ENTRY_BLANK = 1, -1
if ENTRY_HEADER.size != 48:
    raise AssertionError("the header of an entry is 48 bytes")
__doc__ = (__doc__ or "").format(table=ENTRY_HEADER.table(), units=ENTRY_UNIT.table())


class EntryHeader(NamedTuple):
    """The 48 bytes before a record; sizes and `pos` are in bytes."""

    magic: int
    size: int
    entry_index: int
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_size: int

    @property
    def unit(self) -> bytes:
        """The unit of this entry in DLedger's index."""
        return ENTRY_UNIT.struct.pack(self.magic, self.pos, self.size, self.entry_index, self.term)

    def problem(self, position: int, room: int) -> str:
        """Return the fault of the header; empty if the header is valid.

        `position` is the physical offset of the entry, `room` the bytes from there to the end of the file.
        """
        if self.magic != MAGIC_ENTRY:
            return f"its magic code is {self.magic}, not {MAGIC_ENTRY}"
        if self.pos != position:
            return f"pos is {self.pos}, the entry is at {position}"
        if self.body_size < MIN_SIZE or self.size != ENTRY_HEADER.size + self.body_size:
            return f"size is {self.size}, bodySize {self.body_size}: they do not fit each other"
        if self.size > room:
            return f"size is {self.size}; {room} bytes are left in the file"
        if self.channel or self.chain_crc or self.body_crc:
            return "channel, chainCrc and bodyCrc are not all 0"
        return ""


def decode_entry_header(raw: bytes | memoryview, position: int = 0) -> EntryHeader:
    """Decode the header of an entry (48 bytes) at `position` in `raw`."""
    return EntryHeader._make(ENTRY_HEADER.struct.unpack_from(raw, position))
