"""The timer messages that a broker of 5.x delivers after its next start.

The rules are those of TimerMessageStore.recover and dequeue (5.0.0 to 5.5.1):

1. timerlog/ is read from the file before the one with lastTimerLogFlushPos, up to the first wrong unit: there it ends.
   Each unit becomes the last one of its second in timerwheel.
2. Every second from lastReadTimeMs on is delivered in turn: the wheel leads to the last unit of the second, and each
   unit to the one before.
3. The timer's queue is read from the message of timerlog's last unit on, or from masterTimerQueueOffset if that is
   less: these messages get new units, and what is due at once is delivered at once.

A second more than 7 days ago is passed over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.properties import REAL_TOPIC, TIMER_DELETE_UNIQUE_KEY, TIMER_OUT_MS, UNIQ_KEY
from rmqctl.format.timestamp import rfc3339
from rmqctl.logfile.mapped_file_queue import MappedFileQueue
from rmqctl.logfile.system.storage import Kind
from rmqctl.store.config.store_path import TIMER_LOG, TIMER_WHEEL
from rmqctl.store.config.topics import TIMER_TOPIC
from rmqctl.store.read.timer_check import TimerCheck, timer_check
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

    from rmqctl.format.message import Message
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore

LATE_MS = 7 * 86_400_000 - 60_000  # a broker passes over seconds that are longer ago
QUEUE_OFFSETS_TRIED = 20_000  # TimerMessageStore.reviseQueueOffset
MAGIC_BITS = 0xF
END = -1  # prevPos of a second's first unit


class TimerUnit(NamedTuple):
    """A unit of timerlog that a start reads when its second has come."""

    physical_offset: int  # of the record in the commit log
    size: int  # of the record
    is_roll: bool  # the broker stores the message again; it is due later


class TimerMessage(NamedTuple):
    """A message of the timer's queue, to be delivered when it is due."""

    message: Message
    queue_offset: int
    due_ms: int  # TIMER_OUT_MS, ms since 1970


@dataclass
class TimerStart:
    """The state of the timer after a broker's start."""

    check: TimerCheck
    now_ms: int  # ms since 1970
    refused: str = ""  # why no broker loads the files
    stuck: str = ""  # why the timer stops
    path: str = ""  # of the file that is the reason, relative to the store
    log_end: int = 0  # bytes of timerlog that the start keeps
    queue_offset: int = 0  # from here on, the timer's queue is read again
    units: list[TimerUnit] = field(default_factory=list)  # by second, each second in the order of timerlog


def timer_start(store: ReadOnlyStore, now_ms: int = 0) -> TimerStart:
    """Simulate the timer's start at `now_ms` (ms since 1970).

    With 0, it starts in time for all messages. Raises OSError.
    """
    check = timer_check(store)
    start = TimerStart(check, now_ms)
    folder = store.path.root / TIMER_LOG
    log = MappedFileQueue(store.storage, [folder], store.conf.timer_log_file_size)
    start.path, start.refused = _refused(store, log, check.last_timer_log_flush_pos)
    wheel = _wheel(store)
    start.log_end = _revise(log, check.last_timer_log_flush_pos, wheel)
    start.queue_offset = _queue_offset(store, log, start)
    read_ms = max(check.last_read_time_ms, now_ms - LATE_MS)
    queue = store.queue(TIMER_TOPIC, 0)
    reads_again = queue is not None and start.queue_offset < queue.max_offset
    seconds = sorted((second, last) for second, last in wheel.values() if second * 1000 >= read_ms)
    for second, last in seconds:
        chain, goes_on = _chain(log, last, start.log_end)
        if goes_on and reads_again:
            start.path = TIMER_LOG
            start.stuck = (
                f"its units end at {start.log_end}, and {TIMER_WHEEL} leads further for {rfc3339(second * 1000)}"
            )
            break
        start.units += chain
    return start


def to_deliver(store: ReadOnlyStore, start: TimerStart) -> Iterator[TimerMessage]:
    """Yield the messages that a broker delivers, in the order of their units.

    Raises OSError.
    """
    if start.refused:
        return
    log, queue = store.commit_log, store.queue(TIMER_TOPIC, 0)
    found: list[tuple[TimerMessage, bool]] = []  # and whether the broker stores it again first
    for unit in start.units:
        message = log.message_at(unit.physical_offset)
        if message is not None and message.size == unit.size and (due := due_ms(message)) is not None:
            found.append((TimerMessage(message, message.queue_offset, due), unit.is_roll))
    if queue is not None and not start.stuck:
        begin, end = queue.min_and_max(log.min_offset)
        for cq_unit in queue.units(max(begin, start.queue_offset), end):
            message = log.message_at(cq_unit.physical_offset)
            if message is not None and (due := due_ms(message)) is not None:
                found.append((TimerMessage(message, cq_unit.queue_offset, due), False))
    deleted = {(timer.due_ms, timer.message.properties.get(TIMER_DELETE_UNIQUE_KEY)) for timer, _ in found}
    for timer, is_roll in found:
        if TIMER_DELETE_UNIQUE_KEY in timer.message.properties:
            continue
        is_late_roll = is_roll and timer.due_ms < start.now_ms  # then it comes before what deletes it
        if is_late_roll or deleted.isdisjoint((timer.due_ms, key) for key in delete_keys(timer.message)):
            yield timer


def due_ms(message: Message) -> int | None:
    """Return when a timer message is due, in ms since 1970.

    None if its TIMER_OUT_MS is not a number.
    """
    due = message.properties.get(TIMER_OUT_MS, "")
    return int(due) if due.isascii() and due.isdecimal() and len(due) < 20 else None


def delete_keys(message: Message) -> tuple[str, str]:
    """Return both forms of TIMER_DEL_UNIQKEY for a message.

    It is the UNIQ_KEY, with REAL_TOPIC before it in 5.3.1 to 5.3.4, and by appendTopicForTimerDeleteKey in 5.4.
    """
    key = message.properties.get(UNIQ_KEY, "")
    return key, f"{message.properties.get(REAL_TOPIC)}+{key}"


def _refused(store: ReadOnlyStore, log: MappedFileQueue, flushed: int) -> tuple[str, str]:
    """Return a file with a wrong length, and the reason; both are empty without one."""
    wheel = store.storage.entry(store.path.root / TIMER_WHEEL)
    if wheel.kind is Kind.FILE and wheel.size not in (0, WHEEL_SIZE):
        return TIMER_WHEEL, f"it has {wheel.size} bytes instead of {WHEEL_SIZE}"
    for file in log.files:
        if file.size_on_disk != log.file_size:
            return file.name, f"it has {file.size_on_disk} bytes instead of {log.file_size}"
    if log.files and log.end < flushed:
        return log.files[-1].name, f"it ends at {log.end}, and timercheck says that it was written up to {flushed}"
    return "", ""


def _wheel(store: ReadOnlyStore) -> dict[int, tuple[int, int]]:
    """Return (second, position of its last unit) by slot."""
    path = store.path.root / TIMER_WHEEL
    if store.storage.entry(path).kind is not Kind.FILE:
        return {}
    raw = store.storage.read_start(path, WHEEL_SIZE)
    slots = np.frombuffer(raw, WHEEL, len(raw) // WHEEL.itemsize)
    at = np.flatnonzero(slots["second"] > 0)
    last_of = zip(slots["second"][at].tolist(), slots["lastPos"][at].tolist(), strict=True)
    return dict(zip(at.tolist(), last_of, strict=True))


def _revise(log: MappedFileQueue, flushed: int, wheel: dict[int, tuple[int, int]]) -> int:
    """Enter the units of timerlog into `wheel`, and return where timerlog ends."""
    if not log.files:
        return 0
    begin = max(flushed - log.file_size, 0)
    first = max(log.files.index(found) if (found := log.at_or_before(begin)) else 0, 0)
    end = log.files[first].file_from_offset
    for file in log.files[first:]:
        units, is_blank = units_of(file)
        base = end = file.file_from_offset
        seconds = ((units["currWriteTime"] + units["delayTime"]) // 1000).tolist()
        for number, second in enumerate(seconds):
            wheel[second % SLOTS] = second, base + number * UNITS.itemsize
        end += len(units) * UNITS.itemsize
        if not is_blank:
            break
    return end


def units_of(file: MappedFile) -> tuple[np.ndarray[tuple[int], np.dtype[np.void]], bool]:
    """Return the first valid units of a file, and whether its blank follows them."""
    raw = file.read(0, file.data_end(0))
    raw = raw.ljust(min(-(-len(raw) // UNITS.itemsize) * UNITS.itemsize, file.size), b"\0")
    units = np.frombuffer(raw, UNITS, len(raw) // UNITS.itemsize)
    times = units["currWriteTime"] + units["delayTime"]
    valid = (units["size"] == UNITS.itemsize) & ((units["magic"] | MAGIC_BITS) == MAGIC_BITS) & (times >= 0)
    count = len(units) if valid.all() else int(np.argmin(valid))
    after = raw[count * UNITS.itemsize : count * UNITS.itemsize + BLANK_SIZE].ljust(BLANK_SIZE, b"\0")
    return units[:count], int.from_bytes(after[12:], "big", signed=True) == BLANK_MAGIC


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
