"""Divide a log into splits, and open the file of a split in a task.

Spark's planner uses this module in separate processes, so the module works without numba.
"""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.errors import Unreadable
from rmqctl.logfile.mapped_file import MappedFile
from rmqctl.logfile.system.remote_storage import is_remote, root_path, root_text, storage_of
from rmqctl.store.read.file_scan import cuts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmqctl.store.read.commit_log import CommitLog

HEAD_SIZE = 64  # bytes
MIB = 1024 * 1024
SPLIT_MIB, SPLIT_MIB_MAX = 128, 4096  # that one task reads by default, and at most: each task needs 50 ms more


class Split(NamedTuple):
    """The bytes [start, stop) of one file of a log.

    `start` and `stop` are positions in the file. `root` is the folder of the store. `path` is the path of the file.
    `file` is the number of the file in the log, counted from 0. In a split of a stream, `file` is always 0, because a
    stream does not sort its splits. In a split without bytes, `file` is -1 (`sequence_split`). `file_from_offset` is
    the physical offset where the file begins, and `size` is the length of the file in bytes. `head` is the first 64
    bytes of the file in hex.
    """

    root: str
    path: str
    file: int
    file_from_offset: int
    size: int
    head: str
    start: int
    stop: int


def splits_of(log: CommitLog, root: Path, split_size: int) -> list[Split]:
    """Divide the whole log into splits of `split_size` bytes, in log order."""
    found = []
    for number, file in enumerate(log.queue.files):
        whole = whole_file(file, number, root)
        found += [whole._replace(start=start, stop=stop) for start, stop in cuts(file, split_size)]
        file.close()
    return found


def whole_file(file: MappedFile, number: int, root: Path) -> Split:
    """Return a split that has all bytes of a log file.

    `number` is the number of the file in the log. `root` is the folder of the store.
    """
    place = root_text(root.absolute()), root_text(file.path.absolute())
    return Split(*place, number, file.file_from_offset, file.size, head_of(file), 0, file.size)


def head_of(file: MappedFile) -> str:
    """Return the first 64 bytes of a log file in hex.

    If the first record has an IPv4 born host, the 64 bytes include the store time of the record. The result is empty if
    the file cannot be read. The result is also empty for a file at a URL: all hosts see the same file, and a request
    for each file would take longer than all other planning.
    """
    if is_remote(file.path):
        return ""
    try:
        return file.read(0, HEAD_SIZE).hex()
    except OSError:
        return ""


@contextmanager
def opened(split: Split) -> Iterator[MappedFile]:
    """Open the file of a split, and close the file after the block.

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

    The first 64 bytes of the file are compared. The comparison is skipped if the driver could not read the 64 bytes, or
    if all 64 bytes were zero.
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
