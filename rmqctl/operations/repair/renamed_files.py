"""Find log files that were renamed.

A log file was renamed if the PHYSICALOFFSETs of all its records fit another file name. A file name with characters
after the 20 digits shows a renamed log file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.format.message import Blank
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.format.message import Damage, Message
    from rmqctl.logfile.mapped_file_queue import MappedFileQueue
    from rmqctl.store.read.file_scan import RecordRun
    from rmqctl.store.read.read_only_store import ReadOnlyStore

MISPLACED = "bad-physical-offset"


def check_none_set_aside(store: ReadOnlyStore) -> None:
    """Raise Unreadable if a missing log file exists under another name.

    Without this check, a repair might replace the renamed log file by placeholders, delete the renamed log file, or cut
    the log.
    """
    for path in store.commit_log.queue.set_aside():
        name = path.name[:FILE_NAME_DIGITS]
        what = f"{name} is missing, and this file has its name and its length: it may have the missing messages"
        hint = f"rename it back: mv -n {quoted(path)} {quoted(path.with_name(name))}; or move it out of the store"
        raise Unreadable(what, path=str(path), hint=hint)


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

    def notes(self) -> Iterator[str]:
        """Yield a note on each renamed log file, with its former name.

        The former name must fit the size of the log files, and must not be the name of an existing log file.
        """
        taken = {file.file_from_offset for file in self._files.files}
        for file in self._files.files:
            distances = self._moved.get(file.name, set())
            if len(distances) != 1 or file.name in self._with_good:
                continue
            base = file.file_from_offset - min(distances)
            if base >= 0 and base % self._files.file_size == 0 and base not in taken:
                count = self._counts[file.name]
                records, say = (
                    ("its only record", "says") if count == 1 else (f"all its {counted(count, 'record')}", "say")
                )
                yield (
                    f"{file.name} was renamed: {records} {say} the offsets of {base:0{FILE_NAME_DIGITS}d}; rename it "
                    "back and run "
                    "recover again"
                )

    def _name_of(self, physical_offset: int) -> str:
        file = self._files.at_or_before(physical_offset)
        return file.name if file is not None else ""
