"""Find log files that have the name of another log file.

A log file was renamed if the PHYSICALOFFSETs of all its records fit one other file name, and the file with that name is
missing in the log, before its first file, or after its last, or was renamed, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.message import Blank, Damage
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS, OFFSET_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.read.file_scan import RecordRun, ScanItem

HEAD_SIZE = 8  # bytes: the size and the magic code of a file's first record
MISPLACED = "bad-physical-offset"


class RenamedFile(NamedTuple):
    """A log file that was renamed."""

    name: str  # its path in the store
    path: Path  # the whole path
    right_path: Path
    records: int  # that fit `right_path`


class RenamedFiles:
    """Finds renamed log files during a scan of the log."""

    def __init__(self, files: MappedFileQueue) -> None:
        self._files = files
        self._moved: dict[str, set[int]] = {}  # by file: distances of records from their PHYSICALOFFSET
        self._counts: dict[str, int] = {}
        self._with_good: set[str] = set()

    def put(self, item: ScanItem | RecordRun) -> None:
        """Process the next item of the log."""
        if not isinstance(item, Damage | Blank):
            self._with_good.add(self._name_of(item.physical_offset))
        elif isinstance(item, Damage) and item.code == MISPLACED and item.message is not None:
            name = item.path or self._name_of(item.physical_offset)
            self._moved.setdefault(name, set()).add(item.physical_offset - item.message.stored_physical_offset)
            self._counts[name] = self._counts.get(name, 0) + 1

    def found(self) -> Iterator[RenamedFile]:
        """Yield the renamed log files, each with another right path.

        The right names fit the size of the log files, and join the other files. A file may have the name of another
        renamed one: the names were swapped or shifted. A file without records that is in the way, or that follows the
        renamed files, gets a name that they leave.
        """
        files = {file.file_from_offset: file for file in self._files.files}
        moves: dict[int, int] = {}  # from the present name to the right one
        for base, file in files.items():
            right = self._right_base(file)
            if right is not None and right not in moves.values():
                moves[base] = right
        self._drop_blocked(moves)
        moves |= self._of_empty_files(moves)
        for base, right in sorted(moves.items()):
            file = files[base]
            right_path = file.path.with_name(f"{right:0{FILE_NAME_DIGITS}d}")
            yield RenamedFile(file.name, file.path, right_path, self._counts.get(file.name, 0))

    def _right_base(self, file: MappedFile) -> int | None:
        distances = self._moved.get(file.name, set())
        if len(distances) != 1 or file.name in self._with_good:
            return None
        base = file.file_from_offset - min(distances)
        return base if base >= 0 and base % self._files.file_size == 0 else None

    def _drop_blocked(self, moves: dict[int, int]) -> None:
        """Remove files whose right name stays another file's, or joins no file."""
        size = self._files.file_size
        bases = {file.file_from_offset for file in self._files.files}
        while True:
            stay = {base for base in bases - moves.keys() if self._has_records(base)}
            blocked = []
            for base, right in moves.items():
                others = stay | {other for moved, other in moves.items() if moved != base}
                if right in stay or (others and not min(others) - size <= right <= max(others) + size):
                    blocked.append(base)
            if not blocked:
                return
            for base in blocked:
                del moves[base]

    def _of_empty_files(self, moves: dict[int, int]) -> dict[int, int]:
        taken = set(moves.values())
        left = sorted(base for base in moves.keys() - taken if base % self._files.file_size == 0)
        behind = max(moves, default=OFFSET_MAX)
        empty = [
            file.file_from_offset
            for file in self._files.files
            if not self._has_records(file.file_from_offset)
            and not file.read(0, HEAD_SIZE).strip(b"\0")
            and (file.file_from_offset in taken or file.file_from_offset > behind)
        ]
        return {base: right for base, right in zip(empty, left, strict=False) if base in taken or base > right}

    def _has_records(self, base: int) -> bool:
        name = self._name_of(base)
        return name in self._with_good or name in self._moved

    def _name_of(self, physical_offset: int) -> str:
        file = self._files.at_or_before(physical_offset)
        return file.name if file is not None else ""
