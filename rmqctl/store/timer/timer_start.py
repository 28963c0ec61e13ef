"""The timer messages that a broker of 5.x delivers after its next start.

The rules are those of TimerMessageStore.recover and dequeue (5.0.0 to 5.5.1):

1. timerlog/ is read from the file before the one with lastTimerLogFlushPos, up to the first wrong unit: there it ends.
   Each unit becomes the last one of its second in timerwheel.
2. Every second from lastReadTimeMs on is delivered in turn: the wheel leads to the last unit of the second, and each
   unit to the one before.
3. The timer's queue is read from the message of timerlog's last unit on, or from masterTimerQueueOffset if that is
   less: these messages get new units. As soon as the broker's other services run, what is due is delivered at once
   instead, also if another message deletes it: one that deletes has an effect only where it gets a unit. The broker
   starts to read before that: 26 messages of a killed store all got units, of 359 hardly any.

A second (timerPrecisionMs) more than 7 days ago is passed over.

With timerRocksDBEnable (5.5.0), 3. is left out, and beside 1. and 2.:

4. The database's rows are delivered from timeline_checkpoint on, however late they are. A broker writes that row when
   it delivers a message: without it, what was due more than 10 s before the start is never delivered.
5. The timer's queue is read from sys_topic_scan_offset_checkpoint on, or from where the files end if that is more.
   What is due within a second (timerRocksDBPrecisionMs) is always delivered at once, the other messages get rows.
"""

from __future__ import annotations

import errno
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.mapped_file_queue import JAVA_INT_MAX, MappedFileQueue
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.file_sizes import TIMER_LOG_FILE_SIZE
from rmqctl.store.config.store_path import TIMER_LOG, TIMER_WHEEL
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.read.commit_log import UNREADABLE
from rmqctl.store.read.consumers.timer_check import TimerCheck, timer_check, timer_database
from rmqctl.store.rocksdb.message_rows import SCANNED, TIMELINE, TIMER, checkpoint_of, timer_rows
from rmqctl.store.timer.timer_message import TimerMessage, timer_message
from rmqctl.store.timer.timer_units import (
    BLANK_MAGIC,
    BLANK_SIZE,
    MAGIC_ROLL,
    SLOTS,
    UNITS,
    WHEEL,
    WHEEL_SIZE,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.system.rocksdb import Database
    from rmqctl.store.read.read_only_store import ReadOnlyStore

NO_TIMELINE_MS = 10_000
ROWS_SOON_MS = 1000  # timerRocksDBPrecisionMs: a row is due that much before its time
LATE_SLOTS = 7 * 86_400 - 60  # a broker passes over slots that are longer ago
BLOCK = 52 * 80_000  # bytes of timerlog that are read at once
QUEUE_OFFSETS_TRIED = 20_000  # TimerMessageStore.reviseQueueOffset
MAGIC_BITS = 0xF
END = -1  # prevPos of a second's first unit


class TimerUnit(NamedTuple):
    """A unit of timerlog that a start reads when its second has come."""

    physical_offset: int  # of the record in the commit log
    size: int  # of the record
    is_roll: bool  # the broker stores the message again; it is due later


@dataclass
class TimerStart:
    """The state of the timer after a broker's start."""

    check: TimerCheck
    now_ms: int  # ms since 1970
    refused: str = ""  # why no broker loads the files
    stuck: str = ""  # why the timer stops
    skips: str = ""  # which rows of the database are not delivered
    path: str = ""  # of the file that is the reason, relative to the store
    log_end: int = 0  # bytes of timerlog that the start keeps
    queue_offset: int = 0  # from here on, the timer's queue is read again
    units: list[TimerUnit] = field(default_factory=list)  # by second, each second in the order of timerlog
    is_slow: bool = False  # the broker's other services run before the timer's queue is read again
    in_database: bool = False  # with timerRocksDBEnable
    rows: list[TimerUnit] = field(default_factory=list)  # of the database


def timer_start(store: ReadOnlyStore, now_ms: int = 0) -> TimerStart:
    """Simulate the timer's start at `now_ms` (ms since 1970).

    With 0, it starts in time for all messages, except for rows of a database that are passed over now. Raises OSError,
    also if a part is a link out of the store, or of another kind than a broker makes it.
    """
    with closing(_timer_log(store)) as log:
        return _started(store, log, TimerStart(timer_check(store), now_ms))


def _started(store: ReadOnlyStore, log: MappedFileQueue, start: TimerStart) -> TimerStart:
    check, precision = start.check, store.conf.timer_precision_ms
    start.path, start.refused = _refused(store, log, check.last_timer_log_flush_pos)
    if start.refused:
        return start
    wheel = _wheel(store)
    start.log_end = _revise(log, check.last_timer_log_flush_pos, wheel, precision)
    start.queue_offset = _queue_offset(store, log, start)
    read_ms = max(check.last_read_time_ms, start.now_ms - LATE_SLOTS * precision)
    queue, database = store.queue(TIMER_TOPIC, 0), timer_database(store)
    start.in_database = bool(store.conf.timers_in_database or database)
    reads_again = not start.in_database and queue is not None and start.queue_offset < queue.max_offset
    for second, last in sorted(slot for slot in wheel.values() if slot[0] * precision >= read_ms):
        chain, goes_on = _chain(log, last, start.log_end)
        if goes_on and reads_again:
            time = rfc3339(second * precision)
            start.path = TIMER_LOG
            start.stuck = f"its units end at {start.log_end}, and {TIMER_WHEEL} leads further for {time}"
            break
        start.units += chain
    if database is not None:
        _add_rows(store, database, start)
    return start


def _add_rows(store: ReadOnlyStore, database: Database, start: TimerStart) -> None:
    since_ms = checkpoint_of(database, TIMELINE, TIMER)
    if since_ms is None:
        since_ms = (start.now_ms or store.opened_at) - NO_TIMELINE_MS
        start.skips = f"the database has no {TIMELINE.decode()}: a start passes over what was due before it"
    start.rows = [TimerUnit(row.physical_offset, row.size, False) for row in timer_rows(database, max(since_ms, 0))]
    queue, scanned = store.queue(TIMER_TOPIC, 0), checkpoint_of(database, SCANNED, TIMER) or 0
    start.queue_offset = max(start.queue_offset, min(scanned, queue.max_offset) if queue is not None else 0)


def to_deliver(store: ReadOnlyStore, start: TimerStart) -> Iterator[TimerMessage]:
    """Yield the messages that a broker delivers, in the order of their units.

    Raises OSError.
    """
    if start.refused:
        return
    log, queue = store.commit_log, store.queue(TIMER_TOPIC, 0)
    found: list[tuple[TimerMessage, bool]] = []  # and whether it comes at once if it is due
    for unit in (*start.units, *start.rows):
        message = log.message_at(unit.physical_offset)
        if message is not None and message.size == unit.size:
            found.append((timer_message(message, message.queue_offset), unit.is_roll))
    if queue is not None and not start.stuck:
        begin, end = queue.min_and_max(log.min_offset)
        for cq_unit in queue.units(max(begin, start.queue_offset), end):
            message = log.message_at(cq_unit.physical_offset)
            if message is not None:
                found.append((timer_message(message, cq_unit.queue_offset), start.in_database or start.is_slow))
    precision = store.conf.timer_precision_ms
    soon_ms = start.now_ms + ROWS_SOON_MS if start.in_database else start.now_ms // precision * precision
    late = [is_first and (timer.due_ms or 0) < soon_ms for timer, is_first in found]
    deleted = {(timer.due_ms, timer.deletes) for (timer, _), is_late in zip(found, late, strict=True) if not is_late}
    for (timer, _), is_late in zip(found, late, strict=True):
        is_left = is_late or deleted.isdisjoint((timer.due_ms, key) for key in timer.delete_keys)
        if timer.is_deliverable and is_left:
            yield timer


def refused_file(store: ReadOnlyStore) -> tuple[str, str]:
    """Return a file that no broker with a timer loads, and why.

    Both are empty without one. Raises OSError.
    """
    with closing(_timer_log(store)) as log:
        return _refused(store, log, timer_check(store).last_timer_log_flush_pos)


def log_file_size(store: ReadOnlyStore) -> int | None:
    """Return the size of timerlog's files in bytes.

    It is that of broker.conf, or that of the files if none of them was cut; otherwise None. Raises OSError.
    """
    with closing(_timer_log(store)) as log:
        _, refused = _refused(store, log, timer_check(store).last_timer_log_flush_pos)
    return store.conf.timer_log_file_size or (log.file_size if log.files and not refused else None) or None


def _timer_log(store: ReadOnlyStore) -> MappedFileQueue:
    for name, kind in ((TIMER_LOG, Kind.DIRECTORY), (TIMER_WHEEL, Kind.FILE)):
        entry = store.storage.entry(store.path.root / name)
        if entry.kind not in (kind, Kind.MISSING):
            raise OSError(errno.EINVAL, f"{entry.kind.value}, not a {kind.value}", str(entry.path))
    log = MappedFileQueue(store.storage, [store.path.root / TIMER_LOG], store.conf.timer_log_file_size)
    unread = next((damage for damage in log.foreign if damage.code in UNREADABLE), None)
    if unread is not None:
        raise OSError(errno.EINVAL, unread.detail, unread.path)
    return log


def _refused(store: ReadOnlyStore, log: MappedFileQueue, flushed: int) -> tuple[str, str]:
    wheel = store.storage.entry(store.path.root / TIMER_WHEEL)
    if wheel.kind is Kind.FILE and wheel.size not in (0, WHEEL_SIZE):
        return TIMER_WHEEL, f"it has {wheel.size} bytes instead of {WHEEL_SIZE}"
    for file in log.files:
        if file.size_on_disk > JAVA_INT_MAX:
            return file.name, f"it has {file.size_on_disk} bytes, more than a file of timerlog can have"
        if file.size_on_disk != log.file_size:
            return file.name, f"it has {file.size_on_disk} bytes instead of {log.file_size}"
    if log.files and log.end < flushed <= log.end + TIMER_LOG_FILE_SIZE:
        return log.files[-1].name, f"it ends at {log.end}, and timercheck says that it was written up to {flushed}"
    return "", ""


def _wheel(store: ReadOnlyStore) -> dict[int, tuple[int, int]]:
    """Return (second, position of its last unit) by slot."""
    path = store.path.root / TIMER_WHEEL
    if store.storage.entry(path).kind is not Kind.FILE:
        return {}
    raw = store.storage.read_start(path, WHEEL_SIZE)
    slots = np.frombuffer(raw, WHEEL, len(raw) // WHEEL.itemsize)
    numbers = slots["second"].astype(np.int64)
    at = np.flatnonzero((numbers > 0) & (numbers % SLOTS == np.arange(len(slots))))
    last_of = zip(numbers[at].tolist(), slots["lastPos"][at].tolist(), strict=True)
    return dict(zip(at.tolist(), last_of, strict=True))


def _revise(log: MappedFileQueue, flushed: int, wheel: dict[int, tuple[int, int]], precision: int) -> int:
    """Enter the units of timerlog into `wheel`, and return where timerlog ends."""
    if not log.files:
        return 0
    begin = max(flushed - log.file_size, 0)
    found = log.at_or_before(begin)
    end = 0
    for file in log.files[log.files.index(found) if found is not None else 0 :]:
        end = file.file_from_offset
        for units in _valid_units(file):
            seconds = ((units["currWriteTime"] + units["delayTime"]) // precision).tolist()
            for number, second in enumerate(seconds):
                wheel[second % SLOTS] = second, end + number * UNITS.itemsize
            end += len(units) * UNITS.itemsize
        blank = file.read(end - file.file_from_offset, BLANK_SIZE).ljust(BLANK_SIZE, b"\0")
        if int.from_bytes(blank[12:], "big", signed=True) != BLANK_MAGIC:
            break
    return end


def _valid_units(file: MappedFile) -> Iterator[np.ndarray[tuple[int], np.dtype[np.void]]]:
    """Yield the units of a file in blocks, up to the first that is not valid."""
    for position in range(0, file.size, BLOCK):
        raw = file.read(position, min(BLOCK, file.size - position))
        units = np.frombuffer(raw, UNITS, len(raw) // UNITS.itemsize)
        times = units["currWriteTime"] + units["delayTime"]
        valid = (units["size"] == UNITS.itemsize) & ((units["magic"] | MAGIC_BITS) == MAGIC_BITS) & (times >= 0)
        count = len(units) if valid.all() else int(np.argmin(valid))
        yield units[:count]
        if count < BLOCK // UNITS.itemsize:
            return


def _queue_offset(store: ReadOnlyStore, log: MappedFileQueue, start: TimerStart) -> int:
    # behind the message of timerlog's last unit, as TimerMessageStore.reviseQueueOffset does
    found = start.check.last_timer_queue_offset
    queue = store.queue(TIMER_TOPIC, 0)
    unit = _unit_at(log, start.log_end - UNITS.itemsize)
    message = store.commit_log.message_at(int(unit["offsetPy"])) if unit is not None else None
    if unit is not None and message is not None and message.size == int(unit["sizePy"]):
        found = message.queue_offset + 1
        at = message.queue_offset
        while queue is not None and message.queue_offset - at < QUEUE_OFFSETS_TRIED and at >= 0:
            cq_unit = queue.find(at)
            if cq_unit is not None and cq_unit.physical_offset == message.physical_offset:
                found = at + 1
                break
            at -= 1
    found = min(found, start.check.master_timer_queue_offset)
    if queue is None:
        return found
    begin, end = queue.min_and_max(store.commit_log.min_offset)
    return min(max(found, begin), end)


def _unit_at(log: MappedFileQueue, position: int) -> np.void | None:
    file = log.find(position) if position >= 0 else None
    if file is None:
        return None
    raw = file.read(position - file.file_from_offset, UNITS.itemsize)
    return np.frombuffer(raw, UNITS)[0] if len(raw) == UNITS.itemsize else None


def _chain(log: MappedFileQueue, last: int, end: int) -> tuple[list[TimerUnit], bool]:
    """Return the units of a second, the oldest first, and whether the chain goes on.

    It does if it leads behind the end of timerlog, where new units will be, or in a circle.
    """
    found: list[TimerUnit] = []
    seen: set[int] = set()
    while last != END and last not in seen:
        unit = _unit_at(log, last) if last < end else None
        if unit is None:
            return found[::-1], True
        seen.add(last)
        is_roll = bool(unit["magic"] & MAGIC_ROLL)
        found.append(TimerUnit(int(unit["offsetPy"]), int(unit["sizePy"]), is_roll))
        last = int(unit["prevPos"])
    return found[::-1], last != END
