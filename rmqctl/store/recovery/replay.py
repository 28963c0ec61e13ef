"""A simulation of the two passes of a starting broker through the log.

In the first pass, recovery scans the log. In the second pass, start() of 4.5.0 to 4.9.8 dispatches the log. The caller
scans the log, and gives runs of good messages to the simulation. If the broker's scan reaches the start of a message in
a run, the simulation accepts the rest of the run. Records outside the runs are checked by the broker's own rules.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format.broker_check import Checked, check_message_and_return_size
from rmqctl.format.message import MAGIC_BLANK, MAGIC_V1, Message
from rmqctl.format.sys_flag import BORNHOST_V6, STOREHOST_V6
from rmqctl.kernels.dispatch_scan import ODD_DELAY
from rmqctl.logfile.mapped_file_queue import OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.format.columns import Flags, Numbers, Rows
    from rmqctl.format.profile import StartRules
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.store.dispatch.dispatch_requests import DispatchRequestBuilder
    from rmqctl.store.recovery.simulated_queues import RecoveredQueues

LONGEST_V1_TOPIC = 127
_SIZE_AND_MAGIC = struct.Struct(">iI")


class Dispatch:
    """Dispatches the messages of one pass to the simulated queues `queues`.

    Good messages are dispatched without a further check. If the broker's check accepts a damaged message, the dispatch
    uses the fields of the damaged record.
    """

    def __init__(self, queues: RecoveredQueues, builder: DispatchRequestBuilder, rules: StartRules) -> None:
        self._queues = queues
        self._builder = builder
        self._rules = rules
        self._known = 0
        self._long: list[int] = []

    def rows(self, messages: Rows) -> None:
        """Dispatch good messages (rows of DISPATCH_COLUMNS), in log order."""
        self._queues.fill(messages)

    def found(self, message: Message, physical_offset: int) -> None:
        """Dispatch the message that was found at `physical_offset`.

        The PHYSICALOFFSET in the message may be different from `physical_offset`.
        """
        if message.physical_offset == physical_offset:
            self._queues.fill(self._builder.of(message).messages)
        else:
            self._queues.put(message)

    def nameless(self, size: int) -> None:
        """Dispatch a record whose lengths do not add up to TOTALSIZE, `size`."""
        self._queues.put_nameless(size)

    def known_until(self, messages: Rows, start: int) -> int:
        """Return the first row from `start` on that the broker may not know.

        If it knows all records, the result is the number of rows. Brokers up to 5.0.0 do not know V2 records (for
        topics longer than 127 bytes), and brokers up to 4.5.2 do not know IPv6 hosts. No broker knows a delayed message
        whose DELAY is no number.
        """
        rows = messages[start:]
        foreign: Flags = rows["traits"] & ODD_DELAY != 0
        if not self._rules.knows_ipv6:
            foreign |= rows["sys_flag"] & (BORNHOST_V6 | STOREHOST_V6) != 0
        if not self._rules.knows_long_topics:
            queues = self._builder.queues
            self._long += [at for at in range(self._known, len(queues)) if len(queues[at][0]) > LONGEST_V1_TOPIC]
            self._known = len(queues)
            foreign |= np.isin(rows["queue"], self._long)
        return start + int(np.argmax(foreign)) if foreign.any() else len(messages)


class RecoveryPass:
    """The log files that load() accepted.

    They are in the order of their names: one of fewer digits comes last. `start` is the physical offset of the first
    file, or 0 without a file.
    """

    def __init__(self, files: Sequence[MappedFile], file_size: int, rules: StartRules) -> None:
        self.files = files
        self.file_size = file_size
        self.start = files[0].file_from_offset if files else 0
        self.rules = rules
        self._begins = np.array([min(file.file_from_offset, OFFSET_MAX) for file in files], np.int64)
        self._end: int | None = None

    def file_at(self, physical_offset: int) -> MappedFile | None:
        """Return the log file that contains a physical offset, or None.

        The rule is MappedFileQueue.findMappedFileByOffset since 4.3.0: the last file also limits the log.
        """
        if not self.files or not self.start <= physical_offset < self.files[-1].end:
            return None
        number = physical_offset // self.file_size - self.start // self.file_size
        order = chain(self.files[number : number + 1], self.files)
        return next((file for file in order if file.file_from_offset <= physical_offset < file.end), None)

    def begun_by(self, number: int, physical_offset: int) -> int:
        """Return how many files begin after file `number`, up to a physical offset."""
        begins = self._begins[number:]
        return int(np.count_nonzero((begins > begins[0]) & (begins <= physical_offset)))

    def readable_at(self, physical_offset: int) -> MappedFile | None:
        """Return the log file where a dispatch from a physical offset reads, or None.

        It reads at the physical offset modulo the file size (CommitLog.getData). In a file that the cut ended earlier,
        because its name is no multiple of the file size, there is nothing.
        """
        file = self.file_at(physical_offset)
        if file is None or self.written_end(file) == file.end:
            return file
        return file if physical_offset % self.file_size < self.written_end(file) - file.file_from_offset else None

    def written_end(self, file: MappedFile) -> int:
        """Return the physical offset where a log file has no more bytes for this broker.

        In the file where the broker has cut the log, it writes on at the log's end modulo the file size
        (MappedFileQueue.truncateDirtyFiles). If the file's name is no multiple of the file size, this is another place.
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

    def compensation_refusal(self, start: int) -> str | None:
        """Return why load() fails where it reads the log once more, or None.

        With duplicationEnable, 5.0.0 to 5.5.1 look from `start` on for messages without a unit
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
        """Return the result of the broker's record check at a physical offset.

        Raises OSError.
        """
        position, room = physical_offset - file.file_from_offset, self.written_end(file) - physical_offset

        def read(at: int, size: int) -> bytes:
            return file.read(position + at, min(size, room - at)) if at < room else b""

        return check_message_and_return_size(read, room, self.rules, check_crc=check_crc)


class ScanEnd(NamedTuple):
    """The place where recovery ends the log, and the reason.

    `code` is the code of the damage that begins at `physical_offset`. If no damage was reported at `physical_offset`,
    `code` is empty.
    """

    physical_offset: int
    code: str
    why: str


class RecoveryScan:
    """The log scan of recovery, from `start` on.

    `start` is a physical offset in log file number `number`. Messages with a PHYSICALOFFSET of `dispatches_from` or
    more are dispatched. If `dispatches_from` is None, no message is dispatched. `position` is the current offset of the
    scan. `end` is the place where the scan ended, or None if the scan has not ended. Methods raise OSError if a queue
    cannot be read.
    """

    def __init__(
        self,
        log: RecoveryPass,
        number: int,
        start: int,
        dispatches_from: int | None,
        dispatch: Dispatch,
        *,
        checks_offset: bool,
        passes_over: bool,
    ) -> None:
        self.position = start
        self.last: int | None = None  # where the last message begins
        self._checks_offset = checks_offset
        self._passes_over = passes_over
        self._shift = 0  # how far the broker counts ahead of the place where it reads
        self.end: ScanEnd | None = None
        self._log = log
        self._number = number
        self._dispatches_from = dispatches_from
        self._dispatch = dispatch
        self._damage: tuple[int, str] | None = None

    def on_messages(self, messages: Rows) -> None:
        """Scan successive good messages (rows of DISPATCH_COLUMNS)."""
        offsets = messages["physical_offset"]
        behind = int(offsets[-1]) + int(messages["size"][-1])
        while self.end is None and self.position < behind:
            first = _row_at(offsets, self.position)
            until = first if first is None else self._dispatch.known_until(messages, first)
            if first is None or until is None or until == first or self._log.rules.checks_good_records:
                self.step()
                continue
            self._rows(messages[first:until])
            self.position = int(offsets[until - 1]) + int(messages["size"][until - 1])

    def damage(self, physical_offset: int, end: int, code: str) -> None:
        """Scan the damaged bytes [physical_offset, end)."""
        self._damage = (physical_offset, code)
        while self.end is None and self.position < max(end, physical_offset + 1):
            self.step()

    def pass_over(self, end: int) -> None:
        """Continue the scan at physical offset `end`.

        All records before `end` must be good, and must already have their units in the queues. The scan continues where
        it is if it has to check such records.
        """
        if self._log.rules.checks_good_records:
            return
        self._number += self._log.begun_by(self._number, end)
        self.position = max(self.position, end)

    def finish(self) -> ScanEnd:
        """Scan to the log's end, and return where and why it ends."""
        while self.end is None:
            self.step()
        return self.end

    def step(self) -> None:
        """Scan one record, or the end of a file, in the same way as the broker."""
        file = self._log.files[self._number]
        try:
            checked = self._log.check(file, self.position, check_crc=self._log.rules.check_crc)
        except OSError as error:
            self._stop(f"{file.name} cannot be read: {error.strerror}")
            return
        if checked.message is not None:
            if self._checks_offset and not 0 <= checked.message.physical_offset - file.file_from_offset <= file.size:
                self._stop("PHYSICALOFFSET is outside of this file, which checkCommitLogOffsetOnRecover forbids")
                return
            self.last = self.position
            if self._dispatches_from is not None and checked.message.physical_offset >= self._dispatches_from:
                self._dispatch.found(checked.message, self.position)
            self.position += checked.size
        elif checked.size > 0 and self._passes_over:
            self._dispatch.nameless(checked.size)
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

    def _rows(self, messages: Rows) -> None:
        self.last = int(messages["physical_offset"][-1])
        if self._dispatches_from is None:
            return
        start = (
            int(np.searchsorted(messages["physical_offset"], self._dispatches_from)) if self._dispatches_from > 0 else 0
        )
        if start < len(messages):
            self._dispatch.rows(messages[start:])

    def _stop(self, why: str) -> None:
        code = self._damage[1] if self._damage and self._damage[0] == self.position else ""
        self.end = ScanEnd(self.position + self._shift, code, why)


class ReputPass:
    """The dispatch of start() in 4.5.0 to 4.9.8 (ReputMessageService.doReput).

    The pass begins at `start`, does not verify checksums, and skips bytes that are not a record. At a physical offset
    that no log file contains, the broker waits forever. `hangs_at` is the physical offset where the broker waits
    forever, or None. Methods raise OSError.
    """

    def __init__(self, log: RecoveryPass, start: int, dispatch: Dispatch) -> None:
        self.hangs_at: int | None = None
        self._log = log
        self._dispatch = dispatch
        self._reput_from = start
        self._file: MappedFile | None = None
        self._position = start  # the read position; differs from _reput_from after inconsistent lengths
        self._skipped = 0

    def on_messages(self, messages: Rows, limit: int) -> None:
        """Dispatch successive good messages.

        Messages at physical offset `limit` or after it are not dispatched.
        """
        offsets, ends = messages["physical_offset"], messages["physical_offset"] + messages["size"]
        behind = min(int(ends[-1]), limit)
        while self._position < behind and self._goes_on(limit):
            first = _row_at(offsets, self._position)
            until = (
                0
                if first is None
                else min(self._dispatch.known_until(messages, first), int(np.searchsorted(ends, limit, "right")))
            )
            if first is None or until <= first:
                self._step()
                continue
            self._dispatch.rows(messages[first:until])
            self._advance(int(offsets[until - 1]) + int(messages["size"][until - 1]) - self._position)

    def finish(self, log_end: int) -> None:
        """Dispatch up to the log's end."""
        while self._goes_on(log_end):
            self._step()
        if self._reput_from >= log_end:  # `log_end` may be before a place where no file was
            self.hangs_at = None

    def _goes_on(self, limit: int) -> bool:
        if self._file is not None and self._log.rules.dispatches_whole_files:  # it is left at its end
            return True
        return self._reput_from < limit and self._open()

    def _open(self) -> bool:
        if self._file is None:
            self._file = self._log.readable_at(self._reput_from)
            if self._file is not None and self._file.file_from_offset % self._log.file_size:
                self._reput_from = self._file.file_from_offset + self._reput_from % self._log.file_size
            self._position, self._skipped = self._reput_from, 0
            self.hangs_at = self._reput_from if self._file is None else None
        return self._file is not None

    def _step(self) -> None:
        file = self._file
        if file is None:
            return
        checked = self._log.check(file, self._position, check_crc=False)
        if checked.message is not None:
            self._dispatch.found(checked.message, self._position)
            self._advance(checked.size)
        elif checked.is_blank:
            self._go_to((self._reput_from // self._log.file_size + 1) * self._log.file_size)
        elif checked.size > 0:
            self._skipped += checked.size
            self._reput_from += checked.size
            self._position += checked.consumed
        else:
            self._go_to(self._log.written_end(file) + self._skipped)

    def _advance(self, size: int) -> None:
        self._reput_from += size
        self._position += size
        if self._file is not None and self._position >= self._log.written_end(self._file):
            self._go_to(self._reput_from)

    def _go_to(self, physical_offset: int) -> None:
        self._reput_from = self._position = physical_offset
        self._file = None


def _row_at(offsets: Numbers, physical_offset: int) -> int | None:
    """Return the row of the message that begins at a physical offset, or None."""
    row = int(np.searchsorted(offsets, physical_offset)) if offsets[0] < physical_offset else 0
    return row if row < len(offsets) and offsets[row] == physical_offset else None
