"""Compares the files of config/ with the queues, and with the .bak files.

`verify` checks that the files can be loaded and have not lost their entries (`lost_config`), and that no offset is
after the end of a queue. Only `doctor` reports differences between config/ and the queues, because they may be
intended: an operator may have deleted a topic, or the broker may create topics by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqctl.forensics.audit.lost_config import ENTRY_TABLES, NAMES_SHOWN, emptied, lists_no_topic
from rmqctl.forensics.audit.state_audit import queue_end
from rmqctl.forensics.finding import Finding
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import (
    BACKUP_SUFFIX,
    CONFIG_FILES,
    GROUP_TABLE,
    GROUPS_CONFIG,
    OFFSETS_CONFIG,
    TIMER_CHECK,
    TOPICS_CONFIG,
    batch_topics,
    load_config,
    table,
)
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import TIMER_TOPIC, is_broker_topic
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.consumers.consumer_groups import is_broker_group
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets
from rmqctl.store.read.consumers.timer_check import timer_check
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.store.config.config_file import ConfigFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def audit_config_against_queues(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield findings where config/ does not match the queues or the .bak files.

    If topics.json lists no topic, topics are compared only if a broker has used the store. Raises OSError.
    """
    if not emptied(store, TOPICS_CONFIG):
        yield from _topics(store)
    yield from _timer(store)
    yield from _backups(store)


def _topics(store: ReadOnlyStore) -> Iterator[Finding]:
    listed, path = store.listed_topics, f"{CONFIG}/{TOPICS_CONFIG}"
    batches = batch_topics(store.config(TOPICS_CONFIG))
    for (topic, queue_id), queue in sorted(store.queues.items()) if listed or lists_no_topic(store) else ():
        end = queue_end(store, topic, queue_id)
        finding = None
        if not end:
            continue
        if topic not in listed:
            what = f"{topic} is not in topics.json, and its queue {queue_id} ends at {end}"
            finding = Finding("topic-unlisted", path, None, what) if not is_broker_topic(topic) else None
        elif isinstance(queue, BatchConsumeQueue) != (topic in batches):
            wanted = "BatchCQ" if topic in batches else "SimpleCQ"
            what = f"topics.json says queue.type={wanted} for {topic}, and its queue is of the other type"
            finding = Finding("queue-type", path, None, what)
        if finding is not None:
            yield replace(finding, topic=topic, queue_id=queue_id, queue_offset=end)


def _timer(store: ReadOnlyStore) -> Iterator[Finding]:
    path = store.path.part(CONFIG) / TIMER_CHECK
    if store.storage.entry(path).kind is not Kind.FILE:
        return
    try:
        read, end = timer_check(store).last_timer_queue_offset, queue_end(store, TIMER_TOPIC, 0)
    except OSError:  # `verify` says so
        return
    if end is not None and read > end and store.queue(TIMER_TOPIC, 0) is not None:
        detail = f"timerQueueOffset is {read}, the queue of {TIMER_TOPIC} ends at {end}"
        yield Finding(
            "timer-beyond-queue", f"{CONFIG}/{TIMER_CHECK}", None, detail, file_offset=16,
            topic=TIMER_TOPIC, queue_id=0, queue_offset=read,
        )  # fmt: skip


def _backups(store: ReadOnlyStore) -> Iterator[Finding]:
    # a broker copies a file to its .bak before it writes the file: its .bak is never newer than the file
    for name in CONFIG_FILES:
        config = store.config(name)
        if config.source is None or config.problem:
            continue
        backup = load_config(store.storage, store.path.part(CONFIG), f"{name}{BACKUP_SUFFIX}")
        ours, theirs = _version(config.content), _version(backup.content)
        if ours is not None and theirs is not None and theirs > ours:
            detail = f"its dataVersion is {_shown(ours)}, that of {name}{BACKUP_SUFFIX} is {_shown(theirs)}"
            yield Finding("backup-newer", f"{CONFIG}/{name}", None, detail)
        elif lost := _lost_entries(store, config, backup):
            shown = ", ".join(lost[:NAMES_SHOWN]) + (", ..." if len(lost) > NAMES_SHOWN else "")
            what = f"{name}{BACKUP_SUFFIX} has {counted(len(lost), 'entry', 'entries')} that {name} lacks: {shown}"
            yield Finding("backup-larger", f"{CONFIG}/{name}", None, what)


def _lost_entries(store: ReadOnlyStore, config: ConfigFile, backup: ConfigFile) -> list[str]:
    """Return the entries of the .bak that the file lacks and the store still uses.

    A single missing group is not reported: an operator may have deleted it. Nor are missing offsets of a deleted topic
    or group, because a broker may remove them. Other functions find missing topics, and files that lost all entries.
    """
    if config.name not in (GROUPS_CONFIG, OFFSETS_CONFIG) or not table(config, ENTRY_TABLES[config.name]):
        return []
    before, now = (table(one, ENTRY_TABLES[config.name]) for one in (backup, config))
    if config.name == GROUPS_CONFIG:
        used = {stored.owner for stored in consumer_offsets(store)}
        lost = sorted(group for group in before if group not in now and group in used and not is_broker_group(group))
        return lost if len(lost) > 1 else []
    groups, topics = table(store.config(GROUPS_CONFIG), GROUP_TABLE), store.listed_topics
    places = ((key, queue_id) for key, offsets in before.items() for queue_id in _members(offsets))
    return [
        f"{key} {queue_id}"
        for key, queue_id in places
        if queue_id not in _members(now.get(key))
        and key.partition("@")[0] in topics
        and key.partition("@")[2] in groups
    ]


def _members(offsets: object) -> dict[str, Any]:
    return offsets if isinstance(offsets, dict) else {}


def _version(content: dict[str, Any] | None) -> tuple[int, int, int] | None:
    """Return (stateVersion, counter, timestamp) of a file, or None without them.

    Brokers compare stateVersion first and timestamp last, because a clock may be set back.
    """
    found = (content or {}).get("dataVersion")
    if not isinstance(found, dict):
        return None
    numbers = [found.get("stateVersion", 0), found.get("counter"), found.get("timestamp")]
    state, counter, timestamp = (number.get("value") if isinstance(number, dict) else number for number in numbers)
    if isinstance(state, int) and isinstance(counter, int) and isinstance(timestamp, int):
        return state, counter, timestamp
    return None


def _shown(version: tuple[int, int, int]) -> str:
    _, counter, timestamp = version
    return f"{counter} of {rfc3339(timestamp) or timestamp}"
