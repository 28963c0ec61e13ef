"""Compares the files of config/ with the queues, and with the .bak files.

`verify` only checks that the files can be loaded, and that no offset is after the end of its queue. The differences
that this module finds may be intended, for example after a topic was deleted, or if the broker creates topics by
itself. So only `doctor` reports these differences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqctl.forensics.audit.state_audit import queue_end
from rmqctl.forensics.finding import Finding
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import (
    BACKUP_SUFFIX,
    CONFIG_FILES,
    GROUP_TABLE,
    GROUPS_CONFIG,
    OFFSET_TABLE,
    OFFSETS_CONFIG,
    TOPIC_TABLE,
    TOPICS_CONFIG,
    batch_topics,
    load_config,
    rocksdb_folder,
    table,
)
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import DLQ_PREFIX, TIMER_TOPIC, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, is_broker_topic
from rmqctl.store.read.consume_queue import BatchConsumeQueue
from rmqctl.store.read.consumers.pop_checkpoints import timer_progress

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore

TIMERCHECK = "timercheck"
# files that always have entries once a broker has served producers or consumers, and the table with these entries
ENTRY_TABLES = {TOPICS_CONFIG: TOPIC_TABLE, GROUPS_CONFIG: GROUP_TABLE, OFFSETS_CONFIG: OFFSET_TABLE}
# files that only a broker writes: a message store alone writes delayOffset.json, too
OF_BROKER = (*ENTRY_TABLES, "consumerFilter.json", TIMERCHECK)
TOPICS_OF_BROKER = (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, DLQ_PREFIX)


def audit_config_against_queues(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield the differences of config/ from the queues and from its .bak files.

    A store that was never used by a broker has no topics.json that could be compared. Raises OSError.
    """
    for name in ENTRY_TABLES:
        if what := emptied(store, name):
            yield Finding("config-empty", f"{CONFIG}/{name}", None, what)
    if not emptied(store, TOPICS_CONFIG):
        yield from _topics(store)
    yield from _timer(store)
    yield from _backups(store)


def emptied(store: ReadOnlyStore, name: str) -> str:
    """Say how config/`name` lost all entries that its .bak has.

    The result is empty if the file did not lose its entries.
    """
    config = store.config(name)
    if name not in ENTRY_TABLES or config.source != config.path or table(config, ENTRY_TABLES[name]):
        return ""
    backup = load_config(store.storage, store.path.part(CONFIG), name + BACKUP_SUFFIX)
    count = len(table(backup, ENTRY_TABLES[name]))
    return f"{name} has no entry in {ENTRY_TABLES[name]}, {name}{BACKUP_SUFFIX} has {count}" if count else ""


def lists_no_topic(store: ReadOnlyStore) -> bool:
    """Return whether a broker's topics.json lists no topic that has queues.

    A file that cannot be loaded is another problem. A message store without a broker has no topics.json.
    """
    topics = {topic for topic, _ in store.queues if not is_broker_topic(topic)}
    if store.config(TOPICS_CONFIG).content is None or not topics or topics & set(store.listed_topics):
        return False
    return bool(store.listed_topics) or _was_broker_here(store)


def _was_broker_here(store: ReadOnlyStore) -> bool:
    """Return whether a broker, and not only a message store, wrote config/.

    The result is False if the broker's configuration is in RocksDB.
    """
    folder = store.path.part(CONFIG)
    if rocksdb_folder(store.storage, folder) is not None:
        return False
    names = [name + suffix for name in OF_BROKER for suffix in ("", BACKUP_SUFFIX)]
    return any(store.storage.entry(folder / name).kind is Kind.FILE for name in names) or any(
        topic.startswith(TOPICS_OF_BROKER) for topic, _ in store.queues
    )


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
        elif not is_broker_topic(topic) and queue_id >= (count := _queue_count(listed[topic])):
            what = f"{topic} has {count} queues, and its queue {queue_id} ends at {end}"
            finding = Finding("queue-beyond-topic", path, None, what)
        if finding is not None:
            yield replace(finding, topic=topic, queue_id=queue_id, queue_offset=end)


def _queue_count(topic: Any) -> int:
    """Return how many queues a topic has, or 2^31 if its entry has no number."""
    counts = [topic.get(name) for name in ("readQueueNums", "writeQueueNums")] if isinstance(topic, dict) else []
    return max((count for count in counts if isinstance(count, int)), default=2**31)


def _timer(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding if the timer has read more messages than its queue has."""
    path = store.path.part(CONFIG) / TIMERCHECK
    if store.storage.entry(path).kind is not Kind.FILE:
        return
    read, end = timer_progress(store).queue_offset, queue_end(store, TIMER_TOPIC, 0)
    if end is not None and read > end:
        detail = f"timerQueueOffset is {read}, the queue of {TIMER_TOPIC} ends at {end}"
        yield Finding(
            "timer-beyond-queue", f"{CONFIG}/{TIMERCHECK}", None, detail, file_offset=16,
            topic=TIMER_TOPIC, queue_id=0, queue_offset=read,
        )  # fmt: skip


def _backups(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each file whose .bak has a later data version.

    A broker copies the file to .bak before it writes the file. So a broker never makes a .bak with a later version.
    """
    for name in CONFIG_FILES:
        config = store.config(name)
        if config.source is None or config.problem:
            continue
        backup = load_config(store.storage, store.path.part(CONFIG), f"{name}.bak")
        ours, theirs = _version(config.content), _version(backup.content)
        if ours is not None and theirs is not None and theirs > ours:
            detail = f"its dataVersion is {_shown(ours)}, that of {name}.bak is {_shown(theirs)}"
            yield Finding("backup-newer", f"{CONFIG}/{name}", None, detail)


def _version(content: dict[str, Any] | None) -> tuple[int, int, int] | None:
    """Return the data version of a file, or None if the file has none.

    The data version is (stateVersion, counter, timestamp). Brokers compare in this order, because a clock may be set
    back.
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
