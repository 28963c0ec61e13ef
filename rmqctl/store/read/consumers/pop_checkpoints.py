"""Messages that groups popped and did not acknowledge (5.x).

When a group pops messages, the group's offset moves past the messages. The broker stores a POP checkpoint that points
to the popped messages. POP checkpoints are messages in rmq_sys_REVIVE_LOG_CLUSTER, with tag `ck` and a JSON body. The
broker's PopReviveService reads the POP checkpoints as the group CID_RMQ_SYS_REVIVE_GROUP. If a popped message was not
acknowledged in time, PopReviveService copies the message to a retry topic. Until CID_RMQ_SYS_REVIVE_GROUP has consumed
a POP checkpoint, the broker may need the popped messages. In a POP checkpoint, `t` is the topic, `q` is the queueId,
and `so` is the first queue offset of the popped messages.

Until a POP checkpoint is due, the broker keeps the checkpoint as a timer message in rmq_sys_wheel_timer. The property
REAL_TOPIC of the timer message names rmq_sys_REVIVE_LOG_CLUSTER. When a POP checkpoint is due, the broker copies it to
rmq_sys_REVIVE_LOG_CLUSTER. The file config/timercheck has the time up to which the broker has copied the due messages.
Without config/timercheck, every POP checkpoint in rmq_sys_wheel_timer is counted.

Acknowledgements (tags `ack` and `bAck`) are stored in the same topics as POP checkpoints. A broker reads an
acknowledgement after the POP checkpoint of the same message. `popped_offsets` does not read acknowledgements. For
`popped_offsets`, a POP checkpoint is open until the broker has processed it. `popped_messages` subtracts acknowledged
messages. With popConsumerKVServiceEnable (5.3.2 and later), POP checkpoints are in the RocksDB database kvStore/.
rmqctl cannot read kvStore/, and reports a problem if kvStore/ has data.
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
    """The progress of a broker's timer message service (5.x).

    The timer has delivered the messages that were due before `read_ms` (ms since 1970). The timer has read the units of
    rmq_sys_wheel_timer before `queue_offset`.
    """

    read_ms: int
    queue_offset: int


def popped_offsets(store: ReadOnlyStore, problems: list[str]) -> dict[QueueKey, dict[str, int]]:
    """Return, for each queue and group, the lowest offset of open POP checkpoints.

    The last processed POP checkpoint counts as open, because some of its messages may not be copied yet. If a POP
    checkpoint or a file cannot be read or parsed, an error text is appended to `problems`.
    """
    found: dict[QueueKey, dict[str, int]] = {}
    for checkpoint in _bodies(store, [CHECKPOINT_TAG], problems, with_last=True):
        offsets = found.setdefault((checkpoint.t, checkpoint.q), {})
        offsets[checkpoint.c] = min(checkpoint.so, offsets.get(checkpoint.c, checkpoint.so))
    return found


def popped_messages(store: ReadOnlyStore, problems: list[str]) -> dict[QueueKey, dict[str, int]]:
    """Return, for each queue and group, the number of unacknowledged popped messages.

    If a POP checkpoint or a file cannot be read or parsed, an error text is appended to `problems`.
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
    """Yield the POP checkpoints and acknowledgements that are not processed yet.

    Only messages with one of `tags` are decoded. With `with_last`, the message at the committed offset of
    CID_RMQ_SYS_REVIVE_GROUP is yielded, too. A broker commits the offset of the POP checkpoint that it processed last.
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
    """Return whether the RocksDB database kvStore/ may have data.

    RocksDB writes new data to .log files, and later to .sst files. If no message was popped, kvStore/ has no .sst file,
    and its .log files are empty.
    """
    folder = store.storage.entry(store.path.root / KV_FOLDER)
    if folder.kind is not Kind.DIRECTORY:
        return folder.kind is not Kind.MISSING
    files = store.storage.listing(folder.path)
    return any(file.name.endswith(KV_DATA) and (file.size or file.kind is not Kind.FILE) for file in files)


def _decoded(message: Message, problems: list[str]) -> PopCheckpoint | PopAck | None:
    """Decode the body of a POP checkpoint or acknowledgement.

    If the body cannot be parsed, the result is None, and an error text is appended to `problems`. The same error text
    is appended only once.
    """
    try:
        return pop_message.decode(message.properties[TAGS], bytes(message.body))
    except msgspec.MsgspecError as error:
        problem = f"queue {message.topic} {message.queue_id}: a checkpoint of POP cannot be understood: {error}"
        if problem not in problems:
            problems.append(problem)
        return None


def _stored(store: ReadOnlyStore, queue: UnitQueue, start: int, tags: Collection[str]) -> Iterator[Message]:
    """Yield the messages of a queue with one of `tags`, from offset `start` on."""
    codes = {tags_code({TAGS: tag}) for tag in tags}
    first = max(start, queue.min_offset(store.commit_log.min_offset))
    for unit in queue.units(first, queue.max_offset):
        if unit.tags_code <= 0 or unit.tags_code in codes:  # below 0: an address in a consume queue extension
            message = store.commit_log.message_at(unit.physical_offset)
            if message is not None and message.properties.get(TAGS) in tags:
                yield message


def _timed(store: ReadOnlyStore, queue: UnitQueue, tags: Collection[str]) -> Iterator[Message]:
    """Yield the POP messages that the broker's timer has not delivered yet."""
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
    """Return the progress of the broker's timer from config/timercheck.

    If config/timercheck does not exist or is too short, the progress is 0. Raises OSError.
    """
    path = store.path.part(CONFIG) / TIMER_CHECK
    if store.storage.entry(path).kind is Kind.MISSING:
        return TimerProgress(0, 0)
    raw = store.storage.read_start(path, _TIMER_CHECK.size)
    if len(raw) < _TIMER_CHECK.size:
        return TimerProgress(0, 0)
    read_ms, _, queue_offset = _TIMER_CHECK.unpack(raw)
    return TimerProgress(read_ms, queue_offset)
