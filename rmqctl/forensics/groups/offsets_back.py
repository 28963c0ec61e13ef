"""Finds offsets of consumer groups that went back: the group gets messages again.

What shows that a group was further than its offset is the .bak of the offset file, and the log: a retry or dead letter
names the message that the group got (ORIGIN_MESSAGE_ID). Neither proves it. Offsets fall by a little when a queue
changes its consumer, an operator may have set them back, and a consumer that is slow with one message sends later ones
back before it commits: a client stops it after 15 minutes (consumeTimeout).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.forensics.finding import Finding
from rmqctl.forensics.groups.queue_ends import ends_of
from rmqctl.format.host import parse_msg_id
from rmqctl.format.timestamp import rfc3339
from rmqctl.store.config.config_file import BACKUP_SUFFIX, load_config, table
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import GROUP_PREFIXES, RETRY_PREFIX
from rmqctl.store.journal.journals import CONFIG_VERB, is_as_written
from rmqctl.store.read.consumers.consumer_groups import ConsumerGroups, is_broker_group
from rmqctl.store.read.consumers.consumer_offsets import OFFSET_FILES, consumer_offsets
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consumers.consumer_offsets import StoredOffset
    from rmqctl.store.read.read_only_store import ReadOnlyStore

SET_OFFSET = f"{CONFIG_VERB}set-offset"
AGAIN_MIN = 33  # a client pulls 32 messages at a time
SLOW_MS = 1_200_000  # longer than consumeTimeout
RETRIES_READ = 10_000  # of each queue, the last ones
ORIGINS = ("DLQ_ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_ID")
Place = tuple[str, str, int]  # group, topic, queueId


class Reached(NamedTuple):
    """A queue offset that a group was past, and what shows it."""

    offset: int
    why: str
    stored_ms: int = 0  # of the retry or dead letter (ms since 1970); 0 for the .bak


def audit_offsets_back(store: ReadOnlyStore, last_ms: int) -> Iterator[Finding]:
    """Yield a finding for each offset of a group that went back.

    `last_ms` is the store time of the log's last message (ms since 1970). Raises OSError.
    """
    stored = [known for known in consumer_offsets(store) if not is_broker_group(known.owner)]
    files = [f"{CONFIG}/{name}" for name in OFFSET_FILES]
    if not stored or is_as_written(store.storage, store.path.root, SET_OFFSET, files):
        return
    by_file = {name: _in_backup(store, name) for name in OFFSET_FILES}
    by_log = _in_log(store)
    of_topic: dict[tuple[str, str], list[StoredOffset]] = {}
    for known in stored:
        of_topic.setdefault((known.owner, known.topic), []).append(known)
    for known in stored:
        reached = by_file[known.source].get(_place(known))
        of_log = by_log.get(_place(known))
        if of_log is not None and (reached is None or reached.offset < of_log.offset):
            is_sure = last_ms - of_log.stored_ms > SLOW_MS or _are_at_end(
                store, [one for one in of_topic[known.owner, known.topic] if one.queue_id != known.queue_id]
            )
            reached = of_log if is_sure else reached
        if reached is not None and (finding := _finding(store, known, reached)) is not None:
            yield finding


def _are_at_end(store: ReadOnlyStore, stored: list[StoredOffset]) -> bool:
    ended = {_place(one): one.offset >= (ends_of(store, _key(one)).max_offset or 0) for one in stored}
    return len(ended) > 1 and all(ended.values())


def _finding(store: ReadOnlyStore, known: StoredOffset, reached: Reached) -> Finding | None:
    begin, end = ends_of(store, _key(known))
    again = min(reached.offset, end or 0) - known.offset
    queue = store.queues.get(_key(known))
    if queue is None or again < AGAIN_MIN or known.offset < (begin or 0):
        return None
    unit = queue.find(known.offset)
    detail = (
        f"{known.owner} is at {known.offset} in {known.topic}/{known.queue_id}, and was at {known.offset + again}: "
        f"{reached.why}; it gets {counted(again, 'message')} again"
    )
    return Finding(
        "offset-went-back", f"{CONFIG}/{known.source}", unit.physical_offset if unit else None, detail,
        topic=known.topic, queue_id=known.queue_id, queue_offset=known.offset, count=again,
    )  # fmt: skip


def _in_backup(store: ReadOnlyStore, name: str) -> dict[Place, Reached]:
    # a .bak that brokers read, because the file is bad, shows nothing more
    if store.config(name).source is None or store.config(name).problem:
        return {}
    backup = load_config(store.storage, store.path.part(CONFIG), f"{name}{BACKUP_SUFFIX}")
    found = {}
    for key, offsets in table(backup, "offsetTable").items():
        topic, _, group = key.partition("@")
        for queue_id, offset in offsets.items() if isinstance(offsets, dict) else ():
            if queue_id.isdecimal() and len(queue_id) < 10 and isinstance(offset, int):
                found[group, topic, int(queue_id)] = Reached(offset, f"{name}{BACKUP_SUFFIX} has it")
    return found


def _in_log(store: ReadOnlyStore) -> dict[Place, Reached]:
    found: dict[Place, Reached] = {}
    log, groups = store.commit_log, ConsumerGroups(store)
    for (topic, queue_id), queue in sorted(store.queues.items()):
        if not topic.startswith(GROUP_PREFIXES):
            continue
        retry_topic = RETRY_PREFIX + topic.partition("%")[2].partition("%")[2]
        owners = groups.groups_of(retry_topic)
        begin, end = queue.min_and_max(log.min_offset)
        for unit in queue.units(max(begin, end - RETRIES_READ), end):
            retry = log.message_at(unit.physical_offset)
            text = next((retry.properties[name] for name in ORIGINS if name in retry.properties), "") if retry else ""
            try:
                _, offset = parse_msg_id(text)
            except ValueError:
                continue
            origin = log.message_at(offset)
            if retry is None or origin is None or origin.msg_id != text.upper():
                continue
            why = f"{topic}/{queue_id} has a message that it got there by {rfc3339(retry.store_timestamp)}"
            reached = Reached(origin.queue_offset + 1, why, retry.store_timestamp)
            for owner in owners:
                place = (owner, origin.topic, origin.queue_id)
                found[place] = max(reached, found.get(place, reached))
        queue.queue.close()
    return found


def _key(known: StoredOffset) -> QueueKey:
    return known.topic, known.queue_id


def _place(known: StoredOffset) -> Place:
    return known.owner, known.topic, known.queue_id
