"""The search for all records with a key in one store.

A broker indexes every message by UNIQ_KEY and by each word of KEYS, also half messages, delayed messages and retries.
The hash in an index entry depends on the topic, so the key is looked up for every topic that the store knows; the
UNIQ_KEY of a message that was found by its KEYS only for topics that can have records of it. The index may begin later
or end earlier than the log, or may lack a file: the parts of the log that no index file covers are read.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.trace.queue_records import record_at
from rmqctl.forensics.trace.stage import Record
from rmqctl.format.message import Damage, Message
from rmqctl.format.properties import REAL_TOPIC, UNIQ_KEY, keys
from rmqctl.store.config.config_file import GROUP_TABLE, GROUPS_CONFIG, table
from rmqctl.store.config.topics import (
    GROUP_PREFIXES,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIXES,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_HALF_TOPIC,
)
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets
from rmqctl.store.read.read_only_store import has_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.forensics.trace.log_scan import LogScan
    from rmqctl.store.read.read_only_store import ReadOnlyStore

RETRY_TOPIC = "RETRY_TOPIC"  # the property of a retry: the topic that the message was first stored in
TOPIC_NAMES = (REAL_TOPIC, RETRY_TOPIC)
WALK_RECORDS_MAX = 2000  # read one by one; a longer part is left to the kernels


class IndexedPlace(NamedTuple):
    """An index entry for the key that points to no record."""

    topic: str
    physical_offset: int
    stored_at: int  # store time of the lost message in ms since 1970, exact to a second


class KeySearch:
    """Searches the store of `scan` for the records with a key.

    `dangling` has the index entries for the key that point to no record. `uses_index` is False with `by_scan`, or if
    the index cannot be used, as with queues in RocksDB, where the topics are not known. `was_asked` is True after the
    index was searched.
    """

    def __init__(self, scan: LogScan, *, by_scan: bool) -> None:
        self.scan = scan
        self.dangling: list[IndexedPlace] = []
        self.uses_index = not by_scan and scan.store.path.reads_queues and bool(scan.store.index.spans())
        self.was_asked = False
        self._store = scan.store
        self._found: dict[str, list[Record]] = {}
        self._outside: dict[str, list[Record]] = {}
        self._also_by: dict[str, defaultdict[str, list[Record]]] = {}
        self._scanned: set[str] = set()

    def records(self, key: str) -> list[Record]:
        """Return the records with a key, found by the index or by a scan of the log."""
        if key not in self._found:
            if not self.uses_index:
                return self.by_scan(key)
            parts = self._store.index.not_covered(self._store.commit_log.min_offset)
            self._outside[key] = [record for part in parts for record in self._part(key, *part)]
            self._found[key] = self._together(self._indexed(key, self._topics), self._outside[key])
        if any(record.unique_key is None for record in self._found[key]):
            return self.by_scan(key)
        return self._found[key]

    def records_of_message(self, unique_key: str, key: str | None) -> list[Record]:
        """Return the records with `unique_key` as their UNIQ_KEY or in their KEYS.

        Client records have the UNIQ_KEY of another message in their KEYS. `key` is the word of KEYS in the question of
        the user, or None. After a scan of the whole log for `key`, all records with `key` are returned. All records of
        the message have it in their KEYS, so a part of the log that was read for `key` is usually not read again for
        the UNIQ_KEY.
        """
        if key is not None and key in self._scanned:
            return self._found[key]
        if unique_key not in self._found and key is not None and key in self._outside:
            known = self._found_also_by(key).get(unique_key, [])
            own = (record.message.topic for record in known)
            topics = self._copy_topics.union(own, _named_topics(known)) if known else self._topics
            self._found[unique_key] = self._together(self._indexed(unique_key, topics), known)
        return self.records(unique_key)

    def by_scan(self, key: str) -> list[Record]:
        """Return the records with a key, found by a scan of the whole log."""
        if key not in self._scanned:
            from rmqctl.forensics.message_filter import Filter

            known = {record.place for record in self._found.get(key, ())}
            found = self.scan.records(Filter(key=key))
            self._scanned.add(key)
            self._found[key] = [
                replace(record, indexed=record.place in known if self.uses_index else None) for record in found
            ]
        return self._found[key]

    def _found_also_by(self, key: str) -> dict[str, list[Record]]:
        if key not in self._also_by:
            of_words = self._also_by[key] = defaultdict(list)
            for record in self._found[key]:
                for word in {record.properties.get(UNIQ_KEY, ""), *keys(record.properties)}:
                    of_words[word].append(record)
        return self._also_by[key]

    @cached_property
    def _topics(self) -> frozenset[str]:
        return frozenset(_topics(self._store))

    @cached_property
    def _copy_topics(self) -> frozenset[str]:
        """Return the topics that can have records about other topics' messages."""
        prefixes = (*SYSTEM_PREFIXES, *GROUP_PREFIXES)
        return frozenset(topic for topic in self._topics if topic in SYSTEM_TOPICS or topic.startswith(prefixes))

    def _together(self, indexed: list[Record], others: list[Record]) -> list[Record]:
        return list({record.place: record for record in [*others, *indexed]}.values())

    def _indexed(self, key: str, topics: frozenset[str]) -> list[Record]:
        # the topics in the properties of found records are searched, too
        self.was_asked = True
        found: list[Record] = []
        asked: frozenset[str] = frozenset()
        while topics:
            asked |= topics
            offsets = self._store.index.phy_offsets_by_topic(sorted(topics), key)
            fresh = [record for topic in offsets for record in self._of_topic(topic, key, offsets[topic])]
            topics = _named_topics(fresh) - asked
            found += fresh
        return found

    def _of_topic(self, topic: str, key: str, offsets: list[int]) -> Iterator[Record]:
        for offset in offsets:
            record = record_at(self.scan, offset, indexed=True)
            if record is None:
                stored_at = self._store.index.stored_at(topic, key, offset)
                self.dangling.append(IndexedPlace(topic, offset, stored_at or 0))
            elif record.message.topic == topic and has_key(record.message, key):
                yield record

    def _goes_on(self, position: int) -> bool:
        return any(file.file_from_offset > position for file in self._store.commit_log.queue.files)

    def _part(self, key: str, start: int, stop: int | None) -> list[Record]:
        # up to 2,000 records are read one by one; after these, or after damage, kernels read the rest
        records: list[Record] = []
        position = start
        for _ in range(WALK_RECORDS_MAX):
            item = self._store.commit_log.at(position) if stop is None or position < stop else None
            if item is None or (
                isinstance(item, Damage) and item.code == "outside-log" and not self._goes_on(position)
            ):
                return records
            if isinstance(item, Damage):
                break
            if isinstance(item, Message) and has_key(item, key):
                records.append(Record(self.scan.number, item, indexed=False))
            position = item.end
        from rmqctl.forensics.message_filter import Filter

        wanted = Filter(key=key, from_offset=position)
        return records + [replace(record, indexed=False) for record in self.scan.records(wanted, position, stop)]


def _topics(store: ReadOnlyStore) -> set[str]:
    known = store.queue_topics | set(store.listed_topics)
    known |= {stored.topic for stored in consumer_offsets(store)}
    for group in table(store.config(GROUPS_CONFIG), GROUP_TABLE):
        known |= {prefix + group for prefix in GROUP_PREFIXES}
    return known | SYSTEM_TOPICS | {SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, TRACE_TOPIC}


def _named_topics(records: list[Record]) -> frozenset[str]:
    return frozenset(name for record in records for name in map(record.properties.get, TOPIC_NAMES) if name)
