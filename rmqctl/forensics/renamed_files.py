"""Find log files that have the name of another log file.

A log file was renamed if the PHYSICALOFFSETs of all its records fit one other file name, and the file with that name is
missing in the log, before its first file, or after its last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rmqctl.format.message import Blank
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmqctl.format.message import Damage, Message
    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.read.file_scan import RecordRun

MISPLACED = "bad-physical-offset"


class RenamedFile(NamedTuple):
    """A log file that was renamed.

    `name` is the path in the store, and `path` the whole path. `records` counts the records that fit `right_path`.
    """

    name: str
    path: Path
    right_path: Path
    records: int


class RenamedFiles:
    """Finds renamed log files during a scan of the log."""

    def __init__(self, files: MappedFileQueue) -> None:
        self._files = files
        self._moved: dict[str, set[int]] = {}  # by file: distances of records from their PHYSICALOFFSET
        self._counts: dict[str, int] = {}
        self._with_good: set[str] = set()

    def good(self, item: Message | Blank | RecordRun) -> None:
        """Process records with a correct PHYSICALOFFSET. Ignore blanks."""
        if not isinstance(item, Blank):
            self._with_good.add(self._name_of(item.physical_offset))

    def damage(self, damage: Damage) -> None:
        """Process a damaged place of the log."""
        if damage.code == MISPLACED and damage.message is not None:
            name = damage.path or self._name_of(damage.physical_offset)
            self._moved.setdefault(name, set()).add(damage.physical_offset - damage.message.stored_physical_offset)
            self._counts[name] = self._counts.get(name, 0) + 1

    def found(self) -> Iterator[RenamedFile]:
        """Yield the renamed log files, each with another right path.

        The right name fits the size of the log files.
        """
        taken = {file.file_from_offset for file in self._files.files}
        for file in self._files.files:
            distances = self._moved.get(file.name, set())
            if len(distances) != 1 or file.name in self._with_good:
                continue
            base = file.file_from_offset - min(distances)
            if base >= 0 and base % self._files.file_size == 0 and base not in taken and self._is_missing(base, file):
                taken.add(base)
                right_path = file.path.with_name(f"{base:0{FILE_NAME_DIGITS}d}")
                yield RenamedFile(file.name, file.path, right_path, self._counts[file.name])

    def _is_missing(self, base: int, renamed: MappedFile) -> bool:
        """Return whether a file at `base` joins the log files other than `renamed`."""
        others = [file.file_from_offset for file in self._files.files if file is not renamed]
        size = self._files.file_size
        return not others or min(others) - size <= base <= max(others) + size

    def _name_of(self, physical_offset: int) -> str:
        file = self._files.at_or_before(physical_offset)
        return file.name if file is not None else ""
