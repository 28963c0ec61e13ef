"""What stands beside log, queues and index: abort, checkpoint, configuration, and whether the log's start is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.forensics.finding import Finding
from rmqctl.format.checkpoint import CHECKPOINT, Checkpoint
from rmqctl.store.config import table
from rmqctl.store.read_only_store import SCHEDULE_TOPIC
from rmqctl.store.store_path import ABORT, CONFIG
from rmqctl.store.store_path import CHECKPOINT as CHECKPOINT_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.config import ConfigFile
    from rmqctl.store.read_only_store import ReadOnlyStore

CONFIG_FILES = ("topics.json", "consumerOffset.json", "delayOffset.json", "subscriptionGroup.json", "consumerFilter.json")
CONFIG_FILES_OF_5 = ("consumerOrderInfo.json", "timermetrics", "transactionMetrics")
CHECKPOINT_SLACK_MS = 3000  # recovery steps back this far itself
SHUTDOWN_SLACK_MS = 60_000  # a shutdown in order flushes; either time may lag a little all the same
HOURS_MS = 3_600_000


def audit_abort(store: ReadOnlyStore) -> Iterator[Finding]:
    """`abort` without a broker that holds the lock."""
    if store.path.has_abort and store.lock_holder() is None:
        yield Finding("abort", ABORT, None, "the store was not shut down in order; the next start runs the abnormal recovery")


def audit_checkpoint(store: ReadOnlyStore, newest: int, last: int) -> Iterator[Finding]:
    """The checkpoint against the store times (ms) of the youngest message and the last one; 0: there is none."""
    checkpoint = store.checkpoint()
    if checkpoint is None:
        yield Finding("checkpoint-missing", CHECKPOINT_NAME, None, "the checkpoint is missing or shorter than 40 bytes")
        return
    flushed = max(checkpoint.physic_msg_timestamp, checkpoint.logics_msg_timestamp)
    if flushed < last - SHUTDOWN_SLACK_MS and not store.path.has_abort:
        detail = f"the last time in it is {flushed}, the last message was stored at {last}, and the store was shut down in order"
        yield Finding("checkpoint-behind", CHECKPOINT_NAME, None, detail, file_offset=0)
    yield from _times_ahead(checkpoint, newest)


def _times_ahead(checkpoint: Checkpoint, newest: int) -> Iterator[Finding]:
    for field, value in zip(CHECKPOINT.fields[:3], checkpoint, strict=False):
        if value < 0 or value > newest + CHECKPOINT_SLACK_MS:
            detail = f"{field.name} is {value}, the last message was stored at {newest}"
            yield Finding("checkpoint-ahead", CHECKPOINT_NAME, None, detail, file_offset=CHECKPOINT.offset(field.name))


def audit_config(store: ReadOnlyStore) -> Iterator[Finding]:
    """config/*.json: readable, and no offset behind its queue's end."""
    for name in CONFIG_FILES + CONFIG_FILES_OF_5:
        config = store.config(name)
        if config.problem:
            instead = "; its .bak is good" if config.content is not None else ""
            yield Finding("config-invalid", f"{CONFIG}/{name}", None, config.problem + instead)
    for found in [*consumer_offsets(store), *delay_offsets(store)]:
        queue = store.queues.get((found.topic, found.queue_id))
        end = queue.max_offset if queue else 0
        if found.offset > end:
            detail = f"{found.owner} is at {found.offset}, the queue ends at {end}"
            path = f"{CONFIG}/{found.source}"
            yield Finding("offset-beyond-queue", path, None, detail, topic=found.topic, queue_id=found.queue_id, queue_offset=found.offset)


class StoredOffset(NamedTuple):
    """How far a consumer group, or a delay level, is in a queue (units); `source` is the config file."""

    owner: str
    topic: str
    queue_id: int
    offset: int
    source: str


def consumer_offsets(store: ReadOnlyStore) -> list[StoredOffset]:
    """The offsets of consumerOffset.json (`topic@group`: queueId -> offset)."""
    found = []
    for key, offsets in table(store.config("consumerOffset.json"), "offsetTable").items():
        topic, _, group = key.partition("@")
        found += [StoredOffset(group, topic, queue_id, offset, "consumerOffset.json") for queue_id, offset in _integers(offsets)]
    return found


def delay_offsets(store: ReadOnlyStore) -> list[StoredOffset]:
    """The offsets of delayOffset.json (delay level -> offset); level n is queue n - 1."""
    levels = table(store.config("delayOffset.json"), "offsetTable")
    return [
        StoredOffset(f"delay level {level}", SCHEDULE_TOPIC, level - 1, offset, "delayOffset.json")
        for level, offset in _integers(levels)
        if level
    ]


def _integers(offsets: Any) -> Iterator[tuple[int, int]]:
    if not isinstance(offsets, dict):
        return
    for key, value in offsets.items():
        if isinstance(key, str) and key.isdecimal() and len(key) <= 10 and isinstance(value, int):
            yield int(key), value


def audit_log_start(store: ReadOnlyStore, oldest: int, newest: int, expired_units: int) -> Iterator[Finding]:
    """Units before the log's start, although the log's first message is younger than what expires.

    A file expires by its last write, which is about the store time of the first message of the next (`oldest`). Compared
    with the last sign of life in the store itself (`newest`, both ms), not with today: the answer for a copy must not change.
    """
    if not expired_units or not oldest:
        return
    reserved = store.conf.file_reserved_ms
    if newest - oldest < reserved:
        start = store.commit_log.min_offset
        detail = (
            f"{expired_units} queue units point before {start}, but the first message left is only "
            f"{(newest - oldest) / HOURS_MS:.1f} h older than the last; files expire after {reserved // HOURS_MS} h"
        )
        yield Finding("log-start-missing", store.commit_log.path_of(start), 0, detail, size=start, count=expired_units)


def config_files(store: ReadOnlyStore) -> list[ConfigFile]:
    """Every config file that the store has, as a broker would load it."""
    loaded = [store.config(name) for name in CONFIG_FILES + CONFIG_FILES_OF_5]
    return [config for config in loaded if config.source is not None or config.problem]
