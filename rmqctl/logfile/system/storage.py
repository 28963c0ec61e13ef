"""Read access to files by calls of the operating system.

Only Storage and its subclasses list, open, read or lock the files of a store. Files are read with `pread`, not mapped
into memory: if a disk fails or a file is truncated, `pread` reports an error, where a mapping would end the process by
the signal SIGBUS. It also keeps memory use small.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
from contextlib import contextmanager, nullcontext, suppress
from enum import Enum
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rmqctl.errors import may_open
from rmqctl.logfile.access import place
from rmqctl.logfile.access.place import names_below, naming, reached, with_path
from rmqctl.logfile.access.trusted_folders import TrustedFolders
from rmqctl.logfile.system.plain_folders import BLOCK_BYTES, FILE_FLAGS, PlainFile, plain_folders, plain_names
from rmqctl.logfile.system.small_files import SmallFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager


class Kind(Enum):
    """The kind of a directory entry; a followed link has the kind of its target."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK_OUT = "link out of the store"
    OTHER = "FIFO, socket or device"
    MISSING = "missing"


class Closeable(Protocol):
    """An object that closes its file, and opens the file again when necessary."""

    def close(self) -> None:
        """Close the descriptor."""


class Entry(NamedTuple):
    """A directory entry; sizes in bytes, times in ms since 1970."""

    name: str
    path: Path
    kind: Kind
    size: int = 0
    allocated: int = 0
    mtime: int = 0


TIME_NS_MAX = 2**63 - 1  # in the year 2262; some file systems can store later times, but a journal cannot


class Stamp(NamedTuple):
    """The state of a path; a link has the kind OTHER and is not followed."""

    kind: Kind
    size: int  # bytes
    mtime_ns: int  # since 1970, limited to ±TIME_NS_MAX
    mode: int  # for chmod, for example 0o644
    uid: int
    gid: int
    device: int


class DiskSpace(NamedTuple):
    """The space of a file system in bytes: total, free and usable."""

    total: int
    free: int  # with a reserve for root
    usable: int  # without it
    device: int  # number of the file system's device


OPEN_FILES_MAX = 64
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}
_FOLDER, _MISSING = Kind.DIRECTORY, Kind.MISSING  # Python 3.11 needs 0.2 µs to look up a member of an Enum
_FLOCK = struct.Struct("hhqqi4x") if sys.platform == "linux" else struct.Struct("qqihh")


class Storage:
    """Read access to the files of one store.

    Without `follow_links`, symbolic links are followed only into a trusted folder: `root`, and those that `trust` adds.
    `named` lists the folder of the store, and the commit log folders that broker.conf names. Inside a
    `keeping_small_files` block, `small_files` has the contents of small files.
    """

    small_files: SmallFiles | None = None

    def __init__(self, root: Path, *, follow_links: bool = False) -> None:
        self.root = root
        self.follow_links = follow_links
        self._trusted = TrustedFolders(root, follow_links=follow_links)
        self.named = self._trusted.named
        self._last_inside: str | None = None
        self._opened: dict[int, Closeable] = {}

    @property
    def of_disk(self) -> Storage:
        """Return access to what lies on the disk; subclasses may show other files."""
        return self

    def trust(self, folder: Path) -> None:
        """Follow links into `folder`, a commit log folder that broker.conf names."""
        self._trusted.trust(folder)

    def display(self, path: Path) -> str:
        """Return `path` as findings show it: relative to the store, if possible."""
        names = names_below(path, self.root)
        return str(path) if names is None else "/".join(names) or "."

    def entry(self, path: Path) -> Entry:
        """Return the entry at `path`; a link out of the store has the kind LINK_OUT.

        Raises OSError, but not for a missing file.
        """
        if not self._trusted.contain(path.parent):
            return Entry(path.name, path, Kind.LINK_OUT)
        try:
            found = self._status(path)
            if stat.S_ISLNK(found.st_mode):
                if not self._trusted.may_follow(path):
                    return Entry(path.name, path, Kind.LINK_OUT)
                found = self._status(path, follow=True)
        except (FileNotFoundError, NotADirectoryError):
            return Entry(path.name, path, Kind.MISSING)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return Entry(path.name, path, Kind.OTHER)
            raise
        return entry_of(path, found)

    def listing(self, folder: Path) -> list[Entry]:
        """Return the entries of a folder, sorted by name; none if it does not exist.

        Raises OSError.
        """
        if self.entry(folder).kind is not Kind.DIRECTORY:
            return []
        entries = [self.entry(folder / name) for name in self.names(folder)]
        return [entry for entry in entries if entry.kind is not Kind.MISSING]  # a live broker deletes files

    def plain_folders(self, parent: str, names: Iterable[str]) -> Iterator[list[PlainFile] | None]:
        """Yield the files of each of these folders in `parent`, sorted by name.

        For a folder with one file, this is ten times as fast as `listing`, which the caller must use if it gets None:
        the folder has entries that are not regular files, is a link or in a link `parent`, or cannot be listed. Inside
        a `keeping_small_files` block, the only file of a folder is also read if it is small.
        """
        if not self._is_plainly_inside(parent):
            return repeat(None)
        return plain_folders(parent, names, reads=self.small_files is not None and self.small_files.has_room)

    def kinds(self, folder: str) -> list[tuple[str, Kind]]:
        """Return the names in a folder, sorted, with their kinds; none if it is missing.

        For a folder of folders, this is several times as fast as `listing`: it needs neither a status nor a Path of
        each. Raises OSError.
        """
        if self._is_plainly_inside(folder):
            with suppress(OSError):  # a link, no folder, or one that cannot be read, which is an error of `listing`
                found = plain_names(folder)
                kinds = [
                    (name, _FOLDER if is_folder else self.entry(Path(folder, name)).kind) for name, is_folder in found
                ]
                return [pair for pair in kinds if pair[1] is not _MISSING]
        return [(entry.name, entry.kind) for entry in self.listing(Path(folder))]

    def _is_plainly_inside(self, folder: str) -> bool:
        """Return whether a folder can be opened by its path alone, if it is no link.

        Not in a subclass, and not if a folder is held open (`place.hold`). If the folder above is that of the last
        call, no Path is needed.
        """
        if type(self) is not Storage or place.holds_any():
            return False
        above = os.path.dirname(folder)
        if above != self._last_inside and not self._trusted.contain(Path(above)):
            return False
        self._last_inside = above
        return True

    def stamp(self, path: Path) -> Stamp | None:
        """Return the state of `path`, or None if nothing is there.

        Raises OSError, but not for a missing file.
        """
        try:
            found = self._status(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        kind = _kind(found.st_mode)
        mode = stat.S_IMODE(found.st_mode)
        mtime_ns = within_time(found.st_mtime_ns)
        return Stamp(kind, found.st_size, mtime_ns, mode, found.st_uid, found.st_gid, found.st_dev)

    def details(self, of: Path | int, *, follow: bool = False) -> dict[str, Any]:
        """Return what the system says of a path or of an open file, for a line of JSON.

        With `follow`, of the target of a link. Times are in ns since 1970, sizes in bytes. Raises OSError.
        """
        found = os.fstat(of) if isinstance(of, int) else self._status(of, follow=follow)
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "special")
        details: dict[str, Any] = {"kind": kind, "size": found.st_size, "mtime": found.st_mtime_ns}
        details |= {"ctime": found.st_ctime_ns, "mode": stat.S_IMODE(found.st_mode), "links": found.st_nlink}
        details |= {"uid": found.st_uid, "gid": found.st_gid, "device": found.st_dev, "inode": found.st_ino}
        if kind == "link" and not isinstance(of, int):
            name, held = reached(of)
            details["target"] = os.readlink(name, dir_fd=held)
        return details

    def present(self, path: Path) -> Stamp:
        """Return the state of `path`. Raises OSError, also for a missing file."""
        found = self.stamp(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return found

    def disk_space(self, path: Path) -> DiskSpace | None:
        """Return the free space on the disk of `path`, or None.

        None if nothing exists at `path`, or the system does not know it.
        """
        try:
            found = self._disk(path)
            device = self._status(path, follow=True).st_dev
        except OSError:
            return None
        return DiskSpace(
            found.f_blocks * found.f_frsize, found.f_bfree * found.f_frsize, found.f_bavail * found.f_frsize, device
        )

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted. Raises OSError."""
        name, held = reached(folder)
        if held is None:
            return sorted(os.listdir(folder))
        with naming(folder):
            return place.names_in(name, held)

    def open(self, path: Path | str) -> int:
        """Open a regular file for reading; a text takes less time than a Path.

        Raises OSError if `path` is not a regular file, or if a link leads out of the store. It never blocks, even at a
        pipe.
        """
        name, held = reached(path)
        try:
            descriptor = os.open(name, FILE_FLAGS, dir_fd=held)
        except OSError as error:
            with naming(Path(path)) if held is not None else nullcontext():
                if error.errno != errno.ELOOP:
                    raise
                if not self._trusted.may_follow(Path(path)):
                    raise OSError(errno.ELOOP, "a symbolic link out of the store", str(path)) from error
                descriptor = os.open(self._trusted.real_path(Path(path)), FILE_FLAGS)
        return regular(descriptor, path)

    def duplicate(self, descriptor: int) -> int:
        """Return a second descriptor of an open file.

        A deleted file stays readable through an open descriptor. Raises OSError.
        """
        try:
            return os.dup(descriptor)
        except OSError as error:
            raise with_path(error, descriptor) from error

    def close(self, descriptor: int) -> None:
        """Close the descriptor."""
        os.close(descriptor)

    def read(self, descriptor: int, position: int, size: int) -> bytes:
        """Return `size` bytes at `position`; fewer only at the end of the file.

        Raises OSError.
        """
        data = b""
        try:
            while len(data) < size and (more := os.pread(descriptor, size - len(data), position + len(data))):
                data += more  # nearly always at once, and then without a copy
        except OSError as error:
            raise with_path(error, descriptor) from error
        return data

    def read_into(self, descriptor: int, position: int, buffer: memoryview) -> int:
        """Fill `buffer` with the bytes from `position` on, and return their number.

        They are fewer at the file's end or before a bad sector. Raises OSError.
        """
        got = 0
        try:
            while got < len(buffer) and (count := os.preadv(descriptor, [buffer[got:]], position + got)):
                got += count
        except OSError as error:
            if not got:
                raise with_path(error, descriptor) from error
        return got

    def read_start(self, path: Path, size: int) -> bytes:
        """Return the first `size` bytes of a regular file; all bytes of a shorter file.

        Raises OSError.
        """
        descriptor = self.open(path)
        try:
            return self.read(descriptor, 0, size)
        finally:
            self.close(descriptor)

    def read_file(self, path: Path, limit: int) -> bytes:
        """Return all bytes of a small regular file.

        Raises OSError, for example if the file has more than `limit` bytes.
        """
        data = self.read_start(path, limit + 1)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"more than {limit} bytes, too large for what it is", str(path))
        return data

    def next_data(self, descriptor: int, position: int) -> int | None:
        """Return the first position >= `position` that is not in a hole of the file.

        None if no data follows.
        """
        try:
            return os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            if error.errno in (errno.EINVAL, errno.ENOTSUP):
                return position  # the file system does not report holes
            raise with_path(error, descriptor) from error

    def next_hole(self, descriptor: int, position: int) -> int:
        """Return the first position >= `position` in a hole, or the end of the file.

        `position` is one that `next_data` returned. Raises OSError.
        """
        try:
            return os.lseek(descriptor, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOTSUP, errno.ENXIO):
                return os.fstat(descriptor).st_size
            raise with_path(error, descriptor) from error

    def lock_holder(self, path: Path) -> int | None:
        """Return the PID of the process with the fcntl lock on byte 0, or None.

        A running broker has this lock on its file `lock`.
        """
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

    def share_lock(self, path: Path) -> int | None:
        """Get a shared fcntl lock on byte 0 of the file `lock`, which is not changed.

        While this process has it, no broker can start on the store, and no other `rmqctl` can change the store. It is
        lost if this process closes any descriptor of the locked file. Returns the descriptor that has the lock, or None
        if the file does not exist. Raises BlockingIOError if another process changes the store.
        """
        if self.entry(path).kind is not Kind.FILE:
            return None
        descriptor = self.open(path)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
        except OSError:
            self.close(descriptor)
            raise
        return descriptor

    def keep_open(self, file: Closeable) -> None:
        """Register an open file; with too many, close the one registered first.

        Too many are more than OPEN_FILES_MAX, or than an eighth of what the process may open: a store, the staged files
        and the index each keep files open.
        """
        self._opened.pop(id(file), None)
        self._opened[id(file)] = file
        if len(self._opened) > min(OPEN_FILES_MAX, may_open() // 8):
            self._opened.pop(next(iter(self._opened))).close()

    def keeping_small_files(self) -> AbstractContextManager[None]:
        """Cache the contents of small files until the end of the `with` block.

        Changes of the store during the block may stay unnoticed.
        """
        return self._with_small_files(self.small_files or SmallFiles())

    def reading_small_files_again(self) -> AbstractContextManager[None]:
        """Read small files from the disk, not the cache, until the `with` block ends."""
        return self._with_small_files(None)

    @contextmanager
    def _with_small_files(self, small_files: SmallFiles | None) -> Iterator[None]:
        before, self.small_files = self.small_files, small_files
        try:
            yield
        finally:
            self.small_files = before

    def _status(self, path: Path, *, follow: bool = False) -> os.stat_result:
        name, held = reached(path)
        return os.stat(name, dir_fd=held, follow_symlinks=follow)

    def _disk(self, path: Path) -> os.statvfs_result:
        name, held = reached(path)
        if held is None:
            return os.statvfs(path)
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=held)
        try:
            return os.fstatvfs(descriptor)
        finally:
            os.close(descriptor)


def regular(descriptor: int, path: Path | str) -> int:
    """Return `descriptor` if the open file at `path` is a regular file.

    Otherwise the descriptor is closed and OSError raised.
    """
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return descriptor


def entry_of(path: Path, found: os.stat_result) -> Entry:
    """Return the entry at `path`, whose `stat` result is `found`."""
    return Entry(
        path.name,
        path,
        _kind(found.st_mode),
        found.st_size,
        found.st_blocks * BLOCK_BYTES,
        found.st_mtime_ns // 1_000_000,
    )


def within_time(time_ns: int) -> int:
    """Return `time_ns`, limited to the times that a journal can contain."""
    return max(min(time_ns, TIME_NS_MAX), -TIME_NS_MAX)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.OTHER


def tree_of(storage: Storage, path: Path) -> Iterator[tuple[Path, Stamp]]:
    """Yield `path` and all paths below it; nothing if nothing is there.

    The contents of a folder come before the folder. Raises OSError.
    """
    waiting: list[tuple[Path, Stamp | None]] = [
        (path, None)
    ]  # no recursion: folders may be nested deeper than Python's recursion limit
    while waiting:
        found, listed = waiting.pop()
        stamp = listed or storage.stamp(found)
        if stamp is None:
            continue
        if listed is None and stamp.kind is Kind.DIRECTORY:
            waiting.append((found, stamp))
            waiting += [(found / name, None) for name in reversed(storage.names(found))]
        else:
            yield found, stamp
