"""Compares the files of config/ with the queues, and with their own .bak.

`verify` only checks that the files can be loaded, and that no offset is past its queue. What is here depends on how the
broker is run (deleted topics, topics that it creates by itself), so only `doctor` reports it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rmqctl.forensics.audit.state_audit import queue_end
from rmqctl.forensics.finding import Finding
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import CONFIG_FILES, TOPICS_CONFIG, batch_topics, load_config
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import TIMER_TOPIC, is_broker_topic
from rmqctl.store.read.consume_queue import BatchConsumeQueue

if TYPE_CHECKING:
    from rmqctl.store.read.read_only_store import ReadOnlyStore

TIMERCHECK = "timercheck"
# lastReadTimeMs, timerLogFlushPos, timerQueueOffset (TimerCheckpoint of 5.x)
TIMER_CHECKPOINT = struct.Struct(">qqq")


def audit_config_against_queues(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield what config/ says otherwise than the queues, or than its own .bak files.

    A store without topics.json has nothing to compare with. Raises OSError.
    """
    yield from _topics(store)
    yield from _timer(store)
    yield from _backups(store)


def _topics(store: ReadOnlyStore) -> Iterator[Finding]:
    listed, path = store.listed_topics, f"{CONFIG}/{TOPICS_CONFIG}"
    batches = batch_topics(store.config(TOPICS_CONFIG))
    for (topic, queue_id), queue in sorted(store.queues.items()) if listed else ():
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
    """Return how many queues a topic has; without a limit if its entry does not say."""
    counts = [topic.get(name) for name in ("readQueueNums", "writeQueueNums")] if isinstance(topic, dict) else []
    return max((count for count in counts if isinstance(count, int)), default=2**31)


def _timer(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding if the timer has read more messages than its queue has."""
    path = store.path.part(CONFIG) / TIMERCHECK
    if store.storage.entry(path).kind is not Kind.FILE:
        return
    raw, end = store.storage.read_start(path, TIMER_CHECKPOINT.size), queue_end(store, TIMER_TOPIC, 0)
    if len(raw) < TIMER_CHECKPOINT.size or end is None:
        return
    read = TIMER_CHECKPOINT.unpack(raw)[2]
    if read > end:
        detail = f"timerQueueOffset is {read}, the queue of {TIMER_TOPIC} ends at {end}"
        yield Finding(
            "timer-beyond-queue", f"{CONFIG}/{TIMERCHECK}", None, detail, file_offset=16,
            topic=TIMER_TOPIC, queue_id=0, queue_offset=read,
        )  # fmt: skip


def _backups(store: ReadOnlyStore) -> Iterator[Finding]:
    """Yield a finding for each file whose .bak has a later data version.

    A broker copies the file to .bak before it writes the file, so that a .bak is never later.
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


def _version(content: dict[str, Any] | None) -> tuple[int, int] | None:
    """Return (timestamp, counter) of a file's data version; None: it has none."""
    found = (content or {}).get("dataVersion")
    if not isinstance(found, dict):
        return None
    numbers = [found.get("timestamp"), found.get("counter")]
    timestamp, counter = (number.get("value") if isinstance(number, dict) else number for number in numbers)
    return (timestamp, counter) if isinstance(timestamp, int) and isinstance(counter, int) else None


def _shown(version: tuple[int, int]) -> str:
    return f"{version[1]} of {version[0]}"
