"""Messages that groups popped and did not acknowledge (5.x).

The group's offset is after these messages, but a checkpoint still points to them. A broker stores checkpoints (tag
`ck`, a JSON body) in rmq_sys_REVIVE_LOG_CLUSTER. Its PopReviveService reads them as the group CID_RMQ_SYS_REVIVE_GROUP,
and copies each message that was not acknowledged in time from its queue to a retry topic. So until
CID_RMQ_SYS_REVIVE_GROUP has consumed the checkpoint, the messages of queue `q` of topic `t`, from queue offset `so` on,
may still be read.

A checkpoint that is not due yet is a timer message: it is in rmq_sys_wheel_timer with the property REAL_TOPIC. When it
is due, the broker copies it to rmq_sys_REVIVE_LOG_CLUSTER. config/timercheck has the time up to which the broker has
done this. Without this file, every checkpoint counts.

Acknowledgements are not read: a message counts until the broker has processed its checkpoint. With
popConsumerKVServiceEnable (5.3.2 and later), checkpoints are in the RocksDB database kvStore/ instead. rmqctl does not
read this database.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from rmqctl.format.message import tags_code
from rmqctl.format.properties import REAL_TOPIC, TAGS, TIMER_OUT_MS
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config import bounded_json
from rmqctl.store.config.store_path import CONFIG
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

REVIVE_PREFIX, REVIVE_GROUP, CHECKPOINT_TAG = "rmq_sys_REVIVE_LOG_", "CID_RMQ_SYS_REVIVE_GROUP", "ck"
TIMER_CHECK, KV_FOLDER = "timercheck", "kvStore"
_TIMER_CHECK = struct.Struct(">qqq")  # time read up to (ms), position in timerlog/, queue offset of the timer's queue
_SIGNS_MAX = 100_000  # in a body; a checkpoint has a few for each of the messages of one pop
_CHECKPOINT_CODE = tags_code({TAGS: CHECKPOINT_TAG})


class PopCheckpoint(msgspec.Struct):
    """The body of a checkpoint.

    Group `c` popped messages of queue `q` of topic `t`, from queue offset `so` on.
    """

    c: str
    t: str
    q: int
    so: Annotated[int, msgspec.Meta(ge=0)]


class TimerProgress(NamedTuple):
    """The progress of the broker's timer.

    Messages due before `read_ms` (ms since 1970) are delivered. The timer has not read the units from `queue_offset`
    on.
    """

    read_ms: int
    queue_offset: int


def popped_offsets(store: ReadOnlyStore, problems: list[str]) -> dict[QueueKey, dict[str, int]]:
    """Return the first queue offset that an open checkpoint points to.

    The result is by queue and group. If something cannot be read or understood, a text about it is appended to
    `problems`.
    """
    revived = {
        (known.topic, known.queue_id): known.offset for known in consumer_offsets(store) if known.owner == REVIVE_GROUP
    }
    found: dict[QueueKey, dict[str, int]] = {}
    for key, queue in store.queues.items():
        if key[0] != TIMER_TOPIC and not key[0].startswith(REVIVE_PREFIX):
            continue
        try:
            waiting = _timed(store, queue) if key[0] == TIMER_TOPIC else _stored(store, queue, revived.get(key, 0))
            for message in waiting:
                _note(message, found)
        except OSError as error:
            problems.append(f"queue {key[0]} {key[1]}: {error.strerror}")
        except msgspec.MsgspecError as error:
            problems.append(f"queue {key[0]} {key[1]}: a checkpoint of POP cannot be understood: {error}")
    if store.storage.entry(store.path.root / KV_FOLDER).kind is not Kind.MISSING:
        problems.append(
            f"{KV_FOLDER}/ says which messages were popped (popConsumerKVServiceEnable), and rmqctl cannot read it"
        )
    return found


def _stored(store: ReadOnlyStore, queue: UnitQueue, revived: int) -> Iterator[Message]:
    """Yield the checkpoints of a revive queue from queue offset `revived` on.

    The queue belongs to a topic rmq_sys_REVIVE_LOG_CLUSTER.
    """
    first = max(revived, queue.min_offset(store.commit_log.min_offset))
    for unit in queue.units(first, queue.max_offset):
        if (
            unit.tags_code <= 0 or unit.tags_code == _CHECKPOINT_CODE
        ):  # below 0: an address in a consume queue extension
            message = store.commit_log.message_at(unit.physical_offset)
            if message is not None and message.properties.get(TAGS) == CHECKPOINT_TAG:
                yield message


def _timed(store: ReadOnlyStore, queue: UnitQueue) -> Iterator[Message]:
    """Yield the checkpoints that are still in the timer."""
    progress = _timer_progress(store)
    for message in _stored(store, queue, 0):
        found = message.properties
        if not found.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX):
            continue
        due = found.get(TIMER_OUT_MS, "")
        is_done = due.isascii() and due.isdecimal() and int(due[:20]) < progress.read_ms
        if not is_done or message.queue_offset >= progress.queue_offset:
            yield message


def _timer_progress(store: ReadOnlyStore) -> TimerProgress:
    """Return the progress in config/timercheck.

    Without the file, nothing was delivered. Raises OSError.
    """
    path = store.path.part(CONFIG) / TIMER_CHECK
    if store.storage.entry(path).kind is Kind.MISSING:
        return TimerProgress(0, 0)
    raw = store.storage.read_start(path, _TIMER_CHECK.size)
    if len(raw) < _TIMER_CHECK.size:
        return TimerProgress(0, 0)
    read_ms, _, queue_offset = _TIMER_CHECK.unpack(raw)
    return TimerProgress(read_ms, queue_offset)


def _note(message: Message, found: dict[QueueKey, dict[str, int]]) -> None:
    checkpoint = _checkpoint(bytes(message.body))
    offsets = found.setdefault((checkpoint.t, checkpoint.q), {})
    offsets[checkpoint.c] = min(checkpoint.so, offsets.get(checkpoint.c, checkpoint.so))


def _checkpoint(body: bytes) -> PopCheckpoint:
    """Return the checkpoint in a body. Raises MsgspecError.

    Anyone may have sent the body, and msgspec does not limit the depth of the JSON or the size of integers. So both are
    checked first.
    """
    try:
        bounded_json.loads(body.decode(), _SIGNS_MAX)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return msgspec.json.decode(body, type=PopCheckpoint)
