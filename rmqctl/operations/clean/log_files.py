"""The log files of a store, with their ages and the obstacles to deletion.

Obstacles are a gap in the log after the file (maybe the operator forgot to name one of the log's folders), a wrong
length, and another log file with the same offsets. A log file that a broker has allocated in advance does not belong to
the log yet.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.operations.clean.plan_types import fate_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmqctl.logfile.mapped_file import MappedFile
    from rmqctl.operations.clean.plan_types import FileDecision
    from rmqctl.store.read.read_only_store import ReadOnlyStore


class LogFile(NamedTuple):
    """A log file in use, and whether an obstacle forbids its deletion."""

    file: MappedFile
    decision: FileDecision
    blocked_by: str  # why it and all later log files must stay, or ""


def log_files(store: ReadOnlyStore) -> list[LogFile]:
    """Return the log files in use, oldest first. Raises OSError."""
    files = store.commit_log.files_in_use()
    queue = store.commit_log.queue
    twice = {damage.physical_offset for damage in queue.anomalies if damage.code == "file-overlap"}
    found: list[LogFile] = []
    behind: int | None = None
    for number in range(len(files) - 1, -1, -1):
        file = files[number]
        blocked_by = _obstacle(files, number, queue.file_size, twice)
        decision = replace(fate_of(store.storage, file, "commitlog", ""), last_store_timestamp=behind)
        found.append(LogFile(file, decision, blocked_by))
        first = store.commit_log.message_at(file.file_from_offset)
        behind = first.store_timestamp if first is not None else behind
    return found[::-1]


def ahead(store: ReadOnlyStore, in_use: int) -> list[FileDecision]:
    """Return the log files that a broker has allocated in advance."""
    files = store.commit_log.queue.files[in_use:]
    return [fate_of(store.storage, file, "commitlog", "allocated ahead, still empty") for file in files]


def _obstacle(files: Sequence[MappedFile], number: int, file_size: int, twice: set[int]) -> str:
    file = files[number]
    if file.file_from_offset in twice or (number and file.file_from_offset < files[number - 1].end):
        return "two files of the log have the same offsets: `rmqctl verify` names them"
    if file.size_on_disk != file_size:
        return (
            f"it has {file.size_on_disk} bytes, not {file_size}: `rmqctl recover --dry-run` shows what mending it loses"
        )
    if number + 1 < len(files) and files[number + 1].file_from_offset > file.end:
        gap = f"a gap in the log: bytes {file.end} to {files[number + 1].file_from_offset} are missing after it"
        return (
            f"{gap}; in another folder of the log, which --broker-conf names? else `rmqctl recover --keep-going` "
            "fills it"
        )
    return ""
