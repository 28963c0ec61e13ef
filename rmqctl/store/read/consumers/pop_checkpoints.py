"""Messages that groups popped and did not acknowledge (5.x).

When a group pops messages, its offset moves past them, and the broker stores a POP checkpoint that points to them: a
message in rmq_sys_REVIVE_LOG_CLUSTER with tag `ck` and a JSON body (`t`: topic, `q`: queueId, `so`: first queue
offset). The broker's PopReviveService reads the checkpoints as the group CID_RMQ_SYS_REVIVE_GROUP, and copies a message
that was not acknowledged in time to a retry topic. Until it has consumed a checkpoint, the broker may need the popped
messages.

Until a POP checkpoint is due, it is a timer message in rmq_sys_wheel_timer, whose property REAL_TOPIC names
rmq_sys_REVIVE_LOG_CLUSTER; then the broker copies it there. The file config/timercheck has the time up to which due
messages were copied; without it, every POP checkpoint in rmq_sys_wheel_timer counts.

Acknowledgements (tags `ack` and `bAck`) are in the same topics; a broker reads one after the POP checkpoint of the same
message. `popped_offsets` does not read them: there, a POP checkpoint is open until the broker has processed it.
`popped_messages` subtracts acknowledged messages. With popConsumerKVServiceEnable (5.3.2 and later), POP checkpoints
are in the RocksDB database kvStore/, which rmqctl cannot read: if it has data, that is a problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rmqctl.format.body import pop_message
from rmqctl.format.body.pop_message import BODIES, CHECKPOINT_TAG, PopCheckpoint
from rmqctl.format.message import tags_code
from rmqctl.format.properties import REAL_TOPIC, TAGS, TIMER_OUT_MS
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.topics import REVIVE_PREFIX, TIMER_TOPIC
from rmqctl.store.read.consumers.consumer_offsets import consumer_offsets
from rmqctl.store.read.timer_check import timer_check

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rmqctl.format.body.pop_message import PopAck, PopKey
    from rmqctl.format.message import Message
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
KV_FOLDER, KV_DATA = "kvStore", (".sst", ".log")


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


def popped_messages(store: ReadOnlyStore, problems: list[str]) -> dict[QueueKey, dict[str, int]]:
    """Return, for each queue and group, the number of unacknowledged popped messages.

    Of a POP checkpoint or file that cannot be read or parsed, an error text is appended to `problems`.
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

    Only messages with one of `tags` are decoded. `with_last` adds the one at the committed offset of
    CID_RMQ_SYS_REVIVE_GROUP: a broker commits the offset of the checkpoint that it processed last.
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

    RocksDB writes new data to .log files, and later to .sst files. If no message was popped, there is no .sst file, and
    the .log files are empty.
    """
    folder = store.storage.entry(store.path.root / KV_FOLDER)
    if folder.kind is not Kind.DIRECTORY:
        return folder.kind is not Kind.MISSING
    files = store.storage.listing(folder.path)
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
        found = message.properties
        if not found.get(REAL_TOPIC, "").startswith(REVIVE_PREFIX):
            continue
        due = found.get(TIMER_OUT_MS, "")
        is_done = due.isascii() and due.isdecimal() and int(due[:20]) < check.last_read_time_ms
        if not is_done or message.queue_offset >= check.last_timer_queue_offset:
            yield message
