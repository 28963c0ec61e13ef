"""The changes that a rebuild makes in a store.

The new queue files and index files replace the old files. The checkpoint gets a new indexMsgTimestamp.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.format.checkpoint import CHECKPOINT as CHECKPOINT_LAYOUT
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.logfile.system.storage import Kind
from rmqctl.operations.plan import RebuildQueue, RepairPlan, Step
from rmqctl.operations.rebuild.built_queue import lead_into
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Install, Write
from rmqctl.store.read.consume_queue import ConsumeQueue
from rmqctl.store.recovery.data_loss import DataLoss, QueueOutcome
from rmqctl.store.recovery.simulated_queues import BuiltSpan
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from rmqctl.operations.rebuild.built_queue import QueueCounts
    from rmqctl.operations.rebuild.rebuild import Rebuild
    from rmqctl.operations.rebuild.strays import Stray
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.read_only_store import ReadOnlyStore

INDEX_TIME = "indexMsgTimestamp"
QUEUES_NAMED = 20

NAMES_OF_COUNTS = {"kept": "keptUnits"}  # JSON names of QueueCounts; other names are equal


class QueuePlan(NamedTuple):
    """One queue, before and after the rebuild.

    `min_offset` and `max_offset` are queue offsets after the rebuild. `units_now` counts the units that a broker serves
    before the rebuild. `differ` counts units that the rebuild changes. `moved` counts queue offsets that will lead to
    another message than before, or to no message. `counts` has details of the new queue. `counts` is None if the queue
    is deleted.
    """

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    units: int
    units_now: int
    differ: int
    counts: QueueCounts | None = None
    moved: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the queue as `rebuild -o json` prints it."""
        found = {
            "topic": self.topic, "queueId": self.queue_id, "minOffset": self.min_offset, "maxOffset": self.max_offset,
            "unitCount": self.units, "unitCountNow": self.units_now, "differ": self.differ,
        }  # fmt: skip
        odd = ("kept", "repeated", "misnumbered", "duplicates", "anew") if self.counts is not None else ()
        found |= {"moved": self.moved} if self.moved else {}
        return found | {NAMES_OF_COUNTS.get(name, name): count for name in odd if (count := getattr(self.counts, name))}


class IndexPlan(NamedTuple):
    """The numbers of index files and entries, before and after the rebuild."""

    files: int
    files_now: int
    entries: int
    entries_now: int

    def to_json(self) -> dict[str, int]:
        """Return the index as `rebuild -o json` prints it."""
        return {
            "fileCount": self.files,
            "fileCountNow": self.files_now,
            "entryCount": self.entries,
            "entryCountNow": self.entries_now,
        }


def queue_plans(rebuild: Rebuild, store: ReadOnlyStore) -> list[QueuePlan]:
    """Return plans of the rebuilt queues and the deleted queues. Raises OSError."""
    plans = []
    for counts in rebuild.result.queues:
        now = _units_now(store, counts.key, rebuild.result.begin)
        differ = _differ(counts, now) + _slots_behind(store, counts, now.stop)
        moved = counts.moved + _places_that_go(rebuild, store, counts, now)
        plans.append(
            QueuePlan(*counts.key, counts.min_offset, counts.max_offset, counts.units, len(now), differ, counts, moved)
        )
    for key in rebuild.result.removed:
        now = _units_now(store, key, rebuild.result.begin)
        plans.append(QueuePlan(*key, 0, 0, 0, len(now), len(now)))
    return sorted(plans, key=lambda plan: (plan.topic, plan.queue_id))


def _places_that_go(rebuild: Rebuild, store: ReadOnlyStore, counts: QueueCounts, now: range) -> int:
    """Count units that a rebuild removes and that point to messages of the log.

    A rebuild removes the units before the new begin and after the new end of a queue. Raises OSError.
    """
    queue = store.queues.get(counts.key)
    if not isinstance(queue, ConsumeQueue):
        return 0
    outside = ((now.start, min(counts.min_offset, now.stop)), (max(counts.max_offset, now.start), now.stop))
    blocks = (np.frombuffer(data, UNITS) for low, high in outside if low < high for _, data in queue.blocks(low, high))
    return sum(int(np.count_nonzero(lead_into(units, rebuild.log.range))) for units in blocks)


def _differ(counts: QueueCounts, now: range) -> int:
    """Count the queue offsets whose unit will change.

    Units that a broker does not serve do not count.
    """
    in_both = len(range(max(counts.min_offset, now.start), min(counts.max_offset, now.stop)))
    return counts.units + len(now) - in_both - min(counts.same, in_both)


def _slots_behind(store: ReadOnlyStore, counts: QueueCounts, end_now: int) -> int:
    """Count the non-empty slots that are after a queue's old end and new end.

    `end_now` is the end of the queue before the rebuild. Raises OSError.
    """
    queue = store.queues.get(counts.key)
    if not isinstance(queue, ConsumeQueue):
        return 0
    blocks = queue.blocks(max(counts.max_offset, end_now), queue.slots_end)
    return sum(
        int(np.count_nonzero(np.frombuffer(data, np.uint8).reshape(-1, CQ_UNIT.size).any(axis=1))) for _, data in blocks
    )


def _units_now(store: ReadOnlyStore, key: QueueKey, log_begin: int) -> range:
    """Return the queue offsets that a broker serves from the existing queue.

    The result is empty if the store does not have the queue.
    """
    queue = store.queues.get(key)
    return range(*queue.min_and_max(log_begin)) if queue is not None else range(0)


def repair_plan(rebuild: Rebuild, plans: list[QueuePlan], changes_made: list[Change]) -> RepairPlan:
    """Return a repair plan that rebuilds the queues.

    The simulation of a broker's start needs a repair plan.
    """
    result = rebuild.result
    made = [Step(RebuildQueue(plan.topic, plan.queue_id), "") for plan in plans if plan.counts is not None]
    others = [Step(change, "") for change in changes_made if isinstance(change, Delete)]
    outcomes = tuple(QueueOutcome(plan.topic, plan.queue_id, plan.min_offset, plan.max_offset) for plan in plans)
    whole = RepairPlan(
        result.begin, rebuild.log.range.stop, None, result.log.messages, DataLoss(), outcomes, (*made, *others)
    )
    whole = replace(whole, notes=tuple(notes_of_strays(result.strays)))
    return with_loss_of_rebuilt(whole, [plan for plan in plans if plan.differ])


def with_loss_of_rebuilt(plan: RepairPlan, rebuilt: Iterable[QueuePlan]) -> RepairPlan:
    """Return `plan` with losses and notes for the rebuilt queues.

    If two messages have the same queue offset, the message without a unit counts as lost. Brokers do not serve a
    message without a unit, but the bytes of the message stay in the log.
    """
    made = {(queue.topic, queue.queue_id): queue for queue in rebuilt}
    duplicates = {
        key: queue.counts for key, queue in made.items() if queue.counts is not None and queue.counts.unplaced
    }
    own = [counts for counts in duplicates.values() if not counts.topic.startswith(LMQ_PREFIX)]
    lost_bytes = sum(of.duplicate_bytes + of.earlier_bytes for of in own)
    lost = DataLoss(plan.lost.records + sum(of.unplaced for of in own), plan.lost.bytes + lost_bytes)
    queues = tuple(_with_counts(queue, made.get((queue.topic, queue.queue_id))) for queue in plan.queues)
    odd = [queue.counts for _, queue in sorted(made.items()) if queue.counts is not None and queue.counts.misnumbered]
    notes = [
        *plan.notes,
        *_note_of_duplicates([counts for _, counts in sorted(duplicates.items())]),
        *_note_of_misnumbered(odd),
    ]
    moved = [queue.moved for queue in made.values() if queue.counts is not None and queue.moved]
    if moved:
        where = f"{counted(sum(moved), 'place')} of {counted(len(moved), 'queue')}"
        notes.append(
            f"{where} will lead to another message than now, or to none: consumers go on there with another message"
        )
    return replace(plan, queues=queues, lost=lost, notes=tuple(notes))


def notes_of_strays(strays: Iterable[Stray]) -> Iterator[str]:
    """Return a note on each record for which no queue is created."""
    return (f"{stray}, and makes no queue" for stray in strays)


def built_spans(rebuilt: Iterable[QueuePlan]) -> dict[QueueKey, BuiltSpan]:
    """Return the begin and the end of each rebuilt queue."""
    counts = [queue.counts for queue in rebuilt if queue.counts is not None]
    return {of_queue.key: BuiltSpan(of_queue.min_offset, of_queue.max_offset, of_queue.end) for of_queue in counts}


def _with_counts(queue: QueueOutcome, made: QueuePlan | None) -> QueueOutcome:
    if made is None or made.counts is None:
        return queue
    return queue._replace(lost=queue.lost + made.counts.unplaced, moved=made.moved)


def _note_of_duplicates(queues: list[QueueCounts]) -> Iterator[str]:
    if queues:
        where = [
            f"{of.topic}/{of.queue_id}: {of.unplaced}"
            + (f", the first at {of.first_duplicate}" if of.duplicates else "")
            for of in queues
        ]
        count = sum(of.unplaced for of in queues)
        messages, have = counted(count, "message"), "has" if count == 1 else "have"
        yield (
            f"{messages} {have} a queue offset that another message of the same queue has, and no place in it "
            f"({_listed(where)})"
            f"{_whence(queues)}. They count as lost; `rmqctl dump` shows them"
        )


def _whence(queues: list[QueueCounts]) -> str:
    """Return a text that says why messages have no unit.

    If all queues are light queues, the text is empty, because INNER_MULTI_QUEUE_OFFSET may be wrong.
    """
    is_light = all(of.topic.startswith(LMQ_PREFIX) for of in queues)
    return "" if is_light else ": files of another store may lie in the log"


def _note_of_misnumbered(queues: list[QueueCounts]) -> Iterator[str]:
    if queues:
        where = [f"{of.topic}/{of.queue_id}: {of.misnumbered}" for of in queues]
        messages = counted(sum(of.misnumbered for of in queues), "message")
        yield (f"the place of {messages} in the queue is not what QUEUEOFFSET says ({_listed(where)})")


def _listed(names: list[str]) -> str:
    more = len(names) - QUEUES_NAMED
    return "; ".join(names[:QUEUES_NAMED]) + (f"; {counted(more, 'queue')} more" if more > 0 else "")


def index_plan(rebuild: Rebuild, store: ReadOnlyStore) -> IndexPlan | None:
    """Return the plan of the index, or None if the index is not rebuilt.

    Raises OSError.
    """
    if not rebuild.selection.index:
        return None
    entries = rebuild.result.index.entries
    headers = [file.header() for file in store.index.files]
    entries_now = sum(max(header.index_count - 1, 0) for header in headers if header is not None)
    return IndexPlan(-(-entries // (rebuild.geometry.index_entries - 1)), len(headers), entries, entries_now)


def changes(rebuild: Rebuild, store: ReadOnlyStore, staging: Path) -> list[Change]:
    """Return the changes that move the files in `staging` into the store.

    Raises OSError.
    """
    found = list(_queue_changes(rebuild, store, staging)) if rebuild.selection.queues else []
    if rebuild.selection.index:
        found += _index_changes(rebuild, store, staging)
    return found


def _queue_changes(rebuild: Rebuild, store: ReadOnlyStore, staging: Path) -> Iterator[Change]:
    topics_in = {part: dict(store.storage.kinds(str(store.path.part(part)))) for part in store_path.QUEUE_PARTS}
    for counts in rebuild.result.queues:
        made = rebuild.wanted.parts_of(counts.topic)
        for part in store_path.QUEUE_PARTS:
            path = f"{part}/{counts.topic}/{counts.queue_id}"
            if part in made:
                yield Install(path, staging, path)
            elif counts.topic in topics_in[part] and _is_there(store, path):
                yield Delete(path)
    removed = rebuild.result.removed
    queues_now = Counter(topic for topic, _ in store.queues)
    made_topics = {counts.topic for counts in rebuild.result.queues}
    for topic in sorted({topic for topic, _ in removed}):
        queue_ids = [queue_id for of, queue_id in removed if of == topic]
        all_go = len(queue_ids) == queues_now[topic] and topic not in made_topics
        below = [""] if all_go else [f"/{queue_id}" for queue_id in queue_ids]
        paths = [f"{part}/{topic}{name}" for part in store_path.QUEUE_PARTS for name in below]
        yield from (Delete(path) for path in paths if _is_there(store, path))


def _index_changes(rebuild: Rebuild, store: ReadOnlyStore, staging: Path) -> Iterator[Change]:
    """Yield the changes that replace the index folder and set indexMsgTimestamp.

    indexMsgTimestamp becomes the end timestamp of the last full index file, as in a broker.
    """
    yield Install(store_path.INDEX, staging, store_path.INDEX)
    checkpoint = store.checkpoint()
    if checkpoint is not None and checkpoint.index_msg_timestamp != rebuild.result.index.full_until:
        offset = CHECKPOINT_LAYOUT.offset(INDEX_TIME)
        yield Write(store_path.CHECKPOINT, offset, rebuild.result.index.full_until.to_bytes(8, "big", signed=True))


def _is_there(store: ReadOnlyStore, path: str) -> bool:
    return store.storage.entry(store.path.part(path)).kind in (Kind.FILE, Kind.DIRECTORY)
