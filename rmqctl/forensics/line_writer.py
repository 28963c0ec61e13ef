"""Write wanted messages as JSON Lines.

The kernel writes most lines. Messages that the kernel cannot write are returned to the caller.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import numpy as np

from rmqctl.kernels import json_lines
from rmqctl.store.config.topics import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.columns import Bytes
    from rmqctl.format.message import Message
    from rmqctl.logfile.column_reader import Columns


OUT_SIZE = 4 * 1024 * 1024


class LineWriter:
    """Turns the columns of scanned messages into JSON Lines.

    Any thread may call this object. Each thread has its own buffer of 4 MiB.
    """

    def __init__(self, wanted: Filter, body: str) -> None:
        self._wanted = wanted
        self._body = json_lines.BODIES.get(body)
        self._local = threading.local()

    def take(self, columns: Columns) -> tuple[str, list[bytes | Message], int]:
        """Return a log file's path, the lines of its wanted messages, and their number.

        For a line that the kernel cannot write, the list has a Message.
        """
        numbers = self._wanted.rows(columns)
        if self._body is None or not columns.path.isascii() or not columns.path.isprintable():
            return columns.path, [columns.message(row) for row in numbers.tolist()], len(numbers)
        rows, path = columns.rows[numbers], json.dumps(columns.path).encode()
        out = self._buffer()
        pieces: list[bytes | Message] = []
        at = 0
        while at < len(rows):
            at, used = json_lines.write_lines(
                columns.buffer, columns.physical_offset, rows, at, path, SCHEDULE_TOPIC.encode(), self._body, out
            )
            if used:
                pieces.append(out[:used].tobytes())
            elif at < len(rows):  # the kernel cannot write this line, or the line alone is larger than the buffer
                pieces.append(columns.message(int(numbers[at])))
                at += 1
        return columns.path, pieces, len(numbers)

    def _buffer(self) -> Bytes:
        """Return the output buffer of the calling thread."""
        if not hasattr(self._local, "out"):
            self._local.out = np.empty(OUT_SIZE, np.uint8)
        out: Bytes = self._local.out
        return out
