"""What takes the space of a store, as the document of `rmqctl du`."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from rmqctl.forensics.space.log_space import NO_DATE, LogSpace
from rmqctl.forensics.space.store_files import StoreFiles
from rmqctl.format.index_entry import INDEX_ENTRY
from rmqctl.format.message import Damage
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.config.topics import DLQ_PREFIX, RETRY_PREFIX, is_broker_topic, is_listed
from rmqctl.store.read.consumers.consumer_groups import is_broker_group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.columns import Row as Group
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Row = dict[str, Any]
By = Literal["topic", "queue", "day", "hour", "group"]
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
SPAN_MIN_MS = HOUR_MS  # a shorter log does not say how much comes in a day
_INTERVALS = {"day": DAY_MS, "hour": HOUR_MS}
_COUNTS = {"messages": "messages", "bytes": "bytes", "bodyBytes": "body_bytes"}


class Space:
    """What takes the space of a store; `by` adds rows to those of topics.

    `log` counts the messages (None: with what `by` needs). `document` scans the log, with `log.warm_up` before it if
    the caller wants to say that this takes time.
    """

    def __init__(self, store: ReadOnlyStore, by: By, log: LogSpace | None = None) -> None:
        self._store = store
        self._by = by
        self.log = log or LogSpace(store.commit_log, by_queue=by == "queue", interval_ms=_INTERVALS.get(by, 0))

    def document(self, threads: int) -> Row:
        """Return the document, without a forecast."""
        log = self.log
        files, queues = StoreFiles(self._store), _Queues(self._store)
        log.run(threads)
        topics = self._topics(files, queues)
        parts = dict(files.parts)
        in_log = {
            "recordBytes": sum(topic["bytes"] for topic in topics),
            "blankBytes": log.blank_bytes,
            "damagedBytes": log.damaged_bytes,
            "headerBytes": log.header_bytes,
        }
        in_log["unwrittenBytes"] = max(parts["commitlog"] - sum(in_log.values()), 0)
        beside = sum(size for name, size in parts.items() if name != "commitlog")
        grown = in_log["recordBytes"] + queues.bytes + _index_bytes(self._store)
        return {
            "bytes": files.bytes,
            "allocatedBytes": files.allocated_parts.total(),
            "parts": parts,
            "allocatedParts": dict(files.allocated_parts),
            "otherParts": [
                {"path": path, "bytes": files.others[path], "allocatedBytes": size}
                for path, size in files.allocated_others.most_common()
            ],
            "commitLog": in_log,
            "unaccounted": files.bytes - sum(in_log.values()) - beside,
            "messages": sum(topic["messages"] for topic in topics),
            "firstStoreTimestamp": log.first_ms,
            "lastStoreTimestamp": log.last_ms,
            "bytesPerDay": self._per_day(grown),
            "forecast": None,
            "topics": topics,
            **self._rows_of_by(topics),
            "deadQueues": queues.dead,
            "largest": [
                {"topic": one.topic.decode("utf-8", "replace"), "physicalOffset": one.physical_offset, "size": one.size}
                for one in log.largest
            ],
        }

    def _per_day(self, grown: int) -> int | None:
        first, last = self.log.first_ms, self.log.last_ms
        span = 0 if first is None or last is None else last - first
        return grown * DAY_MS // span if span >= SPAN_MIN_MS else None

    def _topics(self, files: StoreFiles, queues: _Queues) -> list[Row]:
        """Return a row for each topic with messages or queue files, the largest first."""
        rows: dict[str, Row] = {}
        for name, group in self._groups():
            row = rows.setdefault(name, _topic_row(name))
            for key, field in _COUNTS.items():
                row[key] += int(group[field])
            times = int(group["first_store_timestamp"]), int(group["last_store_timestamp"])
            first, last = row["firstStoreTimestamp"], row["lastStoreTimestamp"]
            row["firstStoreTimestamp"] = times[0] if first is None else min(first, times[0])
            row["lastStoreTimestamp"] = times[1] if last is None else max(last, times[1])
        for name in {*files.of_topics, *queues.topics}:
            rows.setdefault(name, _topic_row(name))["queueBytes"] = files.of_topics[name]
        for row in rows.values():
            row["bytesPerDay"] = self._per_day(row["bytes"])
        return sorted(rows.values(), key=lambda row: (-row["bytes"], -row["queueBytes"], row["topic"]))

    def _groups(self) -> Iterator[tuple[str, Group]]:
        names = self.log.topics
        return ((names[group["topic"]], group) for group in self.log.groups)

    def _rows_of_by(self, topics: list[Row]) -> dict[str, list[Row]]:
        if self._by == "queue":
            rows = [
                {"topic": name, "queueId": int(group["queue_id"])} | _counts(group) for name, group in self._groups()
            ]
            return {"queues": sorted(rows, key=lambda row: (-row["bytes"], row["topic"], row["queueId"]))}
        if self._by in _INTERVALS:
            return {f"{self._by}s": [_interval_row(group) for group in self.log.intervals]}
        return {"groups": self._group_rows(topics)} if self._by == "group" else {}

    def _group_rows(self, topics: list[Row]) -> list[Row]:
        from rmqctl.forensics.groups.lag import Lag
        from rmqctl.forensics.space.unread import unread

        lag = Lag(self._store, counts_delayed=False)
        self._store.foreign += [Damage("unreadable", 0, 0, problem) for problem in lag.problems]
        sizes = Counter({topic["topic"]: topic["bytes"] for topic in topics})
        behind = unread(self._store, lag)
        rows = [
            {
                "group": group,
                "messages": int(behind[group].messages.sum()) if group in behind else 0,
                "bytes": int(behind[group].bytes.sum()) if group in behind else 0,
                "retryBytes": sizes[RETRY_PREFIX + group],
                "deadLetterBytes": sizes[DLQ_PREFIX + group],
            }
            for group in (total.group for total in lag.totals)
            if not is_broker_group(group)
        ]
        return sorted(rows, key=lambda row: (-row["bytes"], row["group"]))


class _Queues:
    """The units in use of all queues, and the queues that nobody needs.

    `bytes` are those of the units that lead into the log.
    """

    def __init__(self, store: ReadOnlyStore) -> None:
        self.bytes = 0
        self.dead: list[Row] = []
        self.topics: set[str] = set()
        listed = store.listed_topics
        for (topic, queue_id), queue in store.queues.items():
            self.topics.add(topic)
            try:
                low, high = queue.min_and_max(store.commit_log.min_offset)
            except OSError as error:
                path = f"{CONSUMEQUEUE}/{topic}/{queue_id}"
                store.foreign.append(Damage("unreadable", 0, 0, f"cannot be read: {error.strerror}", path=path))
                continue
            self.bytes += (high - low) * queue.unit_size
            if low >= high or not is_listed(topic, listed):
                size = sum(file.size_on_disk for file in queue.queue.files)
                row = {"topic": topic, "queueId": queue_id, "messages": high - low, "bytes": size}
                self.dead.append(row | {"listed": is_listed(topic, listed)})
            queue.queue.close()
        self.dead.sort(key=lambda row: (-row["bytes"], row["topic"], row["queueId"]))


def _index_bytes(store: ReadOnlyStore) -> int:
    entries = 0
    for file in store.index.files:
        header = file.header()
        entries += min(max(header.index_count - 1, 0), file.capacity) if header is not None else 0
        file.file.close()
    return entries * INDEX_ENTRY.size


def _topic_row(name: str) -> Row:
    counts = dict.fromkeys((*_COUNTS, "queueBytes"), 0)
    system = is_broker_topic(name)
    return {"topic": name, **counts, "firstStoreTimestamp": None, "lastStoreTimestamp": None, "system": system}


def _counts(group: Group) -> Row:
    return {key: int(group[field]) for key, field in _COUNTS.items()}


def _interval_row(group: Group) -> Row:
    ms = int(group["timestamp"])
    when = {"timestamp": None, "time": None} if ms == NO_DATE else {"timestamp": ms, "time": rfc3339(ms)}
    return when | _counts(group)
