"""The witnesses outside the log: units and index entries that lead to a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format import properties
from rmqctl.format.cq_unit import BATCH_CQ_UNIT, CqUnit, is_ext_address
from rmqctl.format.index_entry import TIME_DIFF_MAX, key_hash, tag_key_hash, unique_key_hash
from rmqctl.format.sys_flag import TransactionType, transaction_type
from rmqctl.store.dispatch.dispatch_rules import batch_of, queue_destinations, right_tags_code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore

ENTRIES_MAX = 256  # index entries of one record that are read
REFUSED_MAX = 1024  # messages in a row that a broker may have numbered and then refused
# a damaged unit, or a damaged entry, refutes a good record in the same way
WEAK = frozenset({"unit's tagsCode", "index time"})


class Pointers(NamedTuple):
    """What leads to the record at `physical_offset`."""

    physical_offset: int
    units: tuple[tuple[QueueKey, CqUnit], ...]
    is_place_right: bool  # the units beside have the queue offsets of their messages
    hashes: frozenset[int]  # of the index entries
    times: tuple[tuple[int, int], ...]  # of the index entries: beginTimestamp (ms), timeDiff (s)
    are_tags_indexed: bool | None
    is_batch: bool

    @property
    def size(self) -> int | None:
        """The size of the record (bytes) by its unit, or None."""
        return self.units[0][1].size if self.units else None

    def refuted(self, message: Message) -> Iterator[str]:
        """Yield the names of the witnesses that refute a record."""
        if self.units:
            yield from self._refuted_by_units(message)
        if self.hashes:
            if self.hashes not in self._hashes_of(message):
                yield "index keys"
            if any(_time_diff(message, begin) != diff for begin, diff in self.times):
                yield "index time" if len(self.times) == 1 else "index times"

    def names(self) -> Iterator[str]:
        """Yield the names of the witnesses that there are."""
        yield from ("unit",) if self.units else ()
        yield from ("index",) if self.hashes else ()

    def _refuted_by_units(self, message: Message) -> Iterator[str]:
        own = next(iter(queue_destinations(message)), None)
        units = [unit for key, unit in self.units if own is not None and key == (own.topic, own.queue_id)]
        if own is None or not units:
            yield "unit's queue"
            return
        place = batch_of(message)[0] if self.is_batch else message.queue_offset
        if self.is_place_right and all(unit.queue_offset != place for unit in units):
            yield "unit's place"
        if all(unit.size != message.size for unit in units):
            yield "unit's size"
        codes = [unit.tags_code for unit in units if not is_ext_address(unit.tags_code)]
        if codes and not any(right_tags_code(own, message.store_timestamp, code) for code in codes):
            yield "unit's tagsCode"

    def _hashes_of(self, message: Message) -> list[frozenset[int]]:
        """Return the key hashes that the index may have for a message."""
        if transaction_type(message.sys_flag) is TransactionType.ROLLBACK:
            return [frozenset()]
        unique, tags = unique_key_hash(message), message.properties.get(properties.TAGS)
        hashes = {key_hash(message.topic, word) for word in properties.keys(message.properties)}
        hashes |= set() if unique is None else {unique}
        with_tags = hashes | ({tag_key_hash(message.topic, tags)} if tags else set())
        found = {True: [with_tags], False: [hashes]}
        return [frozenset(one) for one in found.get(bool(self.are_tags_indexed), [])] + (
            [frozenset(with_tags)] if self.are_tags_indexed is None else []
        )


def _time_diff(message: Message, begin: int) -> int:
    return min(max(message.store_timestamp - begin, 0) // 1000, TIME_DIFF_MAX) if begin > 0 else 0


def pointers_to(store: ReadOnlyStore, physical_offset: int, claimed: int | None) -> Pointers:
    """Find what leads to a record whose QUEUEOFFSET may be `claimed`. Raises OSError."""
    units: list[tuple[QueueKey, CqUnit]] = []
    is_place_right, is_batch = True, False
    for key, queue in store.queues.items():
        unit = queue.first_where(lambda one: one.physical_offset >= physical_offset)
        if unit is None or unit.physical_offset != physical_offset or key[0].startswith(properties.LMQ_PREFIX):
            continue
        units.append((key, unit))
        is_batch = is_batch or queue.unit_size == BATCH_CQ_UNIT.size
        is_place_right = is_place_right and (is_batch or _is_place_right(store, key, unit, claimed))
    hashes: set[int] = set()
    times: list[tuple[int, int]] = []
    if store.index.database is None:
        for file, header in store.index.files_between(physical_offset, physical_offset + 1):
            first = file.first_reaching(physical_offset, header.index_count)
            for entry in file.entries(first, min(first + ENTRIES_MAX, header.index_count)):
                if entry.phy_offset == physical_offset and physical_offset in file.phy_offsets(entry.key_hash):
                    hashes.add(entry.key_hash)
                    times.append((header.begin_timestamp, entry.time_diff))
    tagged = store.tags_are_indexed if hashes else None
    return Pointers(physical_offset, tuple(units), is_place_right, frozenset(hashes), tuple(times), tagged, is_batch)


def _is_place_right(store: ReadOnlyStore, key: QueueKey, unit: CqUnit, claimed: int | None) -> bool:
    """Return whether a message's QUEUEOFFSET is its place.

    Not if the broker numbered a message that it then refused: from there on, the messages have higher numbers.
    """
    beside = []
    for place in (unit.queue_offset - 1, unit.queue_offset + 1):
        other = store.unit(*key, place)
        message = None if other is None else store.commit_log.message_at(other.physical_offset)
        if message is not None and (message.topic, message.queue_id) == key:
            beside.append(message.queue_offset == place)
    is_last = store.unit(*key, unit.queue_offset + 1) is None
    may_be_behind_gap = is_last and claimed is not None and 0 < claimed - unit.queue_offset <= REFUSED_MAX
    return all(beside) and not may_be_behind_gap
