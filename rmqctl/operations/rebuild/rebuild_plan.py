"""The changes that a rebuild makes in a store.

The new queue files and index files replace the old files. The checkpoint gets a new indexMsgTimestamp.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmqctl.forensics.doctor.queue_clues import other_keys
from rmqctl.format.checkpoint import CHECKPOINT as CHECKPOINT_LAYOUT
from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import PLACES_MAX
from rmqctl.format.properties import LMQ_PREFIX
from rmqctl.logfile.system.storage import Kind
from rmqctl.operations.plan import RebuildQueue, RepairPlan, Step
from rmqctl.operations.rebuild.built_queue import count_leading, slots_of
from rmqctl.store.config import store_path
from rmqctl.store.journal.changes import Delete, Install, Write
from rmqctl.store.recovery.data_loss import DataLoss, QueueOutcome
from rmqctl.store.recovery.queues.simulated_queues import BuiltSpan
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from rmqctl.forensics.finding import Finding
    from rmqctl.operations.rebuild.built_queue import QueueCounts
    from rmqctl.operations.rebuild.rebuild import Rebuild
    from rmqctl.operations.rebuild.strays import Stray
    from rmqctl.store.config.topics import QueueKey
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.consume_queue import UnitQueue
    from rmqctl.store.read.read_only_store import ReadOnlyStore

INDEX_TIME = "indexMsgTimestamp"
QUEUES_NAMED = 20
UNUSED = np.zeros(1, UNITS)

NAMES_OF_COUNTS = {"kept": "keptUnits"}  # JSON names of QueueCounts; other names are equal


class QueuePlan(NamedTuple):
    """One queue, before and after the rebuild."""

    topic: str
    queue_id: int
    min_offset: int  # queue offset after the rebuild
    max_offset: int  # queue offset after the rebuild
    units: int
    units_now: int  # that a broker serves before the rebuild
    differ: int  # units that the rebuild changes
    counts: QueueCounts | None = None  # of the new queue; None: the queue is deleted
    moved: int = 0  # queue offsets that will lead to another message than before, or to no message

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
        return dict(zip(("fileCount", "fileCountNow", "entryCount", "entryCountNow"), self, strict=True))


def queue_plans(rebuild: Rebuild, store: ReadOnlyStore) -> list[QueuePlan]:
    """Return plans of the rebuilt queues and the deleted queues. Raises OSError."""
    log, plans = rebuild.log.range, []
    for counts in rebuild.result.queues:
        queue = store.queues.get(counts.key)
        now = _served(queue, log.start)
        # the rebuild removes the units before the new begin and after the new end
        removed = range(now.start, counts.min_offset), range(max(counts.max_offset, now.start), now.stop)
        moved = counts.moved + count_leading(queue, log, *removed)
        span = counts.min_offset, counts.max_offset, counts.units
        plans.append(QueuePlan(*counts.key, *span, len(now), _differ(queue, counts, now), counts, moved))
    for key in rebuild.result.removed:
        units = len(_served(store.queues[key], log.start))
        plans.append(QueuePlan(*key, 0, 0, 0, units, units))
    return sorted(plans, key=lambda plan: (plan.topic, plan.queue_id))


def _served(queue: UnitQueue | None, log_begin: int) -> range:
    return range(*queue.min_and_max(log_begin)) if queue is not None else range(0)


def _differ(queue: UnitQueue | None, counts: QueueCounts, now: range) -> int:
    """Count the units that will change, and slots in use behind both ends.

    Other units that a broker does not serve do not count.
    """
    in_both = len(range(max(counts.min_offset, now.start), min(counts.max_offset, now.stop)))
    behind = slots_of(queue, max(counts.max_offset, now.stop), PLACES_MAX)
    in_use = sum(int(np.count_nonzero(units != UNUSED)) for _, units in behind)
    return counts.units + len(now) - in_both - min(counts.same, in_both) + in_use


def repair_plan(rebuild: Rebuild, plans: list[QueuePlan], changes_made: list[Change]) -> RepairPlan:
    """Return a repair plan that rebuilds the queues, to simulate a broker's start."""
    result = rebuild.result
    made = [Step(RebuildQueue(plan.topic, plan.queue_id), "") for plan in plans if plan.counts is not None]
    others = [Step(change, "") for change in changes_made if isinstance(change, Delete)]
    queues = tuple(QueueOutcome(plan.topic, plan.queue_id, plan.min_offset, plan.max_offset) for plan in plans)
    notes = (*notes_of_strays(result.strays), *notes_of_other_keys(result.index_findings or ()))
    log = (rebuild.log.range.start, rebuild.log.range.stop, None, result.log.messages)
    plan = RepairPlan(*log, DataLoss(), queues, (*made, *others), notes)
    return with_loss_of_rebuilt(plan, [plan for plan in plans if plan.differ])


def with_loss_of_rebuilt(plan: RepairPlan, rebuilt: Sequence[QueuePlan]) -> RepairPlan:
    """Return `plan` with losses and notes for the rebuilt queues, in their order.

    If two messages have the same queue offset, the one without a unit counts as lost: brokers do not serve it, but its
    bytes stay in the log.
    """
    made = {queue.counts.key: (queue.counts, queue.moved) for queue in rebuilt if queue.counts is not None}
    counts = [of for of, _ in made.values()]
    own = [of for of in counts if not of.topic.startswith(LMQ_PREFIX)]
    lost = DataLoss(
        plan.lost.records + sum(of.unplaced for of in own),
        plan.lost.bytes + sum(of.duplicate_bytes + of.earlier_bytes for of in own),
    )
    queues = [
        queue._replace(lost=queue.lost + made[key][0].unplaced, moved=made[key][1])
        if (key := (queue.topic, queue.queue_id)) in made
        else queue
        for queue in plan.queues
    ]
    notes = _notes(counts, [moved for _, moved in made.values() if moved])
    return replace(plan, queues=tuple(queues), lost=lost, notes=(*plan.notes, *notes))


def _notes(rebuilt: list[QueueCounts], moved: list[int]) -> Iterator[str]:
    if unplaced := [of for of in rebuilt if of.unplaced]:
        firsts = [f", the first at {of.first_duplicate}" if of.duplicates else "" for of in unplaced]
        where = [f"{of.topic}/{of.queue_id}: {of.unplaced}{at}" for of, at in zip(unplaced, firsts, strict=True)]
        count = sum(of.unplaced for of in unplaced)
        # of light messages, INNER_MULTI_QUEUE_OFFSET may be wrong
        is_light = all(of.topic.startswith(LMQ_PREFIX) for of in unplaced)
        whence = "" if is_light else ": files of another store may lie in the log"
        yield (
            f"{counted(count, 'message')} {'has' if count == 1 else 'have'} a queue offset that another message of the "
            f"same queue has, and no place in it ({_listed(where)}){whence}. They count as lost; `rmqctl dump` shows "
            "them"
        )
    if misnumbered := [of for of in rebuilt if of.misnumbered]:
        where = [f"{of.topic}/{of.queue_id}: {of.misnumbered}" for of in misnumbered]
        messages = counted(sum(of.misnumbered for of in misnumbered), "message")
        yield f"the place of {messages} in the queue is not what QUEUEOFFSET says ({_listed(where)})"
    if moved:
        yield (
            f"{counted(sum(moved), 'place')} of {counted(len(moved), 'queue')} will lead to another message than now, "
            "or to none: consumers go on there with another message"
        )


def _listed(names: list[str]) -> str:
    more = len(names) - QUEUES_NAMED
    return "; ".join(names[:QUEUES_NAMED]) + (f"; {counted(more, 'queue')} more" if more > 0 else "")


def notes_of_strays(strays: Iterable[Stray]) -> Iterator[str]:
    """Return a note on each record for which no queue is created."""
    return (f"{stray}, and makes no queue" for stray in strays)


def notes_of_other_keys(of_index: Sequence[Finding]) -> Iterator[str]:
    """Yield a note on records whose keys have probably changed.

    A new index does not have the old keys.
    """
    if offsets := sorted({finding.physical_offset or 0 for finding in other_keys(of_index)}):
        yield (
            f"the index has another key than the record at {' and at '.join(map(str, offsets))}, as a hash, and a new "
            "index does not: keep a copy of index/ first, if the right key is not known"
        )


def built_spans(rebuilt: Iterable[QueuePlan]) -> dict[QueueKey, BuiltSpan]:
    """Return the begin and the end of each rebuilt queue."""
    counts = [queue.counts for queue in rebuilt if queue.counts is not None]
    return {of_queue.key: BuiltSpan(of_queue.min_offset, of_queue.max_offset, of_queue.end) for of_queue in counts}


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
    found = [*_queue_changes(rebuild, store, staging)] if rebuild.selection.queues else []
    if rebuild.selection.index:
        # as in a broker, indexMsgTimestamp becomes the end timestamp of the last full index file
        found.append(Install(store_path.INDEX, staging, store_path.INDEX))
        checkpoint, time = store.checkpoint(), rebuild.result.index.full_until
        if checkpoint is not None and checkpoint.index_msg_timestamp != time:
            offset = CHECKPOINT_LAYOUT.offset(INDEX_TIME)
            found.append(Write(store_path.CHECKPOINT, offset, time.to_bytes(8, "big", signed=True)))
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


def _is_there(store: ReadOnlyStore, path: str) -> bool:
    return store.storage.entry(store.path.part(path)).kind in (Kind.FILE, Kind.DIRECTORY)
