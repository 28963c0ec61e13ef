"""Divide a log into splits, and open the file of a split in a task.

This works without numba, because Spark's planner uses it in separate processes.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import Unreadable
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.record_reader import RecordReader
from rmqctl.logfile.system.remote_storage import is_remote, root_path, root_text, storage_of
from rmqctl.store.dledger.entry_reader import EntryReader
from rmqctl.store.read.file_scan import cuts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.commit_log import CommitLog

HEAD_SIZE = 64  # bytes
MIB = 1024 * 1024
SPLIT_MIB, SPLIT_MIB_MAX = 128, 4096  # that one task reads by default, and at most: each task needs 50 ms more


class Split(NamedTuple):
    """The bytes [start, stop) of one file of a log."""

    root: str  # folder of the store
    path: str
    # its number in the log, from 0; 0 in a stream, which does not sort its splits; -1 without bytes (`sequence_split`)
    file: int
    file_from_offset: int  # physical offset where it begins
    size: int  # bytes of the whole file
    head: str  # the first 64 bytes of the file, in hex
    start: int  # position in the file
    stop: int  # position in the file
    has_entries: bool = False  # the file is of DLedger's log, with a header before each record

    @property
    def reader(self) -> type[RecordReader]:
        """Return the class that reads the records of the file."""
        return EntryReader if self.has_entries else RecordReader


def splits_of(log: CommitLog, root: Path, split_size: int) -> list[Split]:
    """Divide the whole log into splits of `split_size` bytes, in log order."""
    found = []
    for number, file in enumerate(log.queue.files):
        whole = whole_file(log, file, number, root)
        found += [whole._replace(start=start, stop=stop) for start, stop in cuts(file, split_size)]
        file.close()
    return found


def whole_file(log: CommitLog, file: MappedFile, number: int, root: Path) -> Split:
    """Return a split that has all bytes of a file of a log.

    `number` is the file's number in the log. `root` is the folder of the store.
    """
    place = root_text(root.absolute()), root_text(file.path.absolute())
    has_entries = log.reader_of(file) is EntryReader
    return Split(*place, number, file.file_from_offset, file.size, head_of(file), 0, file.size, has_entries)


def head_of(file: MappedFile) -> str:
    """Return the first 64 bytes of a log file in hex.

    If the first record has an IPv4 born host, they include its store time. The text is empty if the file cannot be
    read, and for a file at a URL: all hosts see the same file, and a request for each would take longer than all other
    planning.
    """
    if is_remote(file.path):
        return ""
    try:
        return file.read(0, HEAD_SIZE).hex()
    except OSError:
        return ""


@contextmanager
def opened(split: Split) -> Iterator[MappedFile]:
    """Open the file of a split for the block.

    Raises Unreadable if the file does not exist, or if the driver's host has a different file.
    """
    storage = storage_of(
        root_path(split.root), follow_links=True
    )  # follow_links was already applied when the splits were made
    with MappedFile(storage, root_path(split.path), split.file_from_offset, split.size, kept=False) as file:
        _check_is_the_same(file, split)
        yield file


def _check_is_the_same(file: MappedFile, split: Split) -> None:
    """Raise Unreadable if the file on this host is not the driver's file.

    Their first 64 bytes are compared, unless the driver could not read them, or read only zeros.
    """
    if not split.head.strip("0"):  # the driver could not read it, or it was not written yet
        return
    try:
        head, why = file.read(0, HEAD_SIZE).hex(), "another file than the driver sees"
    except OSError as error:
        head, why = "", str(error.strerror)
    if head != split.head:
        raise Unreadable(
            f"an executor finds there: {why}",
            path=split.path,
            hint="every executor must see the store under the same path",
        )
