"""The operating system, for reading. Nothing else in rmqctl lists, opens, reads or locks a file.

Files are read with `pread`, not mapped: a failing disk or a file cut under us is then an OSError that can be reported,
not a SIGBUS, and the memory in use stays flat.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol


class Kind(Enum):
    """What a directory entry is, links resolved as far as they are followed."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK_OUT = "link out of the store"
    OTHER = "neither file nor directory"
    MISSING = "missing"


class Closeable(Protocol):
    """Something that holds a descriptor, and opens it again when it needs it."""

    def close(self) -> None:
        """Give the descriptor back."""


class Entry(NamedTuple):
    """A directory entry; sizes in bytes, times in ms since 1970."""

    name: str
    path: Path
    kind: Kind
    size: int = 0
    allocated: int = 0
    mtime: int = 0


class Stamp(NamedTuple):
    """What a name itself stands for, a link not followed (it is OTHER): size in bytes, time in ns since 1970, mode as chmod takes it."""

    kind: Kind
    size: int
    mtime_ns: int
    mode: int
    uid: int
    gid: int
    device: int


class DiskSpace(NamedTuple):
    """Bytes of a file system: all, not used, and those of them that a user may still use; `device` is its number."""

    total: int
    free: int
    usable: int
    device: int


OPEN_FILES_MAX = 64
_BLOCK_BYTES = 512
_FLOCK = struct.Struct("hhqqi4x") if sys.platform == "linux" else struct.Struct("qqihh")


class Storage:
    """Read access to the files of one store.

    Symbolic links that lead out of the trusted folders (`root`, and what `trust` adds) are not followed
    unless `follow_links`.
    """

    def __init__(self, root: Path, *, follow_links: bool = False) -> None:
        self.root = root
        self._trusted = [Path(os.path.realpath(root))]
        self._follow_links = follow_links
        self._inside: dict[Path, bool] = {}
        self._opened: dict[int, Closeable] = {}

    def trust(self, folder: Path) -> None:
        """Let links lead into `folder` too: a commit log root that the user named."""
        self._trusted.append(Path(os.path.realpath(folder)))

    def display(self, path: Path) -> str:
        """`path` as findings name it: relative to the store where it lies inside."""
        return str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)

    def entry(self, path: Path) -> Entry:
        """What is at `path`, and whether a link on the way leads out. Raises OSError other than 'no such file'."""
        try:
            if not self._is_inside(path.parent):
                return Entry(path.name, path, Kind.LINK_OUT)
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                if not self._may_follow(path):
                    return Entry(path.name, path, Kind.LINK_OUT)
                found = os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return Entry(path.name, path, Kind.MISSING)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return Entry(path.name, path, Kind.OTHER)
            raise
        return Entry(path.name, path, _kind(found.st_mode), found.st_size, found.st_blocks * _BLOCK_BYTES, found.st_mtime_ns // 1_000_000)

    def listing(self, folder: Path) -> list[Entry]:
        """The entries of a folder by name; an empty list when there is no such folder. Raises OSError."""
        if self.entry(folder).kind is not Kind.DIRECTORY:
            return []
        entries = (self.entry(folder / name) for name in sorted(os.listdir(folder)))
        return [entry for entry in entries if entry.kind is not Kind.MISSING]  # a live broker deletes files

    def stamp(self, path: Path) -> Stamp | None:
        """What is at `path`; None: nothing. Raises OSError other than 'no such file'."""
        try:
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        kind = _kind(found.st_mode)
        mode = stat.S_IMODE(found.st_mode)
        return Stamp(kind, found.st_size, found.st_mtime_ns, mode, found.st_uid, found.st_gid, found.st_dev)

    def disk_space(self, path: Path) -> DiskSpace | None:
        """The room on the disk of `path`; None where nothing is there, or it cannot be asked."""
        try:
            found = os.statvfs(path)
            device = os.stat(path).st_dev
        except OSError:
            return None
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize, found.f_bavail * found.f_frsize, device)

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, sorted. Raises OSError."""
        return sorted(os.listdir(folder))

    def open(self, path: Path) -> int:
        """A descriptor for reading. Raises OSError; never waits, whatever `path` is."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)

    def duplicate(self, descriptor: int) -> int:
        """Another descriptor of the same open file: it stays readable when the file is deleted. Raises OSError."""
        return os.dup(descriptor)

    def close(self, descriptor: int) -> None:
        """Give the descriptor back."""
        os.close(descriptor)

    def read(self, descriptor: int, position: int, size: int) -> bytes:
        """`size` bytes from `position`, fewer only at the end of the file. Raises OSError."""
        data = os.pread(descriptor, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size and (data := os.pread(descriptor, size - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def read_into(self, descriptor: int, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; how many bytes it got, fewer at the file's end or before a bad sector. Raises OSError."""
        got = 0
        try:
            while got < len(buffer) and (count := os.preadv(descriptor, [buffer[got:]], position + got)):
                got += count
        except OSError:
            if not got:
                raise
        return got

    def read_file(self, path: Path, limit: int) -> bytes:
        """The first `limit` bytes of a small file. Raises OSError."""
        descriptor = self.open(path)
        try:
            return self.read(descriptor, 0, limit)
        finally:
            self.close(descriptor)

    def next_data(self, descriptor: int, position: int) -> int | None:
        """The first position >= `position` that is not in a hole of a sparse file; None: only a hole is left."""
        try:
            return os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno in (errno.EINVAL, errno.ENOTSUP):
                return position  # a file system that does not know holes
            raise

    def lock_holder(self, path: Path) -> int | None:
        """PID of the process that holds the fcntl lock on byte 0 (a running broker's); None when nobody does."""
        if self.entry(path).kind is not Kind.FILE:
            return None
        if sys.platform == "linux":
            question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        else:
            question = _FLOCK.pack(0, 1, 0, fcntl.F_WRLCK, os.SEEK_SET)
        descriptor = self.open(path)
        try:
            answer = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, question))
        finally:
            self.close(descriptor)
        kind, pid = (answer[0], answer[4]) if sys.platform == "linux" else (answer[3], answer[2])
        return None if kind == fcntl.F_UNLCK else pid

    def keep_open(self, file: Closeable) -> None:
        """A file was opened and stays so; the one that was opened longest ago is closed when there are too many."""
        self._opened.pop(id(file), None)
        self._opened[id(file)] = file
        if len(self._opened) > OPEN_FILES_MAX:
            self._opened.pop(next(iter(self._opened))).close()

    def _is_inside(self, folder: Path) -> bool:
        """Whether a folder really lies where it may; the store's own folder was named by the user."""
        if self._follow_links or not folder.is_relative_to(self.root):
            return True
        known = self._inside.get(folder)
        if known is None:
            known = self._inside[folder] = self._may_follow(folder)
        return known

    def _may_follow(self, link: Path) -> bool:
        if self._follow_links:
            return True
        target = Path(os.path.realpath(link))
        return any(target.is_relative_to(trusted) for trusted in self._trusted)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.OTHER
