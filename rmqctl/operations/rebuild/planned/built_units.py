"""The units of rebuilt queues, kept in a temporary file outside the store.

rmqctl uses the units to check a repair plan before the repair.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from zlib_ng import zlib_ng

from rmqctl.format.columns import UNITS
from rmqctl.format.cq_unit import CQ_UNIT, PRE_BLANK_SIZE
from rmqctl.logfile.memory.mapped_memory import Spool
from rmqctl.operations.rebuild.planned.planned_storage import Patch, PlannedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from rmqctl.format.columns import Rows
    from rmqctl.store.config.topics import QueueKey


class _Kept:
    """The units of one rebuilt queue in the temporary file (spool).

    `first` is the queue offset of the queue's first unit. `portions` are the parts of the temporary file that contain
    the units. `crc` is the CRC-32 of the units.
    """

    def __init__(self) -> None:
        self.first = 0
        self.crc = 0
        self.portions: list[slice] = []


class BuiltUnits:
    """Keeps the units of rebuilt queues, except batch consume queues.

    Methods raise OSError.
    """

    def __init__(self) -> None:
        self._spool = Spool()
        self._queues: dict[QueueKey, _Kept] = {}
        self._files: dict[Path, PlannedFile] | None = None

    @property
    def keys(self) -> list[QueueKey]:
        """Return the queues whose units are kept."""
        return list(self._queues)

    def begin(self, key: QueueKey) -> Callable[[int, Rows], None]:
        """Return the function that receives the units of a queue.

        `begin` must be called when the queue begins, and when the queue begins again at queue offset 0.
        """
        kept = self._queues[key] = _Kept()
        return partial(self._put, kept)

    def _put(self, kept: _Kept, queue_offset: int, units: Rows) -> None:
        if not kept.portions:
            kept.first = queue_offset
        data = units.tobytes()
        kept.portions.append(self._spool.put(data))
        kept.crc = zlib_ng.crc32(data, kept.crc)

    def are_as(self, others: BuiltUnits) -> bool:
        """Return whether `others` has the same queues and units."""
        return self._prints() == others._prints()

    def _prints(self) -> dict[QueueKey, tuple[int, int]]:
        return {key: (kept.first, kept.crc) for key, kept in self._queues.items()}

    def files(self, folder: Path, file_size: int) -> dict[Path, PlannedFile]:
        """Return the files of the queues below `folder`, each of `file_size` bytes.

        After a call of `files`, no unit can be added.
        """
        if self._files is None:
            self._files = dict(self._made_files(folder, file_size))
        return self._files

    def _made_files(self, folder: Path, file_size: int) -> Iterator[tuple[Path, PlannedFile]]:
        portions, whole = self._spool.view(), Spool()
        places = {}
        for key, kept in self._queues.items():
            parts = [whole.put(portions[portion]) for portion in kept.portions]
            if parts:
                places[key] = slice(parts[0].start, parts[-1].stop)
        view = whole.view()
        for (topic, queue_id), place in places.items():
            first = self._queues[topic, queue_id].first * CQ_UNIT.size
            for begin, file in _files(first, view[place], file_size):
                yield folder / topic / str(queue_id) / f"{begin:020d}", file

    def close(self) -> None:
        """Close the temporary file."""
        self._spool.close()


def _files(first: int, data: memoryview, file_size: int) -> Iterator[tuple[int, PlannedFile]]:
    """Yield the planned files of a queue, each with its first byte offset.

    The queue's first unit is at byte offset `first`. In the first file, pre-blanks fill the places before the queue's
    first unit.
    """
    end = first + len(data)
    for begin in range(first // file_size * file_size, end, file_size):
        skipped = max(begin - first, 0)
        blank = np.zeros(max(first - begin, 0) // CQ_UNIT.size, UNITS)
        blank["size"] = PRE_BLANK_SIZE
        at = first + skipped - begin
        patches = (Patch(0, at, blank.tobytes()), Patch(at, min(end - begin, file_size), data[skipped:]))
        yield begin, PlannedFile(file_size, patches, is_new=True)
