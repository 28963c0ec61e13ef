"""The plan of a change that sets the offset of a delay level.

A broker stores the offsets of delay levels in config/delayOffset.json.

A broker that starts with a level ahead of its queue skips what waits there: 4.9.2 and later set the level to the end
of the queue (ScheduleMessageService.correctDelayOffset), older ones wait until the queue reaches the offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import READ_ALL_HINT, BadRequest, Unreadable
from rmqctl.forensics.groups.delay_levels import undelivered
from rmqctl.forensics.groups.queue_ends import ends_of
from rmqctl.operations.configuration.config_change import check_is_in_files
from rmqctl.operations.configuration.offset_plan import OFFSETS, OffsetPlan, QueueOffset, changed_offsets
from rmqctl.store.config.topics import SCHEDULE_TOPIC
from rmqctl.store.read.consumers.consumer_offsets import DELAY_OFFSET, delay_offsets
from rmqctl.text import counted

if TYPE_CHECKING:
    from rmqctl.forensics.groups.delay_levels import Undelivered
    from rmqctl.format.profile import Profile
    from rmqctl.operations.configuration.offset_plan import OffsetGoal
    from rmqctl.store.read.read_only_store import ReadOnlyStore


def plan_delay_offset(store: ReadOnlyStore, profile: Profile, level: int, goal: OffsetGoal) -> OffsetPlan:
    """Return the plan that makes a broker go on at `goal` in a delay level.

    Levels count from 1.

    Raises BadRequest if the store does not know the level, or if the offset is not in its queue. Raises
    LayoutNotSupported, Unreadable and OSError.
    """
    check_is_in_files(store)
    known = {found.queue_id + 1: found.offset for found in delay_offsets(store)}
    levels = sorted(known.keys() | {queue_id + 1 for topic, queue_id in store.queues if topic == SCHEDULE_TOPIC})
    root = str(store.path.root)
    if level not in levels:
        hint = f"its levels are {', '.join(map(str, levels))}" if levels else "it has no delayed message"
        raise BadRequest(f"the store has no delay level {level}", path=root, hint=hint)
    if goal.kind == "time":
        raise BadRequest("a delay level has no offset of a time", hint="--to undelivered, or an offset")
    begin, end = ends_of(store, (SCHEDULE_TOPIC, level - 1))
    if begin is None or end is None:
        raise Unreadable(f"queue {SCHEDULE_TOPIC}/{level - 1} cannot be read", path=root)
    if goal.kind == "offset" and not begin <= goal.value <= end:
        what = f"offset {goal.value} is not in queue {SCHEDULE_TOPIC}/{level - 1}, which has {begin} to {end}"
        raise BadRequest(what, path=root, hint="--to undelivered")
    if goal.kind == "undelivered" and store.partly_read:
        what = "a part of it was not read, and may have what the level delivered"
        raise Unreadable(what, path=root, hint=READ_ALL_HINT)
    found = undelivered(store, level - 1)
    after = {"earliest": begin, "latest": end, "undelivered": found.first}.get(goal.kind, goal.value)
    config = store.config(DELAY_OFFSET)
    change = changed_offsets(store, config, profile, [((OFFSETS,), {level: after})])
    queue = QueueOffset(level - 1, begin, end, known.get(level), after)
    return OffsetPlan(
        f"delay level {level}", SCHEDULE_TOPIC, (queue,), (change,) if change else (), _notes(found, after)
    )


def _notes(found: Undelivered, offset: int) -> tuple[str, ...]:
    """Say what waits, and what the offset skips or repeats."""
    skipped, repeated = found.skipped_at(offset), found.repeated_at(offset)
    notes = [f"{counted(len(found.waiting), 'message')} of the level not delivered yet"]
    notes += [f"{counted(skipped, 'message')} of them before offset {offset}: never delivered"] if skipped else []
    notes += (
        [f"{counted(repeated, 'message')} delivered already, and delivered again from {offset} on"] if repeated else []
    )
    return tuple(notes)
