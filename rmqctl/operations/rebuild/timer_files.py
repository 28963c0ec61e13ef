"""The timer's files, written anew for the messages that wait.

They are timerlog/, timerwheel and config/timercheck. A broker that starts on them delivers each of these messages once,
and nothing else (asked of 5.5.0):

- Units are in the order of the timer's queue. A start goes on in that queue behind the message of the last unit, so the
  queue's last message has a unit, too; its second is over if it does not wait.
- lastReadTimeMs is the first second with a unit, and the units of what is overdue are in the last three days: a broker
  passes over seconds that are more than 7 days ago.
- Rows of timerRocksDBEnable that lead to delivered messages go, with their database: a broker makes a new one, and goes
  on in the timer's queue where the files end.
- What is due in more than 7 days gets a unit that makes the broker store it again before (a roll), as the wheel has 14
  days.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.errors import BadRequest
from rmqctl.forensics.groups.waiting_timers import left_and_repeated, timers_by_log
from rmqctl.format.properties import hash_code
from rmqctl.logfile.file_tree import create_with
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS
from rmqctl.logfile.system.writable_storage import WritableStorage
from rmqctl.operations.plan import RebuildTimers, Step
from rmqctl.operations.rebuild.planned_store import planned_store
from rmqctl.store.config.file_sizes import TIMER_LOG_FILE_SIZE
from rmqctl.store.config.store_path import CONFIG, SIGN_OF_5_4, TIMER_LOG, TIMER_WHEEL
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.journal.changes import Delete, Install
from rmqctl.store.read.consumers.timer_check import (
    TIMER_CHECK,
    TIMER_CHECK_PATH,
    TIMER_CHECK_SIZE,
    has_only_timers,
    has_timer,
    timer_check,
)
from rmqctl.store.timer.timer_message import MS_MAX
from rmqctl.store.timer.timer_start import END, log_file_size, timer_start, to_deliver
from rmqctl.store.timer.timer_units import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_PUT,
    MAGIC_ROLL,
    SLOTS,
    TIMER_SLOT,
    TIMER_UNIT,
    UNITS,
    WHEEL_SIZE,
)
from rmqctl.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.operations.plan import RepairPlan
    from rmqctl.store.journal.changes import Change
    from rmqctl.store.read.consumers.timer_check import TimerCheck
    from rmqctl.store.read.read_only_store import ReadOnlyStore

OVERDUE_SLOTS = 3 * 86_400  # how long ago an overdue message's slot may be
AHEAD_SLOTS = 7 * 86_400
SNAPSHOT = re.compile(rf"{TIMER_WHEEL}\.[0-9]{{1,19}}")  # of the wheel, by timerWheelSnapshotFlush of 5.4
Units = np.ndarray[tuple[int], np.dtype[np.void]]
Numbers = np.ndarray[tuple[int], np.dtype[np.int64]]


def timer_step(store: ReadOnlyStore, planned: ReadOnlyStore, end: int, threads: int, now_ms: int = 0) -> Step | None:
    """Return the step that makes a start deliver each waiting message once.

    None if it does so anyway. `planned` is the store after the other steps of a plan, whose log ends at the physical
    offset `end`. `now_ms` is the time of the start, in ms since 1970; 0: in time for all messages. Raises OSError.
    """
    if not has_timer(store):
        return None
    timers = timers_by_log(planned, end, threads)
    start, queue, waiting = timer_start(planned, now_ms), planned.queue(TIMER_TOPIC, 0), timers.waiting()
    by_rows = {(row.physical_offset, row.size) for row in start.rows}  # these come without files
    removes_rows = not by_rows <= {(one.physical_offset, one.size) for one in waiting} and has_only_timers(planned)
    if not removes_rows:
        waiting, start.rows = [one for one in waiting if (one.physical_offset, one.size) not in by_rows], []
    if queue is not None and start.queue_offset < queue.max_offset:
        start.now_ms, start.is_slow = MS_MAX, True  # the most that can come
    never, again = left_and_repeated(waiting, list(to_deliver(planned, start)))
    is_read = queue is not None or timers.last is None or start.queue_offset > timers.last.queue_offset
    behind = sum(unit.physical_offset >= end for unit in start.units)
    if not (never or again or behind or start.refused) and is_read:
        return None
    words = [f"{counted(len(never), 'waiting message')} would never be delivered"] if never else []
    words += [f"{counted(again, 'message')} would be delivered again"] if again else []
    queue_end = max(timers.last.queue_offset + 1 if timers.last else 0, queue.max_offset if queue else 0)
    words += [f"{counted(behind, 'unit')} of {TIMER_LOG} would lead behind the log's end"] if behind else []
    why = start.refused or " and ".join(words) or f"the queue of {TIMER_TOPIC} would be read again"
    return Step(RebuildTimers(tuple(waiting), timers.last, queue_end, removes_rows), why)


def with_timers(store: ReadOnlyStore, plan: RepairPlan, threads: int) -> RepairPlan:
    """Return `plan` with a step for the timer's files, if they need one.

    The log is read once if the store has timers. Timer files that cannot be read are left alone.
    """
    try:
        if not has_timer(store):
            return plan
        with closing(planned_store(store, plan.steps)) as planned:
            step = timer_step(store, planned, plan.max_phy_offset, threads)
    except OSError as error:
        note = f"the timer's files stay as they are: {error.filename} cannot be read: {error.strerror}"
        return replace(plan, notes=(*plan.notes, note))
    return plan if step is None else replace(plan, steps=(*plan.steps, step))


def timer_changes(store: ReadOnlyStore, action: RebuildTimers, staging: Path, now_ms: int) -> Iterator[Change]:
    """Write the files to `staging`, and yield the changes that install them.

    `now_ms` is the present time, in ms since 1970. Raises OSError.
    """
    storage = WritableStorage(staging, beneath=store.path.root)
    file_size, precision = log_file_size(store) or TIMER_LOG_FILE_SIZE, store.conf.timer_precision_ms
    if file_size < TIMER_UNIT.size + BLANK_SIZE:
        raise BadRequest(f"mappedFileSizeTimerLog={file_size}: no unit of timerlog fits", path=store.conf.path)
    units, read_ms = _units(action, now_ms, precision)
    positions = _positions(len(units), file_size)
    slots = _chained(units, positions, precision)
    end = int(positions[-1]) + TIMER_UNIT.size if len(units) else 0
    storage.make_folder(staging / TIMER_LOG)
    for base in range(0, max(end, 1), file_size):
        raw = _log_file(base, file_size, units, positions)
        create_with(storage, staging / TIMER_LOG / f"{base:0{FILE_NAME_DIGITS}}", file_size, [(0, raw)])
    wheel = (
        (second % SLOTS * TIMER_SLOT.size, TIMER_SLOT.struct.pack(second, first, last, count, 0))
        for second, (first, last, count) in slots.items()
    )
    create_with(storage, staging / TIMER_WHEEL, WHEEL_SIZE, wheel)
    check = _check(timer_check(store), read_ms, end, action.queue_end, now_ms)
    storage.make_folder(staging / CONFIG)
    raw = TIMER_CHECK.struct.pack(*check).ljust(TIMER_CHECK_SIZE, b"\0")
    storage.replace_file(staging / TIMER_CHECK_PATH, raw)
    for entry in store.storage.listing(store.path.root):
        if SNAPSHOT.fullmatch(entry.name):
            yield Delete(entry.name)
    if action.removes_rows:  # not the folder, a sign of 5.4
        yield from (Delete(f"{SIGN_OF_5_4}/{one.name}") for one in store.storage.listing(store.path.part(SIGN_OF_5_4)))
    yield from (Install(path, staging, path) for path in (TIMER_LOG, TIMER_WHEEL, TIMER_CHECK_PATH))


def _units(action: RebuildTimers, time_ms: int, precision: int) -> tuple[Units, int]:
    """Return the units without their places, and lastReadTimeMs."""
    now_ms = time_ms // precision * precision
    first, ahead = now_ms - OVERDUE_SLOTS * precision, now_ms + AHEAD_SLOTS * precision
    times = [min(max((one.due_ms or 0) // precision * precision, first), ahead) for one in action.timers]
    read_ms = min((now_ms, *times))
    timers = [*action.timers]
    if action.last is not None and action.last not in timers[-1:]:
        timers.append(action.last)
        times.append(read_ms - precision)
    units = np.zeros(len(timers), UNITS)
    units["size"] = TIMER_UNIT.size
    units["magic"] = [MAGIC_PUT | MAGIC_ROLL if time == ahead else MAGIC_PUT for time in times]
    units["currWriteTime"] = now_ms
    units["delayTime"] = np.array(times, np.int64) - now_ms
    units["offsetPy"] = [timer.physical_offset for timer in timers]
    units["sizePy"] = [timer.size for timer in timers]
    units["hashCodeOfRealTopic"] = [hash_code(timer.topic) for timer in timers]
    return units, read_ms


def _positions(count: int, file_size: int) -> Numbers:
    """Return where units are in timerlog: each file ends with a blank."""
    in_a_file = (file_size - BLANK_SIZE) // TIMER_UNIT.size
    numbers = np.arange(count)
    return numbers // in_a_file * file_size + numbers % in_a_file * TIMER_UNIT.size


def _chained(units: Units, positions: Numbers, precision: int) -> dict[int, tuple[int, int, int]]:
    # returns, for each second, the first and the last position and the number of units
    slots: dict[int, tuple[int, int, int]] = {}
    seconds = ((units["currWriteTime"] + units["delayTime"]) // precision).tolist()
    before = []
    for second, position in zip(seconds, positions.tolist(), strict=True):
        first, last, count = slots.get(second, (position, END, 0))
        before.append(last)
        slots[second] = first, position, count + 1
    units["prevPos"] = before
    return slots


def _log_file(base: int, file_size: int, units: Units, positions: Numbers) -> bytes:
    first, after = np.searchsorted(positions, [base, base + file_size]).tolist()
    raw = units[first:after].tobytes()
    if after < len(units):
        raw += (file_size - len(raw)).to_bytes(4, "big") + bytes(8) + BLANK_MAGIC.to_bytes(4, "big", signed=True)
    return raw


def _check(before: TimerCheck, read_ms: int, log_end: int, queue_end: int, now_ms: int) -> TimerCheck:
    return before._replace(
        last_read_time_ms=read_ms,
        last_timer_log_flush_pos=log_end,
        last_timer_queue_offset=queue_end,
        master_timer_queue_offset=queue_end,
        timestamp=now_ms,
        counter=before.counter + 1,
    )
