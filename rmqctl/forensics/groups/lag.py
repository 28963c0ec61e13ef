"""The number of messages that consumer groups have not consumed yet.

`behind` counts the messages from the group's offset to the end of a queue, as mqadmin's consumerProgress does. Those
before the queue's min offset do not count: a broker has deleted them. If a group has no offset for a queue, all of its
messages count.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.groups.queue_ends import QueueEnds, empty_queues, ends_of
from rmqctl.forensics.groups.waiting_timers import to_come
from rmqctl.format.message import Damage
from rmqctl.format.properties import REAL_TOPIC
from rmqctl.store.config.store_path import CONSUMEQUEUE
from rmqctl.store.config.topics import DLQ_PREFIX, RETRY_PREFIX, REVIVE_PREFIX, SCHEDULE_TOPIC
from rmqctl.store.read.clock import LogClock, time_at_end
from rmqctl.store.read.consumers.consumer_groups import (
    ConsumerGroups,
    GroupProgress,
    is_broker_group,
    unreadable_group_files,
)
from rmqctl.store.read.consumers.consumer_offsets import delivered_delays
from rmqctl.store.read.consumers.pop_checkpoints import REVIVE_GROUP, popped_messages
from rmqctl.store.read.consumers.timer_check import has_timer
from rmqctl.store.timer.timer_start import timer_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class Oldest(NamedTuple):
    """The oldest message that a group has not consumed."""

    stored_ms: int  # its store time, in ms since 1970
    physical_offset: int


class QueueLag(NamedTuple):
    """The lag of a group in one queue."""

    group: str
    topic: str
    queue_id: int
    min_offset: int | None
    max_offset: int | None
    offset: int | None  # None: the broker stores none
    oldest: Oldest | None  # None: the group has consumed all
    popped: int  # messages that the group popped and has not acknowledged

    @property
    def behind(self) -> int | None:
        """The messages that the group has not consumed (QueueEnds.behind)."""
        return QueueEnds(self.min_offset, self.max_offset).behind(self.offset)

    @property
    def expired_unread(self) -> int:
        """The messages that were deleted before the group consumed them."""
        return (self.min_offset or 0) - (self.offset or 0) if self.outside == "before" else 0

    @property
    def outside(self) -> str | None:
        """Where the offset is if it is not in the queue, or None.

        `before` means below the queue's min offset, `after` above its max offset.
        """
        if self.offset is None or self.min_offset is None or self.max_offset is None:
            return None
        if self.offset > self.max_offset:
            return "after"
        return "before" if self.offset < self.min_offset else None


class GroupLag(NamedTuple):
    """The lag of a group in all of its queues."""

    group: str
    behind: int  # unconsumed messages in all topics of the group, as mqadmin counts
    at_least: bool  # `behind` and `retry_depth` lack a queue that could not be read
    oldest: Oldest | None
    retry_depth: int  # unconsumed messages in the group's %RETRY% topics
    retries_delayed: int  # retries that wait for their delay, and are in no %RETRY% topic yet
    dlq_depth: int | None  # all messages in the dead-letter queue, or None if it could not be read
    popped: int
    expired_unread: int  # messages that a broker deleted before the group had consumed them


class Bound(NamedTuple):
    """The largest lag that a group may have in a queue: a number or an age."""

    messages: int | None = None
    age_ms: int | None = None  # of the oldest unconsumed message


class Lag:
    """The lag of the groups of a store.

    `queues` has a row for each queue of each group, sorted, the broker's own groups last; `unlisted` counts the rows
    that it lacks (EmptyQueues.unlisted). `totals` has a row for each group. `end_ms` is the store time of the last
    message in the log (ms since 1970), or None if the log has none. `clock_falls` says where the broker's clock went
    back. `timers` has the due times (ms since 1970) of the timer messages to come, by their topic; POP's do not count.
    `problems` lists the parts that could not be read, and `incomplete` says that a result may be wrong because of them.

    `groups` has the groups of the store. With `group`, the result covers this one; an unknown group has no rows.
    Without `counts_delayed`, the totals lack delayed retries: to count them, each message that waits for its delay must
    be read. Raises OSError if the log cannot be read.
    """

    def __init__(
        self,
        store: ReadOnlyStore,
        group: str | None = None,
        *,
        groups: ConsumerGroups | None = None,
        counts_delayed: bool = True,
    ) -> None:
        self._store = store
        self._counts_delayed = counts_delayed
        self._last_offset = -1
        self._queue_ids: dict[str, list[int]] = {}
        for topic, queue_id in sorted(store.queues):
            self._queue_ids.setdefault(topic, []).append(queue_id)
        self.problems: list[str] = []
        self.groups = groups or ConsumerGroups(store)
        self.unlisted = 0
        self._popped = popped_messages(store, self.problems)
        self.queues = sorted(self._queue_lags(group), key=lambda row: (is_broker_group(row.group), *row[:3]))
        last = self._last()
        self.end_ms = None if last is None else last.store_timestamp
        self.clock_falls = LogClock(store.commit_log).falls_until(last)
        self.totals = self._totals()
        self.timers = self._due_timers() if counts_delayed else {}
        files = unreadable_group_files(store)
        self.problems += [f"config/{config.name}: {config.problem}" for config in files]
        self.incomplete = bool(self.problems) or store.partly_read

    def age_ms(self, oldest: Oldest | None) -> int | None:
        """Return the age of a message in ms, counted up to `end_ms`."""
        return None if oldest is None or self.end_ms is None else max(self.end_ms - self._by_end(oldest), 0)

    def _by_end(self, oldest: Oldest) -> int:
        return time_at_end(self.clock_falls, oldest.physical_offset, oldest.stored_ms)

    def of_unknown_age(self) -> list[QueueLag]:
        """Return the rows of `queues` whose oldest unconsumed message cannot be read."""
        return [row for row in self.queues if (row.behind or 0) > 0 and self.age_ms(row.oldest) is None]

    def over(self, bound: Bound) -> list[QueueLag]:
        """Return the rows of `queues` that exceed a bound.

        An offset outside its queue exceeds every bound: messages are lost, or the group may skip new ones. An unknown
        age exceeds every age.

        The age bound does not apply to the broker's group REVIVE_GROUP, which commits the offset of a POP checkpoint
        only when the next one is due. Without a next one, its last messages stay unconsumed.
        """
        unknown = set(self.of_unknown_age())

        def is_over(row: QueueLag) -> bool:
            if row.outside is not None:
                return True
            if bound.messages is not None:
                return row.behind is not None and row.behind > bound.messages
            if bound.age_ms is None or row.group == REVIVE_GROUP:
                return False
            return row in unknown or (self.age_ms(row.oldest) or 0) > bound.age_ms

        return [row for row in self.queues if is_over(row)]

    def _due_timers(self) -> dict[str, list[int]]:
        due: dict[str, list[int]] = {}
        try:
            start = timer_start(self._store, self._store.opened_at) if has_timer(self._store) else None
            for timer in to_come(self._store, start) if start is not None else ():
                if timer.due_ms is not None and not timer.topic.startswith(REVIVE_PREFIX):
                    due.setdefault(timer.topic, []).append(timer.due_ms)
        except OSError as error:
            self.problems.append(f"the timer's files: {error.strerror}")
        return due

    def _queue_lags(self, group: str | None) -> Iterator[QueueLag]:
        groups = self.groups
        topics = groups.topics | {topic for topic in self._queue_ids if topic.startswith(RETRY_PREFIX)}
        empty = empty_queues(self._store, groups, topics, group)
        self.unlisted = empty.unlisted
        keys = {(topic, queue_id) for topic in topics for queue_id in self._queue_ids.get(topic, ())} | empty.listed
        for key in keys.union(groups.queues_with_offset(), self._popped):
            readers = [
                known
                for known in groups.progress(key, self._popped.get(key, ()))
                if group in (None, known.group)
                and (key in keys or known.offset is not None or known.group in self._popped.get(key, ()))
            ]
            if readers:
                yield from self._lags_of(key, readers)

    def _lags_of(self, key: QueueKey, readers: list[GroupProgress]) -> Iterator[QueueLag]:
        ends = self._ends_of(key)
        oldest: dict[int, Oldest | None] = {}
        popped = self._popped.get(key, {})
        for known in readers:
            start = max(known.offset or 0, ends.min_offset or 0)
            if start not in oldest:
                oldest[start] = self._oldest(key, start) if ends.max_offset and start < ends.max_offset else None
            yield QueueLag(*known[:3], *ends, known.offset, oldest[start], len(popped.get(known.group, ())))
        if key in self._store.queues:
            self._store.queues[key].queue.close()

    def _ends_of(self, key: QueueKey) -> QueueEnds:
        queue = self._store.queues.get(key)
        try:
            ends = ends_of(self._store, key)
            last = queue.find(ends.max_offset - 1) if queue is not None and ends.max_offset else None
        except OSError as error:
            path = f"{CONSUMEQUEUE}/{key[0]}/{key[1]}"
            self._store.foreign.append(Damage("unreadable", 0, 0, f"cannot be read: {error.strerror}", path=path))
            return QueueEnds(None, None)
        if last is not None:
            self._last_offset = max(self._last_offset, last.physical_offset)
        return ends

    def _oldest(self, key: QueueKey, queue_offset: int) -> Oldest | None:
        unit = self._store.queues[key].find(queue_offset)
        message = None if unit is None else self._store.commit_log.message_at(unit.physical_offset)
        return None if message is None else Oldest(message.store_timestamp, message.physical_offset)

    def _totals(self) -> list[GroupLag]:
        rows: dict[str, list[QueueLag]] = defaultdict(list)
        for row in self.queues:
            rows[row.group].append(row)
        delayed: Counter[str] = Counter()
        waiting = delayed_retries(self._store, self.problems) if self._counts_delayed else {}
        for topic, count in waiting.items():
            delayed.update(dict.fromkeys(self.groups.groups_of(topic), count))
        return [self._total(group, of_group, delayed[group]) for group, of_group in rows.items()]

    def _total(self, group: str, rows: list[QueueLag], delayed: int) -> GroupLag:
        # an offset after the end of its queue counts as 0 messages behind
        behind = retry_depth = 0
        for row in rows:
            count = max(row.behind or 0, 0)
            behind += count
            retry_depth += count if row.topic.startswith(RETRY_PREFIX) else 0
        oldest = min(filter(None, (row.oldest for row in rows)), key=self._by_end, default=None)
        popped, expired = sum(row.popped for row in rows), sum(row.expired_unread for row in rows)
        topics = {RETRY_PREFIX + group, *(row.topic for row in rows)}
        at_least = any(row.behind is None for row in rows) or any(map(self._store.is_unread, topics))
        dlq_depth = self._depth(DLQ_PREFIX + group)
        return GroupLag(group, behind, at_least, oldest, retry_depth, delayed, dlq_depth, popped, expired)

    def _depth(self, topic: str) -> int | None:
        # None if a queue could not be read
        counts = [self._ends_of((topic, queue_id)).behind(None) for queue_id in self._queue_ids.get(topic, ())]
        return None if None in counts or self._store.is_unread(topic) else sum(filter(None, counts))

    def _last(self) -> Message | None:
        """Return the log's last message.

        If a unit points into the log's last file, only a part of this file must be scanned. Units are looked for in the
        queues of groups first, then in all.
        """
        log = self._store.commit_log
        in_use = log.files_in_use()
        if in_use and self._last_offset < in_use[-1].file_from_offset:
            for topic, queue_ids in self._queue_ids.items():
                for queue_id in queue_ids:
                    self._ends_of((topic, queue_id))
                    self._store.queues[topic, queue_id].queue.close()
        _, last = log.end(self._last_offset if self._last_offset >= 0 else None)
        return last or log.message_at(self._last_offset)


def delayed_retries(store: ReadOnlyStore, problems: list[str]) -> Counter[str]:
    """Return, for each %RETRY% topic, how many messages wait for their retry.

    A broker first stores a message that a group could not consume in SCHEDULE_TOPIC_XXXX, and copies it after a delay
    to the %RETRY% topic that its property REAL_TOPIC names.

    For each delay level, delayOffset.json has the queue offset of the first message that waits. For each queue that
    cannot be read, an error text is appended to `problems`.
    """
    delivered = delivered_delays(store)
    found: Counter[str] = Counter()
    for (topic, queue_id), queue in store.queues.items():
        if topic != SCHEDULE_TOPIC:
            continue
        try:
            low, high = queue.min_and_max(store.commit_log.min_offset)
            for unit in queue.units(max(low, delivered.get(queue_id, 0)), high):
                message = store.commit_log.message_at(unit.physical_offset)
                real = "" if message is None else message.properties.get(REAL_TOPIC, "")
                found[real] += real.startswith(RETRY_PREFIX)
        except OSError as error:
            problems.append(f"queue {topic} {queue_id}: {error.strerror}")
    return +found
