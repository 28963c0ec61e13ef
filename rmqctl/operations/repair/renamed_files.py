"""Check for renamed log files before a repair, and note them in its plan.

A file name with characters after the 20 digits shows a renamed log file before the log is read. The records of a file
show a renamed log file during the scan (`rmqctl.forensics.renamed_files`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqctl.errors import Unreadable
from rmqctl.logfile.mapped_file_queue import FILE_NAME_DIGITS
from rmqctl.text import counted, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rmqctl.forensics.renamed_files import RenamedFile
    from rmqctl.store.read.read_only_store import ReadOnlyStore


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


def notes_of_renamed(found: Iterable[RenamedFile]) -> Iterator[str]:
    """Yield a note on each renamed log file, with its former name."""
    for file in found:
        is_one = file.records == 1
        records, say = ("its only record", "says") if is_one else (f"all its {counted(file.records, 'record')}", "say")
        yield (
            f"{file.name} was renamed: {records} {say} the offsets of {file.right_path.name}; rename it back and run "
            "recover again"
        )
