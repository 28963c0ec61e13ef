"""What a rebuild changes in a store: new queues and index in the places of the old ones, and the checkpoint's index time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.format.checkpoint import CHECKPOINT as CHECKPOINT_LAYOUT
from rmqctl.logfile.storage import Kind
from rmqctl.store import store_path
from rmqctl.store.changes import Delete, Install, Write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.store.built_queue import QueueCounts
    from rmqctl.store.changes import Change
    from rmqctl.store.read_only_store import QueueKey, ReadOnlyStore
    from rmqctl.store.rebuild import Rebuild

INDEX_TIME = "indexMsgTimestamp"


class QueuePlan(NamedTuple):
    """One queue, now and then. Offsets in units; `units_now` are those whose messages the log still has, `differ` those that change.

    `counts` tell more of how it was made; None: it goes.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    units: int
    units_now: int
    differ: int
    counts: QueueCounts | None = None

    def to_json(self) -> dict[str, Any]:
        """As `rebuild -o json` prints it."""
        found = {
            "topic": self.topic, "queueId": self.queue_id, "minOffset": self.min_offset, "maxOffset": self.max_offset,
            "units": self.units, "unitsNow": self.units_now, "differ": self.differ,
        }  # fmt: skip
        odd = ("kept", "repeated", "misnumbered", "again", "anew") if self.counts is not None else ()
        return found | {name: count for name in odd if (count := getattr(self.counts, name))}


class IndexPlan(NamedTuple):
    """The index, now and then: how many files and entries."""

    files: int
    files_now: int
    entries: int
    entries_now: int

    def to_json(self) -> dict[str, int]:
        """As `rebuild -o json` prints it."""
        return {"files": self.files, "filesNow": self.files_now, "entries": self.entries, "entriesNow": self.entries_now}


def queue_plans(rebuild: Rebuild, store: ReadOnlyStore) -> list[QueuePlan]:
    """The queues that were made, and those that go. Raises OSError."""
    plans = []
    for counts in rebuild.result.queues:
        now = _units_now(store, counts.key, rebuild.result.begin)
        differ = max(counts.units, now) - min(counts.same, now)
        plans.append(QueuePlan(*counts.key, counts.min_offset, counts.max_offset, counts.units, now, differ, counts))
    for key in rebuild.result.gone:
        now = _units_now(store, key, rebuild.result.begin)
        plans.append(QueuePlan(*key, 0, 0, 0, now, now))
    return sorted(plans, key=lambda plan: (plan.topic, plan.queue_id))


def _units_now(store: ReadOnlyStore, key: QueueKey, log_begin: int) -> int:
    queue = store.queues.get(key)
    return queue.max_offset - queue.min_offset(log_begin) if queue is not None else 0


def index_plan(rebuild: Rebuild, store: ReadOnlyStore) -> IndexPlan | None:
    """What becomes of the index; None: it is left alone. Raises OSError."""
    if not rebuild.selection.index:
        return None
    entries = rebuild.result.index.entries
    headers = [file.header() for file in store.index.files]
    entries_now = sum(max(header.index_count - 1, 0) for header in headers if header is not None)
    return IndexPlan(-(-entries // (rebuild.geometry.index_entries - 1)), len(headers), entries, entries_now)


def changes(rebuild: Rebuild, store: ReadOnlyStore, staging: Path) -> list[Change]:
    """What is to be done once all is made in `staging`, or would be. Raises OSError."""
    found = list(_queue_changes(rebuild, store, staging)) if rebuild.selection.queues else []
    if rebuild.selection.index:
        found += _index_changes(rebuild, store, staging)
    return found


def _queue_changes(rebuild: Rebuild, store: ReadOnlyStore, staging: Path) -> Iterator[Change]:
    for counts in rebuild.result.queues:
        made = rebuild.parts_of(counts.topic)
        for part in store_path.QUEUE_PARTS:
            path = f"{part}/{counts.topic}/{counts.queue_id}"
            if part in made:
                yield Install(path, staging / path)
            elif _is_there(store, path):
                yield Delete(path)
    gone = rebuild.result.gone
    made_topics = {counts.topic for counts in rebuild.result.queues}
    for topic in sorted({topic for topic, _ in gone}):
        queue_ids = [queue_id for of, queue_id in gone if of == topic]
        all_go = len(queue_ids) == sum(of == topic for of, _ in store.queues) and topic not in made_topics
        below = [""] if all_go else [f"/{queue_id}" for queue_id in queue_ids]
        paths = [f"{part}/{topic}{name}" for part in store_path.QUEUE_PARTS for name in below]
        yield from (Delete(path) for path in paths if _is_there(store, path))


def _index_changes(rebuild: Rebuild, store: ReadOnlyStore, staging: Path) -> Iterator[Change]:
    """The folder as a whole; and the checkpoint's index time, the end of the last full file, as a broker has it."""
    yield Install(store_path.INDEX, staging / store_path.INDEX)
    checkpoint = store.checkpoint()
    if checkpoint is not None and checkpoint.index_msg_timestamp != rebuild.result.index.full_until:
        offset = CHECKPOINT_LAYOUT.offset(INDEX_TIME)
        yield Write(store_path.CHECKPOINT, offset, rebuild.result.index.full_until.to_bytes(8, "big", signed=True))


def _is_there(store: ReadOnlyStore, path: str) -> bool:
    return store.storage.entry(store.path.part(path)).kind is not Kind.MISSING
