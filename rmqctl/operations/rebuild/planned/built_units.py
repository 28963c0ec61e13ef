"""The units of rebuilt queues, kept in a temporary file outside the store.

They serve to check a repair plan before the repair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, PRE_BLANK_SIZE
from rmqctl.logfile.memory.mapped_memory import Spool
from rmqctl.operations.rebuild.planned.planned_storage import Patch, PlannedFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

    from rmqctl.format.columns import Rows
    from rmqctl.store.config.topics import QueueKey


class BuiltUnits:
    """Keeps the units of rebuilt queues, except batch consume queues.

    Methods raise OSError.
    """

    def __init__(self) -> None:
        self._spool: Spool | None = None
        self._queues: dict[QueueKey, list[tuple[int, slice]]] = {}  # queue offset, and where its units are

    @property
    def keys(self) -> list[QueueKey]:
        """The queues whose units are kept."""
        return list(self._queues)

    def put(self, key: QueueKey, queue_offset: int, units: Rows) -> None:
        """Keep the next units of a queue, of which the first has this queue offset."""
        self._spool = self._spool or Spool()
        self._queues.setdefault(key, []).append((queue_offset, self._spool.put(units.tobytes())))

    def leave_out(self, keys: Collection[QueueKey]) -> None:
        """Forget the units of these queues."""
        self._queues = {key: kept for key, kept in self._queues.items() if key not in keys}

    def files(self, folder: Path, file_size: int) -> dict[Path, PlannedFile]:
        """Return the files of the queues below `folder`, each of `file_size` bytes.

        No unit can be added afterwards.
        """
        if self._spool is None:
            return {}
        units = self._spool.gathered({key: [portion for _, portion in kept] for key, kept in self._queues.items()})
        return {
            folder / topic / str(queue_id) / f"{begin:020d}": file
            for (topic, queue_id), data in units.items()
            for begin, file in _files(self._queues[topic, queue_id][0][0] * CQ_UNIT.size, data, file_size)
        }


def _files(first: int, data: memoryview, file_size: int) -> Iterator[tuple[int, PlannedFile]]:
    """Yield the planned files of a queue, each with its first byte offset.

    The queue's first unit is at byte offset `first`; pre-blanks fill the places before it in its file.
    """
    end = first + len(data)
    for begin in range(first // file_size * file_size, end, file_size):
        skipped = max(begin - first, 0)
        blank = np.zeros(max(first - begin, 0) // CQ_UNIT.size, UNITS)
        blank["size"] = PRE_BLANK_SIZE
        at = first + skipped - begin
        patches = (Patch(0, at, blank.tobytes()), Patch(at, min(end - begin, file_size), data[skipped:]))
        yield begin, PlannedFile(file_size, patches, is_new=True)
