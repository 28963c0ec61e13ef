"""Messages that groups popped and did not acknowledge (5.x).

When a group pops messages, its offset moves past them, and the broker stores a POP checkpoint that points to them: a
message in rmq_sys_REVIVE_LOG_CLUSTER with tag `ck` and a JSON body (`t`: topic, `q`: queueId, `so`: first queue
offset). The broker's PopReviveService reads the checkpoints as the group CID_RMQ_SYS_REVIVE_GROUP, and copies a message
that was not acknowledged in time to a retry topic. Until it has consumed a checkpoint, the broker may need the popped
messages.

Until a POP checkpoint is due, it is a timer message in rmq_sys_wheel_timer, whose property REAL_TOPIC names
rmq_sys_REVIVE_LOG_CLUSTER; then the broker copies it there. The file config/timercheck has the time up to which due
messages were copied; without it, every POP checkpoint in rmq_sys_wheel_timer counts.

Acknowledgements (tags `ack` and `bAck`) are in the same topics. PopReviveService counts one only if it has read the POP
checkpoint of the same pop before, and a checkpoint that comes again takes the place of the first. `popped_offsets` does
not read them: there, a POP checkpoint is open until the broker has processed it.

With popConsumerKVServiceEnable (5.3.2 and later), the RocksDB database kvStore/ has a row for each popped message
(format/body/pop_message.py), and loses it with the acknowledgement. It is read with the extra `rocksdb`. A broker of
5.5.0 that starts without popConsumerKVServiceInit leaves the rows there, and none of the messages comes again.
"""

from __future__ import annotations

import errno
from operator import itemgetter
from typing import TYPE_CHECKING

import msgspec

from rmqctl.format.body import pop_message
from rmqctl.format.body.pop_message import BODIES, CHECKPOINT_TAG, PopCheckpoint, decode_row
from rmqctl.format.message import tags_code
from rmqctl.format.properties import REAL_TOPIC, TAGS, TIMER_OUT_MS
from rmqctl.logfile.system.rocksdb import Database
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import KV_FOLDER
from rmqctl.store.config.topics import REVIVE_PREFIX, TIMER_TOPIC
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets
from rmqctl.store.read.consumers.timer_check import timer_check

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from rmqctl.format.body.pop_message import PopAck, PopKey
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.consumers.timer_check import TimerCheck
    from rmqctl.store.read.read_only_store import ReadOnlyStore

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
KV_FAMILY, KV_DATA = "popState", (".sst", ".log")
Popped = dict[tuple[str, int], dict[str, dict[int, int]]]  # by queue and group, queue offset: visible again at (ms)


def is_pop_topic(topic: str) -> bool:
    """Return whether a topic may have POP checkpoints and POP acknowledgements."""
    return topic == TIMER_TOPIC or topic.startswith(REVIVE_PREFIX)


def popped_offsets(store: ReadOnlyStore, problems: list[str]) -> dict[QueueKey, dict[str, int]]:
    """Return, for each queue and group, the lowest offset of open POP checkpoints.

    The checkpoint processed last counts as open, because some of its messages may not be copied yet. Of a checkpoint or
    file that cannot be read or parsed, an error text is appended to `problems`.
    """
    found: dict[QueueKey, dict[str, int]] = {}
    for checkpoint in _bodies(store, [CHECKPOINT_TAG], problems, with_last=True):
        offsets = found.setdefault((checkpoint.t, checkpoint.q), {})
        offsets[checkpoint.c] = min(checkpoint.so, offsets.get(checkpoint.c, checkpoint.so))
    return found


def popped_messages(store: ReadOnlyStore, problems: list[str]) -> Popped:
    """Return, for each queue and group, the unacknowledged popped messages.

    Of a POP checkpoint or file that cannot be read or parsed, an error text is appended to `problems`.
    """
    return unacknowledged(_bodies(store, BODIES, problems, with_last=False))


def unacknowledged(bodies: Iterable[PopCheckpoint | PopAck]) -> Popped:
    """Return the popped messages that no later body acknowledges.

    `bodies` are in the order in which a broker reads them.
    """
    left: dict[PopKey, dict[int, int]] = {}
    for body in bodies:
        if isinstance(body, PopCheckpoint):
            left[body.key] = dict.fromkeys(body.unacknowledged(), body.visible_ms)
        else:
            for offset in body.offsets():
                left.get(body.key, {}).pop(offset, None)
    found: Popped = {}
    for (topic, group, queue_id, *_), messages in left.items():
        for offset, visible_ms in messages.items():
            of_group = found.setdefault((topic, queue_id), {}).setdefault(group, {})
            of_group[offset] = min(visible_ms, of_group.get(offset, visible_ms))
    return found


def to_process(store: ReadOnlyStore, messages: Iterable[Message]) -> list[Message]:
    """Return the POP messages that a broker has not processed, as it will read them.

    `messages` are in the order of the log. Raises OSError.
    """
    revived, check = _revived(store), timer_check(store)
    stored, timed = [], []
    for message in messages:
        if message.topic == TIMER_TOPIC:
            timed += [] if _is_delivered(message, check) else [message]
        elif message.queue_offset > revived.get((message.topic, message.queue_id), -1):
            stored.append(message)
    return stored + sorted(timed, key=_due)


def kv_checkpoints(store: ReadOnlyStore, problems: list[str]) -> Iterator[PopCheckpoint]:
    """Yield the popped messages in kvStore/.

    An error text is appended to `problems` if it cannot be read.
    """
    folder = store.path.root / KV_FOLDER
    try:
        opens = store.path.reads_databases and bool(store.storage.listing(folder))  # also an empty database
        if not (opens or _has_data(store, folder)):
            return
        if not store.path.reads_databases:
            raise OSError(errno.ENOTSUP, store.path.unread_databases)
        for _, value in Database(store.storage, folder).rows(KV_FAMILY):
            try:
                yield decode_row(value)
            except msgspec.MsgspecError as error:
                raise OSError(errno.EILSEQ, str(error)) from error
    except OSError as error:
        problems.append(
            f"{KV_FOLDER}/ says which messages were popped (popConsumerKVServiceEnable), and rmqctl cannot read it: "
            f"{error.strerror}"
        )


def _bodies(
    store: ReadOnlyStore, tags: Collection[str], problems: list[str], *, with_last: bool
) -> Iterator[PopCheckpoint | PopAck]:
    """Yield the POP checkpoints and acknowledgements that are not processed yet.

    Only messages with one of `tags` are decoded. `with_last` adds the one at the committed offset of
    CID_RMQ_SYS_REVIVE_GROUP: a broker commits the offset of the checkpoint that it processed last.
    """
    revived = _revived(store)
    for key, queue in sorted(store.queues.items(), key=lambda item: (item[0][0] == TIMER_TOPIC, item[0])):
        if not is_pop_topic(key[0]):
            continue
        try:
            is_timer, first = key[0] == TIMER_TOPIC, revived.get(key, -1) + (not with_last)
            messages = _timed(store, queue, tags) if is_timer else _stored(store, queue, first, tags)
            bodies = ((_due(message), body) for message in messages if (body := _decoded(message, problems)))
            for _, body in sorted(bodies, key=itemgetter(0)) if is_timer else bodies:
                yield body
        except OSError as error:
            problems.append(f"queue {key[0]} {key[1]}: {error.strerror}")
    yield from kv_checkpoints(store, problems)


def _revived(store: ReadOnlyStore) -> dict[QueueKey, int]:
    # the queue offsets of the checkpoints that the broker processed last
    return {
        (known.topic, known.queue_id): known.offset for known in consumer_offsets(store) if known.owner == REVIVE_GROUP
    }


def _has_data(store: ReadOnlyStore, folder: Path) -> bool:
    """Return whether a RocksDB database may have data. Raises OSError.

    RocksDB writes new data to .log files, and later to .sst files. If no message was popped, there is no .sst file, and
    the .log files are empty.
    """
    kind = store.storage.entry(folder).kind
    if kind is not Kind.DIRECTORY:
        return kind is not Kind.MISSING
    files = store.storage.listing(folder)
    return any(file.name.endswith(KV_DATA) and (file.size or file.kind is not Kind.FILE) for file in files)


def _decoded(message: Message, problems: list[str]) -> PopCheckpoint | PopAck | None:
    """Append an error text to `problems`, each only once, if a body cannot be parsed."""
    try:
        return pop_message.decode(message.properties[TAGS], bytes(message.body))
    except msgspec.MsgspecError as error:
        problem = f"queue {message.topic} {message.queue_id}: a checkpoint of POP cannot be understood: {error}"
        if problem not in problems:
            problems.append(problem)
        return None


def _stored(store: ReadOnlyStore, queue: UnitQueue, start: int, tags: Collection[str]) -> Iterator[Message]:
    codes = {tags_code({TAGS: tag}) for tag in tags}
    first = max(start, queue.min_offset(store.commit_log.min_offset))
    for unit in queue.units(first, queue.max_offset):
        if unit.tags_code <= 0 or unit.tags_code in codes:  # below 0: an address in a consume queue extension
            message = store.commit_log.message_at(unit.physical_offset)
            if message is not None and message.properties.get(TAGS) in tags:
                yield message


def _timed(store: ReadOnlyStore, queue: UnitQueue, tags: Collection[str]) -> Iterator[Message]:
    check = timer_check(store)
    for message in _stored(store, queue, 0, tags):
        if message.properties.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX) and not _is_delivered(message, check):
            yield message


def _due(message: Message) -> int:
    due = message.properties.get(TIMER_OUT_MS, "")
    return int(due[:20]) if due.isascii() and due.isdecimal() else 0


def _is_delivered(message: Message, check: TimerCheck) -> bool:
    is_due = 0 < _due(message) < check.last_read_time_ms
    return is_due and message.queue_offset < check.last_timer_queue_offset
