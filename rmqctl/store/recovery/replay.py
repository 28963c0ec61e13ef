"""A simulation of the two passes of a starting broker through the log.

In the first pass, recovery scans the log; in the second, start() of 4.5.0 to 4.9.8 dispatches it. The caller reads the
log and hands over runs of good messages. Where the broker would come to the start of a message in a run, the simulation
accepts the rest of the run. Records outside of runs are checked by the broker's own rules.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from itertools import chain
from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.broker_check import Checked, check_message_and_return_size
from rmqctl.format.message import MAGIC_BLANK, MAGIC_V1
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.kernels.dispatch_scan import ODD_DELAY
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX
from rmqctl.store.recovery import rules
from rmqctl.store.recovery.queues.database_queues import DatabaseQueues
from rmqctl.store.recovery.rules import HEAD_SIZE, FileHead, Mode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmqctl.format.checkpoint import Checkpoint
    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.format.profile import StartRules
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.recovery.queues.simulated_queues import RecoveredQueues

LONGEST_V1_TOPIC = 127
_SIZE_AND_MAGIC = struct.Struct(">iI")


class KnownRecords:
    """Finds good records that the broker of `rules` does not take for records."""

    def __init__(self, builder: DispatchRequestBuilder, rules: StartRules) -> None:
        self._builder = builder
        self._rules = rules
        self._seen = 0
        self._long: list[int] = []

    def until(self, messages: Rows, start: int = 0) -> int:
        """Return the first row from `start` on that the broker may not know.

        If it knows all, this is the number of rows. Brokers up to 5.0.0 do not know V2 records (topics longer than 127
        bytes), those up to 4.5.2 no IPv6 hosts, and none a delayed message whose DELAY is not a number.
        """
        foreign = self.foreign(messages[start:])
        return start + int(np.argmax(foreign)) if foreign.any() else len(messages)

    def foreign(self, rows: Rows) -> Flags:
        """Return which rows the broker may not know."""
        foreign: Flags = rows["traits"] & ODD_DELAY != 0
        if not self._rules.knows_ipv6:
            foreign |= rows["sys_flag"] & (BORNHOST_V6 | STOREHOST_V6) != 0
        if not self._rules.knows_long_topics:
            queues = self._builder.queues
            self._long += [at for at in range(self._seen, len(queues)) if len(queues[at][0]) > LONGEST_V1_TOPIC]
            self._seen = len(queues)
            foreign |= np.isin(rows["queue"], self._long)
        return foreign


class LoadedLog:
    """The log files that load() accepted, which the passes read.

    They are in the order of their names: one of fewer digits comes last. load() leaves out the file with the name
    `until` and later ones. `start` is the physical offset of the first file, or 0 without a file.
    """

    def __init__(
        self, files: Iterable[MappedFile], file_size: int, rules: StartRules, until: str | None = None
    ) -> None:
        self._until = until
        self.files = files = list(filter(self.loads, files))
        self.file_size = file_size
        self.start = files[0].file_from_offset if files else 0
        self.rules = rules
        self._end: int | None = None

    def loads(self, file: MappedFile) -> bool:
        """Return whether load() comes to a file."""
        return self._until is None or PurePath(file.name).name < self._until

    def file_at(self, physical_offset: int) -> MappedFile | None:
        """Return the log file that contains a physical offset, or None.

        As in MappedFileQueue.findMappedFileByOffset since 4.3.0, the last file also limits the log.
        """
        if not self.files or not self.start <= physical_offset < self.files[-1].end:
            return None
        number = physical_offset // self.file_size - self.start // self.file_size
        order = chain(self.files[number : number + 1], self.files)
        return next((file for file in order if file.file_from_offset <= physical_offset < file.end), None)

    def readable_at(self, physical_offset: int) -> MappedFile | None:
        """Return the log file where a dispatch from a physical offset reads, or None.

        It reads at the physical offset modulo the file size (CommitLog.getData). A file whose name is no multiple of
        the file size may have nothing there: the cut ended it earlier.
        """
        file = self.file_at(physical_offset)
        if file is None or self.written_end(file) == file.end:
            return file
        return file if physical_offset % self.file_size < self.written_end(file) - file.file_from_offset else None

    def written_end(self, file: MappedFile) -> int:
        """Return the physical offset where a log file has no more bytes for this broker.

        In the file that the broker has cut, it writes on at the log's end modulo the file size
        (MappedFileQueue.truncateDirtyFiles). This is another place if the file's name is no multiple of the file size.
        """
        is_whole = self._end is None or file.end <= self._end
        return file.end if is_whole else file.file_from_offset + (self._end or 0) % self.file_size

    def cut(self, log_end: int) -> None:
        """Delete the files that begin after the log's end (truncateDirtyFiles)."""
        self._end = log_end
        self.files = [file for file in self.files if file.file_from_offset <= log_end]

    def first_gap(self, start: int, end: int) -> int | None:
        """Return the first offset in [start, end) that no file has, or None."""
        while start < end:
            file = self.readable_at(start)
            if file is None:
                return start
            start = file.end
        return None

    def first_record(self, file: MappedFile) -> FileHead | None:
        """Return the head of a file's first record, or None if it is none.

        Raises OSError.
        """
        if not self.rules.checks_first_record:
            head = rules.head_of_file(file.read(0, HEAD_SIZE).ljust(HEAD_SIZE, b"\0"), self.rules)
            return head if rules.is_known_head(head, self.rules) else None
        found = self.check(file, file.file_from_offset, check_crc=self.rules.check_crc).message
        if found is None or not found.store_timestamp:
            return None
        return FileHead(MAGIC_V1, found.store_timestamp, found.physical_offset)

    def compensation_refusal(self, start: int) -> str | None:
        """Return why load() fails where it reads the log once more, or None.

        With duplicationEnable, 5.0.0 to 5.5.1 search from `start` on for messages without a unit
        (ConsumeQueueStore.compensateForHA). Raises OSError.
        """
        at = start if start > 0 else self.start
        while (file := self.file_at(at)) is not None:
            place = file.file_from_offset + at % self.file_size  # CommitLog.getMessage
            room = self.written_end(file) - place
            size, magic = _SIZE_AND_MAGIC.unpack(file.read(place - file.file_from_offset, 8).ljust(8, b"\0"))
            if room < max(size, 4):
                return None
            if place > at and size >= 0:
                at = place
                continue
            if size < _SIZE_AND_MAGIC.size or magic not in (MAGIC_BLANK, MAGIC_V1):
                return f"the record at {at} has TOTALSIZE {size} and magic code {magic:08X}: compensateForHA fails"
            if magic == MAGIC_V1 and self.check(file, place, check_crc=True).message is None:
                return None
            at += size
        return None

    def check(self, file: MappedFile, physical_offset: int, *, check_crc: bool) -> Checked:
        """Check the record at a physical offset as the broker does. Raises OSError."""
        position, room = physical_offset - file.file_from_offset, self.written_end(file) - physical_offset

        def read(at: int, size: int) -> bytes:
            return file.read(position + at, min(size, room - at)) if at < room else b""

        return check_message_and_return_size(read, room, self.rules, check_crc=check_crc)


class ScanEnd(NamedTuple):
    """The place where recovery ends the log, and the reason."""

    physical_offset: int
    code: str  # of the damage that begins there; empty if none was reported
    why: str


class LogPass(ABC):
    """A pass of a starting broker through `log`, which dispatches to `queues`.

    `position` is where the broker reads next. Methods raise OSError if the log or a queue cannot be read.
    """

    def __init__(
        self, log: LoadedLog, queues: RecoveredQueues | DatabaseQueues, known: KnownRecords, position: int
    ) -> None:
        self.position = position
        self._log = log
        self._queues = queues
        self._known = known
        self._limit = OFFSET_MAX  # where the log ends, as far as is known

    def on_messages(self, messages: Rows, limit: int = OFFSET_MAX) -> None:
        """Pass over successive good messages (rows of DISPATCH_COLUMNS).

        The log ends at `limit`, as far as is known.
        """
        offsets, within, end = messages["physical_offset"], len(messages), _end_of(messages, -1)
        if end > limit:
            within = int(np.searchsorted(offsets + messages["size"], limit, "right"))
        self._limit = limit
        while self.position < min(end, limit) and self._goes_on():
            first = _row_at(offsets, self.position)
            until = 0 if first is None else min(self._known.until(messages, first), within)
            if first is None or until <= first:
                self._step()
            else:
                self._take(messages[first:until], _end_of(messages, until - 1))

    @abstractmethod
    def _goes_on(self) -> bool:
        """Return whether the broker reads on at `position`."""

    @abstractmethod
    def _step(self) -> None:
        """Pass over one record, or the end of a file, in the same way as the broker."""

    @abstractmethod
    def _take(self, messages: Rows, end: int) -> None:
        """Pass over good messages, which begin at `position`, up to `end`."""


class RecoveryScan(LogPass):
    """The log scan of load().

    It begins in the file `start_file`, at the physical offset `start`, and dispatches messages with a PHYSICALOFFSET of
    at least `dispatches_from`, or none if that is None. `last` is where the last message begins, `end` where and why
    the scan ended (None until then). The log must have a file.
    """

    def __init__(
        self,
        log: LoadedLog,
        queues: RecoveredQueues | DatabaseQueues,
        known: KnownRecords,
        mode: Mode,
        checkpoint: Checkpoint | None,
    ) -> None:
        queues_end = queues.end
        matched = Mode.NORMAL if isinstance(queues, DatabaseQueues) else mode  # RocksDB says what it has

        def matches(number: int) -> bool:
            first = log.first_record(log.files[number])
            return first is not None and rules.is_matched_recover(first, matched, checkpoint, queues_end, log.rules)

        bases = [file.file_from_offset for file in log.files]
        self.start_file = rules.start_file(mode, log.rules, bases, queues_end, matches)
        self.start = rules.scan_from(mode, bases[self.start_file.number], checkpoint, log.rules)
        self.dispatches_from = rules.dispatches_from(mode, log.rules, queues_end)
        self.last: int | None = None
        self.end: ScanEnd | None = None
        super().__init__(log, queues, known, self.start)
        self._is_abnormal = mode is Mode.ABNORMAL
        self._number = self.start_file.number
        self._shift = 0  # how far the broker counts ahead of the place where it reads
        self._damage: tuple[int, str] | None = None

    def damage(self, physical_offset: int, end: int, code: str) -> None:
        """Scan the damaged bytes [physical_offset, end)."""
        self._damage = (physical_offset, code)
        while self.end is None and self.position < max(end, physical_offset + 1):
            self._step()

    def pass_over(self, end: int) -> None:
        """Continue the scan at physical offset `end`.

        All records before `end` must be good and already have their units. If the scan has to check such records
        itself, it stays where it is.
        """
        if not self._log.rules.checks_good_records:
            begins = [file.file_from_offset for file in self._log.files[self._number :]]
            self._number += sum(begins[0] < begin <= end for begin in begins)
            self.position = max(self.position, end)

    def finish(self) -> ScanEnd:
        """Scan to the log's end, and return where and why it ends."""
        while self.end is None:
            self._step()
        return self.end

    def _goes_on(self) -> bool:
        return self.end is None

    def _step(self) -> None:
        file, start_rules = self._log.files[self._number], self._log.rules
        try:
            checked = self._log.check(file, self.position, check_crc=start_rules.check_crc)
        except OSError as error:
            self._stop(f"{file.name} cannot be read: {error.strerror}")
            return
        message = checked.message
        if message is not None:
            is_inside = 0 <= message.physical_offset - file.file_from_offset <= file.size
            if start_rules.check_offset and self._is_abnormal and not is_inside:
                self._stop("PHYSICALOFFSET is outside of this file, which checkCommitLogOffsetOnRecover forbids")
                return
            self.last = self.position
            if self.dispatches_from is not None and message.physical_offset >= self.dispatches_from:
                self._queues.put(message, self.position)
            self.position += checked.size
        elif checked.size > 0 and start_rules.passes_over_wrong_lengths and self._is_abnormal:
            self._queues.put_nameless(checked.size)
            self._shift += checked.size - checked.consumed
            self.position += checked.consumed
        elif not checked.is_blank:
            self._stop(checked.problem)
        elif self._number + 1 == len(self._log.files):
            self._stop("the last file ends here with a blank")
        else:
            self._number += 1
            self._shift = 0
            self.position = self._log.files[self._number].file_from_offset

    def _take(self, messages: Rows, end: int) -> None:
        if self._log.rules.checks_good_records:  # what is good by default may end the log here
            self._step()
            return
        self.last, self.position = int(messages["physical_offset"][-1]), end
        if self.dispatches_from is not None:
            self._queues.fill(messages[np.searchsorted(messages["physical_offset"], self.dispatches_from) :])

    def _stop(self, why: str) -> None:
        code = self._damage[1] if self._damage and self._damage[0] == self.position else ""
        self.end = ScanEnd(self.position + self._shift, code, why)


class ReputPass(LogPass):
    """The dispatch of start() in 4.5.0 to 4.9.8 (ReputMessageService.doReput).

    It begins at `start`, by the present end of the queues, verifies no checksum, and skips bytes that are not a record.
    `hangs_at` is the physical offset where the broker waits forever because no log file contains it, or None.
    """

    def __init__(self, log: LoadedLog, queues: RecoveredQueues | DatabaseQueues, known: KnownRecords) -> None:
        self.start = rules.reput_from(queues.end, log.start)
        self.hangs_at: int | None = None
        super().__init__(log, queues, known, self.start)
        self._reput_from = self.start  # differs from the position after inconsistent lengths
        self._file: MappedFile | None = None
        self._skipped = 0

    def finish(self, log_end: int) -> None:
        """Dispatch up to the log's end."""
        self._limit = log_end
        while self._goes_on():
            self._step()
        if self._reput_from >= log_end:  # `log_end` may be before a place where no file was
            self.hangs_at = None

    def _goes_on(self) -> bool:
        if self._file is not None:
            return self._reput_from < self._limit or self._log.rules.dispatches_whole_files  # it is left at its end
        if self._reput_from >= self._limit:
            return False
        self._file = self._log.readable_at(self._reput_from)
        if self._file is not None and self._file.file_from_offset % self._log.file_size:
            self._reput_from = self._file.file_from_offset + self._reput_from % self._log.file_size
        self.position, self._skipped = self._reput_from, 0
        self.hangs_at = self._reput_from if self._file is None else None
        return self._file is not None

    def _step(self) -> None:
        file = self._file
        if file is None:
            return
        checked = self._log.check(file, self.position, check_crc=False)
        if checked.message is not None:
            self._queues.put(checked.message, self.position)
            self._advance(checked.size)
        elif checked.is_blank:
            self._go_to((self._reput_from // self._log.file_size + 1) * self._log.file_size)
        elif checked.size > 0:
            self._skipped += checked.size
            self._reput_from += checked.size
            self.position += checked.consumed
        else:
            self._go_to(self._log.written_end(file) + self._skipped)

    def _take(self, messages: Rows, end: int) -> None:
        self._queues.fill(messages)
        self._advance(end - self.position)

    def _advance(self, size: int) -> None:
        self._reput_from += size
        self.position += size
        if self._file is not None and self.position >= self._log.written_end(self._file):
            self._go_to(self._reput_from)

    def _go_to(self, physical_offset: int) -> None:
        self._reput_from = self.position = physical_offset
        self._file = None


def _end_of(messages: Rows, row: int) -> int:
    return int(messages["physical_offset"][row]) + int(messages["size"][row])


def _row_at(offsets: Numbers, physical_offset: int) -> int | None:
    row = int(np.searchsorted(offsets, physical_offset)) if offsets[0] < physical_offset else 0
    return row if row < len(offsets) and offsets[row] == physical_offset else None
