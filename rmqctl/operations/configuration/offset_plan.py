"""The plan of a change that sets the offsets of a consumer group.

A broker keeps them in config/consumerOffset.json. One with the setting enableLmq keeps them in
config/lmqConsumerOffset.json, and does not read consumerOffset.json. If a store has both files, both are changed,
unless broker.conf sets enableLmq: the store does not show which one a broker reads. The offset of an LMQ group
(%LMQ%...) is only in lmqConsumerOffset.json.

For a time, the new offset is the one that mqadmin's resetOffsetByTime sets.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rmqctl.errors import READ_ALL_HINT, BadRequest, Unreadable
from rmqctl.forensics.groups.delay_levels import undelivered
from rmqctl.forensics.groups.queue_ends import ends_of
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.format.timestamp import rfc3339
from rmqctl.operations.configuration.config_change import check_is_in_files, planned_change
from rmqctl.operations.configuration.names_in_store import is_topic_name
from rmqctl.store.config.config_file import CONFIG_SIZE_MAX, DATA_VERSION, charset_of, table
from rmqctl.store.config.data_version import next_version
from rmqctl.store.config.fastjson import fastjson_bytes, fastjson_dumps
from rmqctl.store.config.fastjson_edit import with_members
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.consumers.consumer_groups import CONSUMER_ORDER, ConsumerGroups
from rmqctl.store.read.consumers.consumer_offsets import (
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    LMQ_CONSUMER_OFFSET,
    delay_offsets,
    offset_files,
)
from rmqctl.store.read.known_topics import read_queue_ids
from rmqctl.store.read.topic_names import unknown_topic
from rmqctl.store.serve.message_reader import MessageReader
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.forensics.groups.delay_levels import Undelivered
    from rmqctl.format.profile import Profile
    from rmqctl.operations.configuration.config_change import ConfigChange
    from rmqctl.store.config.config_file import ConfigFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore

Entries = tuple[tuple[str, ...], dict[Any, int]]
OFFSETS, LMQ_OFFSETS, RESET_OFFSETS = "offsetTable", "lmqOffsetTable", "resetOffsetTable"
EPOCH_MS_MIN = 10**9  # a number from here on is taken for a time, because no queue has so many messages


class OffsetGoal(NamedTuple):
    """The position from which a group will continue in each queue."""

    kind: Literal["earliest", "latest", "time", "offset", "undelivered"]  # `undelivered` is for delay levels
    value: int = 0  # a time (ms since 1970) or a queue offset


class QueueOffset(NamedTuple):
    """The offset of a group in one queue, `before` and `after` the change, in units."""

    queue_id: int
    min_offset: int
    max_offset: int
    before: int | None  # None: the broker stores none
    after: int


@dataclass(frozen=True)
class OffsetPlan:
    """The new offsets of `group` in queues of `topic`, and the files to change."""

    group: str
    topic: str
    queues: tuple[QueueOffset, ...]
    files: tuple[ConfigChange, ...]
    notes: tuple[str, ...]  # further remarks for the operator

    @property
    def summary(self) -> str:
        """Describe the change in one line."""
        offsets = ", ".join(f"{queue.queue_id}: {queue.after}" for queue in self.queues)
        return f"offsets of {self.group} in {self.topic} are {offsets}"


def plan_offsets(
    store: ReadOnlyStore,
    profile: Profile,
    group: str,
    topic: str,
    queue_id: int | None,
    goal: OffsetGoal,
    *,
    new_group: bool = False,
) -> OffsetPlan:
    """Return the plan that makes a group continue at `goal`.

    `queue_id` is None for all queues of the topic. With `new_group`, the group may be unknown to the store. Raises
    BadRequest if the topic, the queue or the group does not exist, or if the offset is not in the queue. Raises
    LayoutNotSupported, Unreadable and OSError.
    """
    check_is_in_files(store)
    _check_names(store, group, topic, new_group=new_group)
    files = [store.config(name) for name in _file_names(store, group)]
    known = _stored(files[0], group, topic)
    finder = _Finder(store, profile, topic, goal)
    queues = tuple(finder.queue(found, known.get(found)) for found in _queue_ids(store, group, topic, queue_id))
    offsets = {queue.queue_id: queue.after for queue in queues}
    key = f"{topic}@{group}"
    changes = (changed_offsets(store, config, profile, _entries(config, key, offsets)) for config in files)
    notes = (*finder.notes, *_notes(store, group, topic, offsets))
    held = [queue for queue_id in offsets if (queue := store.queues.get((topic, queue_id))) is not None]
    if goal.kind == "time" and (falls := {fall for queue in held for fall in store.falls_before_end(queue)}):
        what = "brokers search by time as if store times only rose; `rmqctl query STORE --topic T --queue Q --at TIME`"
        notes = (*notes, f"{max(falls).words}: {what} finds the first message of a queue")
    return OffsetPlan(group, topic, queues, tuple(change for change in changes if change is not None), notes)


def _check_names(store: ReadOnlyStore, group: str, topic: str, *, new_group: bool) -> None:
    problem = unknown_topic(store, topic)
    if problem:
        raise BadRequest(problem, path=str(store.path.root))
    if new_group:
        if not is_topic_name(group):
            raise BadRequest(f"{group!r} cannot be the name of a group: no broker accepts it")
        return
    try:
        ConsumerGroups(store).check_group(group)
    except BadRequest as error:
        hint = f"{error.hint}; --new-group sets offsets for a group that is new"
        raise BadRequest(error.what, path=error.path, hint=hint) from error


def _file_names(store: ReadOnlyStore, group: str) -> list[str]:
    if group.startswith(LMQ_PREFIX):
        return [LMQ_CONSUMER_OFFSET]
    names = offset_files(store.conf)
    if len(names) == 1:
        return list(names)
    exist = [name for name in names if store.config(name).source is not None or store.config(name).problem]
    return exist or [CONSUMER_OFFSET]


def _stored(config: ConfigFile, group: str, topic: str) -> dict[int, int]:
    key = f"{topic}@{group}"
    if group.startswith(LMQ_PREFIX):
        found = table(config, LMQ_OFFSETS).get(key)
        return {0: found} if isinstance(found, int) else {}
    offsets = table(config, OFFSETS).get(key)
    return {int(queue_id): offset for queue_id, offset in offsets.items()} if isinstance(offsets, dict) else {}


def _queue_ids(store: ReadOnlyStore, group: str, topic: str, queue_id: int | None) -> list[int]:
    """Return the queueIds of the queues whose offsets will be set.

    These are all queues that a broker serves (below readQueueNums), and all that have files. For an LMQ group, a broker
    keeps one offset for each topic: that of queue 0.
    """
    found = {known for name, known in store.queues if name == topic}
    found |= {0} if topic.startswith(LMQ_PREFIX) else set(read_queue_ids(store, topic))
    if group.startswith(LMQ_PREFIX):
        found = {0}
    if store.is_unread(topic, queue_id):
        what = f"a queue of {topic}" if queue_id is None else f"queue {topic}/{queue_id}"
        raise Unreadable(f"{what} cannot be read", path=str(store.path.root), hint=READ_ALL_HINT)
    if queue_id is None:
        return sorted(found)
    if queue_id not in found:
        what = f"topic {topic!r} has no queue {queue_id}: its queues are {', '.join(map(str, sorted(found)))}"
        raise BadRequest(what, path=str(store.path.root))
    return [queue_id]


class _Finder:
    def __init__(self, store: ReadOnlyStore, profile: Profile, topic: str, goal: OffsetGoal) -> None:
        self.notes: list[str] = []
        self._root = str(store.path.root)
        self._reader = MessageReader(store, profile)
        self._topic = topic
        self._goal = goal

    def queue(self, queue_id: int, before: int | None) -> QueueOffset:
        """Raise BadRequest if the new offset is outside the queue."""
        begin = self._reader.get_min_offset_in_queue(self._topic, queue_id)
        end = self._reader.get_max_offset_in_queue(self._topic, queue_id)
        begin = min(begin, end)
        return QueueOffset(queue_id, begin, end, before, self._offset(queue_id, begin, end))

    def _offset(self, queue_id: int, begin: int, end: int) -> int:
        kind, value = self._goal
        if kind == "earliest":
            return begin
        if kind == "latest":
            return end
        if kind == "offset":
            self._check(queue_id, begin, end)
            return value
        found = self._reader.get_offset_in_queue_by_time(self._topic, queue_id, value)
        if not begin <= found <= end:
            inside = min(max(found, begin), end)
            self.notes.append(f"queue {queue_id}: a broker gives {found}, which is outside the queue: {inside} is used")
            return inside
        return found

    def _check(self, queue_id: int, begin: int, end: int) -> None:
        offset = self._goal.value
        if begin <= offset <= end:
            return
        what = f"offset {offset} is not in queue {self._topic}/{queue_id}, which has {begin} to {end}"
        moment = rfc3339(offset) if offset >= EPOCH_MS_MIN else None
        hint = f"a number is an offset; the time is --to {moment}" if moment else "--to earliest or --to latest"
        raise BadRequest(what, path=self._root, hint=hint)


def changed_offsets(
    store: ReadOnlyStore, config: ConfigFile, profile: Profile, entries: Sequence[Entries]
) -> ConfigChange | None:
    """Return the change of a file, or None if it already has the entries.

    `entries` are pairs of the path of a JSON object in the file and its new members. Raises Unreadable if neither the
    file nor its .bak can be loaded.
    """
    if config.content is None:
        hint = f"`rmqctl config restore` or a good copy first: {config.name} has the offsets of all groups"
        raise Unreadable(f"{config.problem}, and there is no good .bak", path=str(config.path), hint=hint)
    raw = store.storage.read_file(config.source, CONFIG_SIZE_MAX) if config.source is not None else _new(profile)
    charset = charset_of(raw)
    before = raw.decode(charset)
    text = before
    for path, members in entries:
        text = with_members(text, path, members)
    if text == before:
        return None
    version = config.content.get(DATA_VERSION)
    if isinstance(version, dict):
        text = with_members(text, (DATA_VERSION,), next_version(version, profile, _now()))
    return planned_change(store, config.name, fastjson_bytes(text, charset))


def _new(profile: Profile) -> bytes:
    if not profile.versions_delay_offsets:  # brokers that version one file of offsets version both
        return b"{\n}"
    return fastjson_bytes(fastjson_dumps({DATA_VERSION: next_version(None, profile, _now())}))


def _now() -> int:
    return time.time_ns() // 1_000_000


def _entries(config: ConfigFile, key: str, offsets: dict[int, int]) -> list[Entries]:
    """Return the path and the new members of each JSON object that changes."""
    if key.partition("@")[2].startswith(LMQ_PREFIX):
        return [((LMQ_OFFSETS,), {key: offsets[0]})]
    found = table(config, RESET_OFFSETS).get(key)
    reset = found if isinstance(found, dict) else {}
    both = {queue_id: offset for queue_id, offset in offsets.items() if str(queue_id) in reset}
    return [((OFFSETS, key), offsets), *([((RESET_OFFSETS, key), both)] if both else [])]


def _notes(store: ReadOnlyStore, group: str, topic: str, offsets: dict[int, int]) -> list[str]:
    notes = []
    held = table(store.config(CONSUMER_ORDER), "table").get(f"{topic}@{group}")
    queues = sorted(queue_id for queue_id in offsets if isinstance(held, dict) and str(queue_id) in held)
    if queues:
        notes.append(
            f"config/{CONSUMER_ORDER} has messages that {group} holds in queue {', '.join(map(str, queues))} (ordered "
            "POP): the queue stays blocked until their time is over, and an acknowledgement sets the offset again"
        )
    if store.path.has_abort:
        notes.append("the store was not shut down cleanly: the next start may cut queues, and offsets with them")
    return notes


def plan_delay_offset(store: ReadOnlyStore, profile: Profile, level: int, goal: OffsetGoal) -> OffsetPlan:
    """Return the plan that makes a broker go on at `goal` in a delay level.

    The offsets of delay levels, which count from 1, are in config/delayOffset.json. A broker that starts with a level
    ahead of its queue skips what waits there: 4.9.2 and later set the level to the end of the queue
    (ScheduleMessageService.correctDelayOffset), older ones wait until the queue reaches the offset.

    Raises BadRequest if the store does not know the level, or if the offset is not in its queue. Raises
    LayoutNotSupported, Unreadable and OSError.
    """
    known = {found.queue_id + 1: found.offset for found in delay_offsets(store)}
    levels = sorted(known.keys() | {queue_id + 1 for topic, queue_id in store.queues if topic == SCHEDULE_TOPIC})
    root = str(store.path.root)
    if level not in levels:
        hint = f"its levels are {', '.join(map(str, levels))}" if levels else "it has no delayed message"
        raise BadRequest(f"the store has no delay level {level}", path=root, hint=hint)
    if goal.kind == "time":
        raise BadRequest("a delay level has no offset of a time", hint="--to undelivered, or an offset")
    begin, end = ends_of(store, (SCHEDULE_TOPIC, level - 1))
    if begin is None or end is None:
        raise Unreadable(f"queue {SCHEDULE_TOPIC}/{level - 1} cannot be read", path=root)
    if goal.kind == "offset" and not begin <= goal.value <= end:
        what = f"offset {goal.value} is not in queue {SCHEDULE_TOPIC}/{level - 1}, which has {begin} to {end}"
        raise BadRequest(what, path=root, hint="--to undelivered")
    if goal.kind == "undelivered" and store.partly_read:
        what = "a part of it was not read, and may have what the level delivered"
        raise Unreadable(what, path=root, hint=READ_ALL_HINT)
    found = undelivered(store, level - 1)
    after = {"earliest": begin, "latest": end, "undelivered": found.first}.get(goal.kind, goal.value)
    config = store.config(DELAY_OFFSET)
    change = changed_offsets(store, config, profile, [((OFFSETS,), {level: after})])
    queue = QueueOffset(level - 1, begin, end, known.get(level), after)
    return OffsetPlan(
        f"delay level {level}", SCHEDULE_TOPIC, (queue,), (change,) if change else (), _delay_notes(found, after)
    )


def _delay_notes(found: Undelivered, offset: int) -> tuple[str, ...]:
    skipped, repeated = found.skipped_at(offset), found.repeated_at(offset)
    notes = [f"{counted(len(found.waiting), 'message')} of the level not delivered yet"]
    notes += [f"{counted(skipped, 'message')} of them before offset {offset}: never delivered"] if skipped else []
    notes += (
        [f"{counted(repeated, 'message')} delivered already, and delivered again from {offset} on"] if repeated else []
    )
    return tuple(notes)
