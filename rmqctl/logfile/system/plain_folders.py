"""Fast lists of folders that have only folders, or only regular files.

A store may have 200,000 consume queues, almost all with a folder of their own and one small file. So these functions
call the operating system directly, and know folders by descriptor and name.
"""

from __future__ import annotations

import errno
import os
import stat
from itertools import repeat
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.system.small_files import SMALL_FILE
from rmqctl.logfile.system.zeros import used_length

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FILE_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW
BLOCK_BYTES = 512  # the unit of st_blocks
FOLDER_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW


class PlainFile(NamedTuple):
    """A regular file in a folder; its size and its allocated space are in bytes."""

    name: str
    size: int
    allocated: int
    content: bytes | None = None  # without the zeros at its end; None: not read, or not small


def plain_folders(parent: str, names: Iterable[str], *, reads: bool) -> Iterator[list[PlainFile] | None]:
    """Yield the files of each of these folders in `parent`, sorted by name.

    None stands for a folder with entries that are not regular files, or that cannot be examined. With `reads`, the only
    file of a folder is also read if it is small; if that fails, None. Links are not followed.
    """
    try:
        above = os.open(parent, FOLDER_FLAGS)
    except OSError:
        yield from repeat(None)
        return
    files_in = _read_file if reads else _examine_files
    try:
        for name in names:
            try:
                folder = os.open(name, FOLDER_FLAGS, dir_fd=above)
                try:
                    found = files_in(folder)
                finally:
                    os.close(folder)
            except OSError:
                found = None
            yield found and sorted(found, key=itemgetter(0))
    finally:
        os.close(above)


def plain_names(folder: str) -> list[tuple[str, bool]]:
    """Return the names in a folder, sorted, each with whether it is a folder.

    Raises OSError, also if the last name in `folder` is a link, and if the names can be listed, but not used.
    """
    descriptor = os.open(folder, FOLDER_FLAGS)
    try:
        with os.scandir(descriptor) as entries:
            found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        for name, _ in found[:1]:
            os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    finally:
        os.close(descriptor)
    return sorted(found)


def _examine_files(folder: int) -> list[PlainFile] | None:
    found = []
    for name in os.listdir(folder):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return None
        found.append(PlainFile(name, status.st_size, status.st_blocks * BLOCK_BYTES))
    return found


def _read_file(folder: int) -> list[PlainFile] | None:
    """Examine the files of a folder, and read an only file.

    A folder with more files may have more bytes than the memory. Only regular files are opened, because a program that
    writes to a pipe would lose what it writes.
    """
    with os.scandir(folder) as entries:
        names = [entry.name if entry.is_file(follow_symlinks=False) else "" for entry in entries]
    if len(names) != 1:
        return _examine_files(folder)
    if not names[0]:
        return None
    descriptor = os.open(names[0], FILE_FLAGS, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return None
        content = _small_content(descriptor, status.st_size)
    finally:
        os.close(descriptor)
    return [PlainFile(names[0], status.st_size, status.st_blocks * BLOCK_BYTES, content)]


def _small_content(descriptor: int, size: int) -> bytes | None:
    """Return None if the file is not small, or the read is incomplete."""
    if size > SMALL_FILE and _may_have_data(descriptor, SMALL_FILE):
        return None
    start = min(size, SMALL_FILE)
    data = os.pread(descriptor, start, 0)
    return data[: used_length(data)] if len(data) == start else None


def _may_have_data(descriptor: int, position: int) -> bool:
    """Return False if a file is known to have only a hole from `position` on."""
    try:
        os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        return error.errno != errno.ENXIO
    return True
