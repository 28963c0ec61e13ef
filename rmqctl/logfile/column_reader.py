"""Read good messages of a commit log file into one buffer, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rmqctl.format import message
from rmqctl.format.message import HEADS, PLACEHOLDER_SIGN, Message, head_of, topic_length_size
from rmqctl.kernels import scan

if TYPE_CHECKING:
    from rmqctl.format.columns import Bytes, Rows
    from rmqctl.logfile.mapped_file import MappedFile

BUFFER_SIZE = 2 * 1024 * 1024
ROWS_MAX = BUFFER_SIZE // message.MIN_SIZE + 1
MARGIN = 64 * 1024  # bytes read after `stop`, for the end of the last record
_PREPARED_TO_BODY = HEADS[0].size - HEADS[0].offset("PREPAREDTRANSACTIONOFFSET")


class Columns(NamedTuple):
    """Successive good messages in `size` bytes of the log, from `physical_offset` on.

    The next read overwrites `rows` and `buffer`: copy them before.
    """

    physical_offset: int
    size: int
    rows: Rows  # numpy array of `rmqctl.kernels.scan.RECORD_COLUMNS`; its positions are positions in `buffer`
    buffer: Bytes  # numpy array of uint8
    path: str  # of the file, as findings show it

    def message(self, row: int) -> Message:
        """Return the record of one row."""
        return self.messages(self.rows[row : row + 1])[0]

    def messages(self, rows: Rows) -> list[Message]:
        """Return the records of some rows; the kernel has checked them."""
        buffer, found = self.buffer.data, []
        names = ("position", "size", "body_length", "topic_length")
        for position, size, body_length, topic_length in zip(*(rows[name].tolist() for name in names), strict=True):
            record = bytes(buffer[position : position + size])
            head = head_of(record)
            fields = head.struct.unpack_from(record)
            body_end = head.size + body_length
            topic = body_end + topic_length_size(fields[1])
            properties = topic + topic_length + 2
            body = memoryview(record)[head.size : body_end]
            place, texts = self.physical_offset + position, (record[topic : topic + topic_length], record[properties:])
            found.append(Message._make((place, size, *fields[1:-1], body, *texts)))
        return found

    def placeholders(self) -> Rows:
        """Return the rows of the placeholders that `recover --keep-going` wrote."""
        places = self.rows["body_start"] - _PREPARED_TO_BODY
        signs = self.buffer[places[:, None] + np.arange(8)].view(">i8")[:, 0]
        found: Rows = self.rows[signs == PLACEHOLDER_SIGN]
        return found


class ColumnReader:
    """Reads messages of log files into one buffer, as columns.

    As all reads share it, memory use does not grow, and only one thread at a time may use a reader. Without
    `check_bodies`, a message with a wrong BODYCRC counts as good.
    """

    def __init__(self, *, check_bodies: bool = True) -> None:
        self._check_bodies = check_bodies
        self._buffer = np.empty(BUFFER_SIZE, np.uint8)
        self._rows = np.empty(ROWS_MAX, scan.RECORD_COLUMNS)
        self._file: MappedFile | None = None
        self._start = 0
        self._filled = 0

    def at(self, file: MappedFile, position: int, stop: int) -> Columns | None:
        """Return the good messages of `file` that begin in [position, stop), or None.

        They are as many as fit into the buffer. None if the message at `position` is missing, bad, unreadable, or
        longer than the buffer.
        """
        for _ in range(2):
            if file is not self._file or not self._start <= position < self._start + self._filled:
                self._fill(file, position, stop)
            buffer = self._buffer[position - self._start : self._filled]
            base = file.file_from_offset + position
            rows = self._rows[
                : scan.walk(buffer, base, file.size - position, self._rows, check_bodies=self._check_bodies)
            ]
            if len(rows) and int(rows[-1]["position"]) >= stop - position:
                rows = rows[: int(np.searchsorted(rows["position"], stop - position))]
            if len(rows):
                last = rows[-1]
                return Columns(base, int(last["position"]) + int(last["size"]), rows, buffer, file.name)
            if position == self._start or not self._is_cut(buffer):
                return None
            self._filled = 0  # read again, from the start of this record
        return None

    def _is_cut(self, buffer: Bytes) -> bool:
        """Return whether the record at the start of `buffer` may be incomplete.

        One with a TOTALSIZE above BUFFER_SIZE is not.
        """
        if len(buffer) < message.MIN_SIZE:
            return True
        return len(buffer) < int.from_bytes(buffer[:4].tobytes(), "big") <= BUFFER_SIZE

    def forget(self) -> None:
        """Mark the buffer as empty, so that the next read fills it again."""
        self._file = None

    def _fill(self, file: MappedFile, position: int, stop: int) -> None:
        self._file = file
        self._start = position
        wanted = min(BUFFER_SIZE, stop - position + MARGIN)
        try:
            self._filled = file.read_into(position, self._buffer[:wanted].data)
        except OSError:  # RecordReader later reports what cannot be read
            self._filled = 0
