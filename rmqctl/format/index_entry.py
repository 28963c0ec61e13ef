"""The index file: a header, a table of hash slots, and entries.

Each entry contains the number of the previous entry in the same slot.

Header:

{header}

A slot has 4 bytes: the number of its newest entry, or 0 without one. By default, a file has 5 000 000 slots and 20 000
000 entries. The entries are numbered from 0, but entry 0 is not used. Entry:

{entry}

The indexed text of a key is `topic#key`. For a message with TAGS, brokers of 5.4.0 and later add an entry for the text
`topic#T#TAGS`. The keyHash is the absolute value of the text's hashCode, or 0 for Integer.MIN_VALUE, and the slot
number is keyHash modulo the number of slots. Two keys may have the same hash, so a reader must compare the keys in the
messages.

An entry is valid if and only if its number is below indexCount, its prevIndex is below its number, and it is in the
slot chain of its keyHash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import properties
from rmqctl.format.layout import Field, Layout
from rmqctl.format.properties import hash_code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.format.message import Message

INDEX_HEADER = Layout(
    "index header",
    (
        Field("beginTimestamp", "q", "store time of the first entry's message"),
        Field("endTimestamp", "q", "store time of the last entry's message"),
        Field("beginPhyOffset", "q"),
        Field("endPhyOffset", "q"),
        Field("hashSlotCount", "i", "slots occupied (up to 4.7.0: entries)"),
        Field("indexCount", "i", "number of the next entry; starts at 1; 4.x: 0 in a file without an entry"),
    ),
)
INDEX_ENTRY = Layout(
    "index entry",
    (
        Field("keyHash", "i"),
        Field("phyOffset", "q"),
        Field("timeDiff", "i", "seconds after beginTimestamp, clamped to [0, 2^31-1]"),
        Field("prevIndex", "i", "the slot's entry before this one; 0 for none"),
    ),
)
SLOT_SIZE = 4
ENTRY_FIRST = 1
ENTRIES_PER_SLOT = 4
TAG_KEY_PREFIX = "T#"  # MessageConst.INDEX_TAG_TYPE
TIME_DIFF_MAX = 2**31 - 1
if (INDEX_HEADER.size, INDEX_ENTRY.size) != (40, 20):
    raise AssertionError("the index header is 40 bytes, an entry 20")
__doc__ = (__doc__ or "").format(header=INDEX_HEADER.table(), entry=INDEX_ENTRY.table())


class IndexHeader(NamedTuple):
    """The first 40 bytes of an index file; times in ms, offsets in bytes."""

    begin_timestamp: int
    end_timestamp: int
    begin_phy_offset: int
    end_phy_offset: int
    hash_slot_count: int
    index_count: int

    def is_time_matched(self, begin: int, end: int) -> bool:
        """Return whether the file may have entries in [begin, end] (ms).

        The rule is IndexFile.isTimeMatched.
        """
        return begin <= self.end_timestamp and end >= self.begin_timestamp


class IndexEntry(NamedTuple):
    """One entry of an index file; `time_diff` is in seconds."""

    key_hash: int
    phy_offset: int
    time_diff: int
    prev_index: int


def decode_header(raw: bytes) -> IndexHeader:
    """Decode the header, which has 40 bytes."""
    return IndexHeader._make(INDEX_HEADER.struct.unpack(raw))


def decode_entry(raw: bytes) -> IndexEntry:
    """Decode an entry, which has 20 bytes."""
    return IndexEntry._make(INDEX_ENTRY.struct.unpack(raw))


def slots_of_file(file_size: int) -> int:
    """Return the number of slots in a file of `file_size` bytes.

    It is right only with four entries for each slot, as by default (maxHashSlotNum, maxIndexNum).
    """
    return max(file_size - INDEX_HEADER.size, 0) // (SLOT_SIZE + ENTRIES_PER_SLOT * INDEX_ENTRY.size)


def is_whole_file(file_size: int) -> bool:
    """Return whether a file of `file_size` bytes has only whole slots and entries.

    With four entries for each slot, as by default. False for most truncated files.
    """
    return (
        file_size > INDEX_HEADER.size
        and (file_size - INDEX_HEADER.size) % (SLOT_SIZE + ENTRIES_PER_SLOT * INDEX_ENTRY.size) == 0
    )


def tag_key_hash(topic: str, tags: str) -> int:
    """Return the keyHash of `topic#T#TAGS`.

    Brokers of 5.4.0 and later index this text to find the messages with a tag.
    """
    return key_hash(topic, TAG_KEY_PREFIX + tags)


def key_hash(topic: str, key: str) -> int:
    """Return the keyHash of `topic#key` (IndexFile.indexKeyHashMethod).

    It is |hashCode|, or 0 if the hashCode is Integer.MIN_VALUE.
    """
    return _positive(hash_code(f"{topic}#{key}"))


def key_hashes(topics: Iterable[str], key: str) -> dict[str, int]:
    """Return the keyHash of `topic#key` for each topic.

    The key is hashed only once: hashCode(a + b) = hashCode(a) * 31^(length of b) + hashCode(b), with Java's overflow.
    """
    of_key = hash_code(key)
    factor = pow(31, len(key.encode("utf-16-be", "surrogatepass")) // 2, 2**32)
    return {topic: _positive(hash_code(f"{topic}#") * factor + of_key) for topic in topics}


def _positive(hash_sum: int) -> int:
    """Return |h|, where h is `hash_sum` as a Java int; 0 for Integer.MIN_VALUE."""
    low = hash_sum & 0xFFFFFFFF
    return low if low < 2**31 else -low & 0x7FFFFFFF


def unique_key_hash(message: Message) -> int | None:
    """Return the keyHash of UNIQ_KEY; None if the message has no UNIQ_KEY."""
    unique = message.properties.get(properties.UNIQ_KEY)
    return key_hash(message.topic, unique) if unique else None
