"""Messages that groups popped and did not acknowledge (5.x).

The offset of a group is after the messages that the group popped. A checkpoint points to the popped messages. A broker
stores checkpoints (tag `ck`, a JSON body) in rmq_sys_REVIVE_LOG_CLUSTER. The broker's PopReviveService reads the
checkpoints as the group CID_RMQ_SYS_REVIVE_GROUP. If a message was not acknowledged in time, PopReviveService copies
the message to a retry topic. Until CID_RMQ_SYS_REVIVE_GROUP has consumed the checkpoint, a broker may still read
messages of queue `q` of topic `t`, from queue offset `so` on.

A checkpoint that is not due yet is a timer message in rmq_sys_wheel_timer with the property REAL_TOPIC. When the
checkpoint is due, the broker copies the checkpoint to rmq_sys_REVIVE_LOG_CLUSTER. config/timercheck has the time up to
which the broker has copied due checkpoints. Without config/timercheck, every checkpoint is counted.

Acknowledgements (tags `ack` and `bAck`) are stored in the same topics as checkpoints. The broker reads an
acknowledgement after the checkpoint of the same message. `popped_offsets` does not read acknowledgements, and counts a
message until the broker has processed the message's checkpoint. `popped_messages` subtracts acknowledged messages. With
popConsumerKVServiceEnable (5.3.2 and later), checkpoints are in the RocksDB database kvStore/ instead. rmqctl does not
read this database. A problem is reported only if the database has data.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rmqctl.format.body import pop_message
from rmqctl.format.body.pop_message import BODIES, CHECKPOINT_TAG, PopCheckpoint
from rmqctl.format.message import tags_code
from rmqctl.format.properties import REAL_TOPIC, TAGS, TIMER_OUT_MS
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.config_file import TIMER_CHECK
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import REVIVE_PREFIX, TIMER_TOPIC
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rmqctl.format.body.pop_message import PopAck, PopKey
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
KV_FOLDER, KV_DATA = "kvStore", (".sst", ".log")
_TIMER_CHECK = struct.Struct(">qqq")  # time read up to (ms), position in timerlog/, queue offset of the timer's queue


class TimerProgress(NamedTuple):
    """The progress of the broker's timer.

    Messages due before `read_ms` (ms since 1970) are delivered. The timer has not read the units from `queue_offset`
    on.
    """

    read_ms: int
    queue_offset: int


def popped_offsets(store: ReadOnlyStore, problems: list[str]) -> dict[QueueKey, dict[str, int]]:
    """Return the lowest queue offset that an open checkpoint points to.

    The result has one queue offset for each queue and group. The last checkpoint that the broker has processed is also
    used, because the broker may not have copied all messages of this checkpoint. If a checkpoint or a file cannot be
    read or understood, a text about the fault is appended to `problems`.
    """
    found: dict[QueueKey, dict[str, int]] = {}
    for checkpoint in _bodies(store, [CHECKPOINT_TAG], problems, with_last=True):
        offsets = found.setdefault((checkpoint.t, checkpoint.q), {})
        offsets[checkpoint.c] = min(checkpoint.so, offsets.get(checkpoint.c, checkpoint.so))
    return found


def popped_messages(store: ReadOnlyStore, problems: list[str]) -> dict[QueueKey, dict[str, int]]:
    """Return, for each queue and group, how many popped messages are unacknowledged.

    If a checkpoint or a file cannot be read or understood, a text about the fault is appended to `problems`.
    """
    popped: dict[PopKey, set[int]] = {}
    acknowledged: dict[PopKey, set[int]] = {}
    for body in _bodies(store, BODIES, problems, with_last=False):
        if isinstance(body, PopCheckpoint):
            popped.setdefault(body.key, set()).update(body.unacknowledged())
        else:
            acknowledged.setdefault(body.key, set()).update(body.offsets())
    found: dict[QueueKey, dict[str, int]] = {}
    for key, offsets in popped.items():
        if left := offsets - acknowledged.get(key, set()):
            topic, group, queue_id, *_ = key
            counts = found.setdefault((topic, queue_id), {})
            counts[group] = counts.get(group, 0) + len(left)
    return found


def _bodies(
    store: ReadOnlyStore, tags: Collection[str], problems: list[str], *, with_last: bool
) -> Iterator[PopCheckpoint | PopAck]:
    """Yield the unprocessed bodies of messages that have one of `tags`.

    With `with_last`, the last checkpoint that the broker has processed is yielded first. A broker commits the offset of
    this checkpoint.
    """
    revived = {
        (known.topic, known.queue_id): known.offset + (not with_last)
        for known in consumer_offsets(store)
        if known.owner == REVIVE_GROUP
    }
    for key, queue in store.queues.items():
        if key[0] != TIMER_TOPIC and not key[0].startswith(REVIVE_PREFIX):
            continue
        try:
            is_timer = key[0] == TIMER_TOPIC
            for message in _timed(store, queue, tags) if is_timer else _stored(store, queue, revived.get(key, 0), tags):
                if (body := _decoded(message, problems)) is not None:
                    yield body
        except OSError as error:
            problems.append(f"queue {key[0]} {key[1]}: {error.strerror}")
    if _has_popped_in_rocksdb(store):
        problems.append(
            f"{KV_FOLDER}/ says which messages were popped (popConsumerKVServiceEnable), and rmqctl cannot read it"
        )


def _has_popped_in_rocksdb(store: ReadOnlyStore) -> bool:
    """Return whether kvStore/ may have data.

    A RocksDB database has its data in .sst files, and new data first in .log files. If no message was popped, the
    database has no .sst files, and no .log file with data.
    """
    folder = store.storage.entry(store.path.root / KV_FOLDER)
    if folder.kind is not Kind.DIRECTORY:
        return folder.kind is not Kind.MISSING
    files = store.storage.listing(folder.path)
    return any(file.name.endswith(KV_DATA) and (file.size or file.kind is not Kind.FILE) for file in files)


def _decoded(message: Message, problems: list[str]) -> PopCheckpoint | PopAck | None:
    """Return the body of a message.

    If the body cannot be understood, the result is None, and a text is appended to `problems`, once for each queue and
    error.
    """
    try:
        return pop_message.decode(message.properties[TAGS], bytes(message.body))
    except msgspec.MsgspecError as error:
        problem = f"queue {message.topic} {message.queue_id}: a checkpoint of POP cannot be understood: {error}"
        if problem not in problems:
            problems.append(problem)
        return None


def _stored(store: ReadOnlyStore, queue: UnitQueue, start: int, tags: Collection[str]) -> Iterator[Message]:
    """Yield the messages from queue offset `start` on that have one of `tags`."""
    codes = {tags_code({TAGS: tag}) for tag in tags}
    first = max(start, queue.min_offset(store.commit_log.min_offset))
    for unit in queue.units(first, queue.max_offset):
        if unit.tags_code <= 0 or unit.tags_code in codes:  # below 0: an address in a consume queue extension
            message = store.commit_log.message_at(unit.physical_offset)
            if message is not None and message.properties.get(TAGS) in tags:
                yield message


def _timed(store: ReadOnlyStore, queue: UnitQueue, tags: Collection[str]) -> Iterator[Message]:
    """Yield the messages for a revive queue that are still in the timer."""
    progress = timer_progress(store)
    for message in _stored(store, queue, 0, tags):
        found = message.properties
        if not found.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX):
            continue
        due = found.get(TIMER_OUT_MS, "")
        is_done = due.isascii() and due.isdecimal() and int(due[:20]) < progress.read_ms
        if not is_done or message.queue_offset >= progress.queue_offset:
            yield message


def timer_progress(store: ReadOnlyStore) -> TimerProgress:
    """Return the progress in config/timercheck.

    If this file does not exist, the timer has delivered no message. Raises OSError.
    """
    path = store.path.part(CONFIG) / TIMER_CHECK
    if store.storage.entry(path).kind is Kind.MISSING:
        return TimerProgress(0, 0)
    raw = store.storage.read_start(path, _TIMER_CHECK.size)
    if len(raw) < _TIMER_CHECK.size:
        return TimerProgress(0, 0)
    read_ms, _, queue_offset = _TIMER_CHECK.unpack(raw)
    return TimerProgress(read_ms, queue_offset)
