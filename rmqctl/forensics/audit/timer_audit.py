"""Compares what a start would deliver with the timer messages that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.forensics.finding import Finding
from rmqctl.forensics.groups.waiting_timers import left_and_repeated, timers_by_queues, to_come
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import SIGN_OF_5_4, TIMER_LOG, TIMER_WHEEL
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.read.consumers.timer_check import TIMER_CHECK_PATH, has_only_timers, has_timer
from rmqctl.store.timer.timer_start import refused_file, timer_start
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.read_only_store import ReadOnlyStore

MISSING = "timer-files-missing"  # the code of a Finding
UNDELIVERED = "timer-undelivered"  # the code of a Finding
REPEATED = "timer-repeats"  # the code of a Finding


def audit_timers(store: ReadOnlyStore, last_ms: int) -> Iterator[Finding]:
    """Yield a finding for messages that never come, and one for those that repeat.

    The start is one in time: a message that a broker only passes over because it is more than 7 days late is no
    finding. `last_ms` is the newest store time of the log (ms since 1970). Raises OSError.
    """
    path, refused = refused_file(store)
    if refused:  # also without timer messages: 5.x always has a timerwheel
        yield Finding("timer-file-length", path, None, f"{refused}: no broker with timerWheelEnable starts")
        return
    if not has_timer(store) or store.queue(TIMER_TOPIC, 0) is None:
        return
    start = timer_start(store)
    waiting = timers_by_queues(store, last_ms).waiting()
    never, again = left_and_repeated(waiting, to_come(store, start))
    if never:
        first = never[0]
        entries = [store.storage.entry(store.path.root / name) for name in (TIMER_LOG, TIMER_WHEEL)]
        missing = [entry.name for entry in entries if entry.kind is Kind.MISSING and not start.in_database]
        of_files = start.stuck or (
            f"timercheck says that the timer has delivered all up to {rfc3339(start.check.last_read_time_ms)}, and has "
            f"read its queue up to {start.check.last_timer_queue_offset}"
        )
        of_database = start.skips or f"a start reads the timer's queue from {start.queue_offset} on"
        detail = (
            f"{counted(len(never), 'message')} of {len(waiting)} that wait would never be delivered, the first for "
            f"{first.topic} is due at {rfc3339(first.due_ms or 0)}; {of_database if start.in_database else of_files}"
        )
        yield Finding(
            MISSING if missing else UNDELIVERED,
            SIGN_OF_5_4 if start.in_database else ", ".join(missing) or start.path or TIMER_CHECK_PATH,
            first.physical_offset,
            detail,
            topic=TIMER_TOPIC, queue_id=0, queue_offset=first.queue_offset, count=len(never),
        )  # fmt: skip
    if not has_only_timers(store):  # rmqctl leaves the database
        again -= len({row.physical_offset for row in start.rows}.difference(one.physical_offset for one in waiting))
    if again > 0:
        detail = f"{counted(again, 'message')} of the timer would be delivered again"
        yield Finding(REPEATED, TIMER_CHECK_PATH, None, detail, topic=TIMER_TOPIC, queue_id=0, count=again)
