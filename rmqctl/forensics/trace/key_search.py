"""The search for all records with a key in one store.

Brokers put every message into the index under its own topic, also half messages, delayed messages and retries, with
UNIQ_KEY and each word of KEYS. So one key is looked up in every topic that the store knows. Parts of the log that no
index file covers are read: the index may be younger than the log, behind it, or have lost a file.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.message_filter import Filter
from rmqctl.forensics.trace.stage import Record
from rmqctl.format.body.client_trace import TRACE_TOPIC
from rmqctl.format.message import Damage, Message
from rmqctl.store.config.config_file import table
from rmqctl.store.config.topics import (
    GROUP_PREFIXES,
    SCHEDULE_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
)
from rmqctl.store.read.commit_log import message_of
from rmqctl.store.read.consumers.consumer_groups import SUBSCRIPTION_GROUP
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets
from rmqctl.store.read.read_only_store import has_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.trace.log_scan import LogScan
    from rmqctl.store.read.read_only_store import ReadOnlyStore

WALK_RECORDS_MAX = 2000  # read one by one; a longer part is left to the kernels


class IndexedPlace(NamedTuple):
    """An index entry for the key that leads to no record.

    `stored_at` is the store time of the lost message in ms since 1970, exact to a second.
    """

    topic: str
    physical_offset: int
    stored_at: int


class KeySearch:
    """Searches the store of `scan`.

    `dangling` has the index entries for the key that lead to no record. `uses_index` is False if the index has no entry
    or must not be used (`by_scan`).
    """

    def __init__(self, scan: LogScan, *, by_scan: bool) -> None:
        self.scan = scan
        self.dangling: list[IndexedPlace] = []
        self._store = scan.store
        self._found: dict[str, dict[int, Record]] = {}
        self._scanned: set[str] = set()
        self.uses_index = not by_scan and bool(_spans(self._store))

    def records(self, key: str) -> list[Record]:
        """Return the records with a key, by the index or by a scan of the whole log."""
        if key not in self._found:
            self._found[key] = self._by_index(key) if self.uses_index else {}
            if not self.uses_index:
                self.by_scan(key)
        return list(self._found[key].values())

    def records_of_message(self, unique_key: str, key: str | None) -> list[Record]:
        """Return the records with a UNIQ_KEY.

        `key` is the key that led to the message, if it is one of KEYS. All records of the message have it, too, so a
        scan for this key found them all.
        """
        return self.records(key if key is not None and key in self._scanned else unique_key)

    def by_scan(self, key: str) -> list[Record]:
        """Return the records with a key, by a scan of the whole log."""
        known = self._found.setdefault(key, {})
        self._scanned.add(key)
        indexed = frozenset(known) if self.uses_index else None
        for record in self.scan.records(Filter(key=key)):
            at = record.message.physical_offset
            known[at] = replace(record, indexed=None if indexed is None else at in indexed)
        return list(known.values())

    def _by_index(self, key: str) -> dict[int, Record]:
        found: dict[int, Record] = {}
        for topic in sorted(_topics(self._store)):
            for offset in self._store.index.phy_offsets(topic, key):
                record = self._record_at(offset, key)
                if record is not None:
                    found[offset] = record
                elif message_of(self._store.commit_log.at(offset)) is None:
                    stored_at = self._store.index.stored_at(topic, key, offset)
                    self.dangling.append(IndexedPlace(topic, offset, stored_at or 0))
        for start, stop in self._not_covered():
            for record in self._part(key, start, stop):
                found.setdefault(record.message.physical_offset, record)
        return found

    def _record_at(self, offset: int, key: str) -> Record | None:
        item = self._store.commit_log.at(offset)
        message = message_of(item)
        if message is None or not has_key(message, key):
            return None
        damage = item.code if isinstance(item, Damage) else None
        return Record(self.scan.number, message, damage, indexed=True)

    def _not_covered(self) -> Iterator[tuple[int, int | None]]:
        """Yield the parts of the log that no index file covers: [from, to).

        `to` is None for the end of the log.
        """
        reached = self._store.commit_log.min_offset
        for begin, end in _spans(self._store):
            if begin > reached:
                yield reached, begin
            reached = max(reached, end)
        yield reached, None

    def _part(self, key: str, start: int, stop: int | None) -> list[Record]:
        """Return the records with a key in a part of the log.

        The kernels read a long part.
        """
        records: list[Record] = []
        position = start
        for _ in range(WALK_RECORDS_MAX):
            item = self._store.commit_log.at(position) if stop is None or position < stop else None
            if item is None or (isinstance(item, Damage) and item.code == "outside-log"):
                return records
            if isinstance(item, Damage):
                break
            if isinstance(item, Message) and has_key(item, key):
                records.append(Record(self.scan.number, item, indexed=False))
            position = item.end
        wanted = Filter(key=key, from_offset=position)
        return records + [replace(record, indexed=False) for record in self.scan.records(wanted, position, stop)]


def _spans(store: ReadOnlyStore) -> list[tuple[int, int]]:
    """Return the offsets of the first and last message in each index file, ascending."""
    headers = (file.header() for file in store.index.files)
    return sorted(
        (header.begin_phy_offset, header.end_phy_offset)
        for header in headers
        if header is not None and header.index_count > 1
    )


def _topics(store: ReadOnlyStore) -> set[str]:
    """Return every topic whose messages the store may have."""
    known = {topic for topic, _ in store.queues} | set(store.listed_topics)
    known |= {stored.topic for stored in consumer_offsets(store)}
    for group in table(store.config(SUBSCRIPTION_GROUP), "subscriptionGroupTable"):
        known |= {prefix + group for prefix in GROUP_PREFIXES}
    return known | SYSTEM_TOPICS | {SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRACE_TOPIC}
