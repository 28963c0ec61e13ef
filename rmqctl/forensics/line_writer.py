"""Wanted messages as JSON Lines, by the kernel as far as it does them."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from rmqctl.format import json_lines
from rmqctl.store.read_only_store import SCHEDULE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from rmqctl.forensics.message_filter import Filter
    from rmqctl.format.message import Message
    from rmqctl.logfile.column_reader import Columns


class LineWriter:
    """Makes lines of scanned columns, in any thread. `path_of` names the file of a physical offset."""

    def __init__(self, wanted: Filter, body: str, path_of: Callable[[int], str]) -> None:
        self._wanted = wanted
        self._body = json_lines.BODIES.get(body)
        self._path_of = path_of
        self._local = threading.local()

    def take(self, columns: Columns) -> list[bytes | Message]:
        """The lines of the wanted messages in order; a message where the kernel does not do its line."""
        numbers = self._wanted.rows(columns)
        if self._body is None:
            return [columns.message(row) for row in numbers.tolist()]
        path = self._path_of(columns.physical_offset)
        if not path.isascii() or not path.isprintable():
            return [columns.message(row) for row in numbers.tolist()]
        rows = columns.rows[numbers]
        out = self._room_for(rows, len(path) + 2)
        pieces: list[bytes | Message] = []
        at = 0
        while at < len(rows):
            at, used = json_lines.write_lines(
                columns.buffer, columns.physical_offset, rows, at, json.dumps(path).encode(), SCHEDULE_TOPIC.encode(), self._body, out
            )
            if used:
                pieces.append(out[:used].tobytes())
            if at < len(rows):
                pieces.append(columns.message(int(numbers[at])))
                at += 1
        return pieces

    def _room_for(self, rows: Any, path_length: int) -> Any:
        """An array of this thread's, for one call at a time, with room for all these lines."""
        lengths = 4 * int(rows["properties_length"].sum()) + int(rows["topic_length"].sum())
        if self._body != json_lines.BODY_NONE:
            lengths += 2 * int(rows["body_length"].sum())
        room = lengths + len(rows) * (json_lines.ROOM_OF_A_LINE + path_length)
        if not hasattr(self._local, "out") or len(self._local.out) < room:
            self._local.out = np.empty(room, np.uint8)
        return self._local.out
