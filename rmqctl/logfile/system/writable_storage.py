"""Write access to files by calls of the operating system.

Read-only code does not import this module.

If the disk is full, rmqctl must get an OSError, which it can report; a write to a hole of a mapped file would end the
process by the signal SIGBUS. So all writes use `pwrite`, or mappings of allocated blocks. Where file systems copy
overwritten blocks (ZFS, or Btrfs with snapshots), a write to allocated blocks can still fail. A broker writes to holes
of files through mappings, and does not allocate blocks first.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.logfile.access import place
from rmqctl.logfile.system.new_file import closed_on_error, create_named, create_unnamed, give_to_owner
from rmqctl.logfile.system.storage import Entry, Kind, Stamp, Storage, entry_of, regular, within_time

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

LOCK_CONTENT = b"lock"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk or quota
UNFINISHED_SUFFIX = ".tmp"  # suffix of a new file that is renamed when it is complete
WRITE_SIZE_MAX = 1024 * 1024  # bytes of one `pwrite`; for larger writes, Linux can need five times as long
RESERVED = 4  # descriptors that a removal of files needs
MADV_POPULATE_WRITE = 23  # since Linux 5.14; other systems refuse this advice
_LIBC = ctypes.CDLL(None, use_errno=True)


class WritableStorage(Storage):
    """Read and write access to the files of one store.

    All methods raise OSError. Without `follow_links`, no link below `beneath` or below a folder in `named` is followed;
    each access checks this again, because links can appear while rmqctl runs. For root, a new file belongs to the owner
    of its folder.
    """

    def __init__(self, root: Path, *, follow_links: bool = False, beneath: Path | None = None) -> None:
        super().__init__(root, follow_links=follow_links)
        self._beneath = beneath
        self._reserved: list[int] = []

    @classmethod
    def like(cls, storage: Storage) -> WritableStorage:
        """Return a WritableStorage with the folders and the link rules of `storage`."""
        found = cls(storage.root, follow_links=storage.follow_links)
        for folder in storage.named[1:]:
            found.trust(folder)
        return found

    def reserve(self) -> None:
        """Open descriptors that taking back a change needs.

        The limit of open files may be what made the change fail.
        """
        while len(self._reserved) < RESERVED:
            self._reserved.append(os.open(os.devnull, os.O_RDONLY))

    def release(self) -> None:
        """Close the descriptors of `reserve`."""
        while self._reserved:
            os.close(self._reserved.pop())

    def entry(self, path: Path) -> Entry:
        """Return the entry at `path`, without following a link."""
        if self.follow_links or self._is_named(path):
            return super().entry(path)
        try:
            found = place.status(path, self._roots)
        except (FileNotFoundError, NotADirectoryError):
            return Entry(path.name, path, Kind.MISSING)
        except OSError as error:
            if error.errno == errno.ELOOP:
                return Entry(path.name, path, Kind.LINK_OUT)
            raise
        return Entry(path.name, path, Kind.LINK_OUT) if stat.S_ISLNK(found.st_mode) else entry_of(path, found)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder, sorted."""
        return super().names(folder) if self.follow_links else place.names(folder, self._roots)

    def open(self, path: Path | str) -> int:
        """Open a regular file for reading, without waiting."""
        if self.follow_links:
            return super().open(path)
        return regular(place.open_for_reading(Path(path), self._roots), path)

    def open_for_writing(self, path: Path) -> int:
        """Return a descriptor for reading and writing.

        A link is not followed. The file must be a regular file, for root with this name only.
        """
        with self._in(path) as (name, folder):
            return _own_file(os.open(name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder), path)

    def create(self, path: Path, size: int) -> int:
        """Create a file of `size` zero bytes, and the missing folders above it.

        Returns a descriptor for reading and writing. No broker loads a file that is too short: with O_TMPFILE, if the
        system has it, the file gets its name when it has its full size. An existing file is used if it has `size` bytes
        and was never written.
        """
        self.make_folder(path.parent)
        try:
            with self._in(path) as (name, folder):
                descriptor = create_unnamed(name, folder, size) or create_named(name, folder, size)
        except FileExistsError:
            blank = self._open_blank(path, size)
            if blank is None:
                raise
            descriptor = blank
        try:
            with closed_on_error(descriptor):
                self.sync_folder(path.parent)
        except OSError:
            self.remove_file(path)  # otherwise, a later attempt could not create the file
            raise
        return descriptor

    def _open_blank(self, path: Path, size: int) -> int | None:
        descriptor = self.open_for_writing(path)
        if os.fstat(descriptor).st_size == size and self.next_data(descriptor, 0) is None:
            return descriptor
        os.close(descriptor)
        return None

    def write(self, descriptor: int, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`."""
        rest = memoryview(data)
        try:
            while rest:
                count = os.pwrite(descriptor, rest[:WRITE_SIZE_MAX], position)
                rest = rest[count:]
                position += count
        except OSError as error:
            raise place.with_path(error, descriptor) from error

    def allocate(self, descriptor: int, position: int, size: int) -> None:
        """Allocate the blocks of [position, position + size) on disk.

        Later writes there need no more room on the disk. The content does not change.
        """
        fallocate = getattr(os, "posix_fallocate", None)
        if fallocate is None:  # macOS
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        try:
            fallocate(descriptor, position, size)
        except OSError as error:
            raise place.with_path(error, descriptor) from error

    def map(self, descriptor: int, size: int) -> mmap.mmap:
        """Map the first `size` bytes of a file into memory.

        Write only to ranges whose disk blocks are allocated; `sync` flushes them to disk.
        """
        try:
            return mmap.mmap(descriptor, size)
        except OSError as error:
            raise place.with_path(error, descriptor) from error

    def populate(self, descriptor: int, mapping: mmap.mmap, position: int, size: int) -> None:
        """Prepare a range of a mapping, allocated on disk, for writing.

        Otherwise the first write to each page causes a slow page fault.
        """
        # ctypes lets other threads run during the call, `mapping.madvise` does not
        memory = ctypes.c_char.from_buffer(mapping, position)
        failed = _LIBC.madvise(ctypes.byref(memory), ctypes.c_size_t(size), MADV_POPULATE_WRITE)
        if failed and ctypes.get_errno() != errno.EINVAL:
            raise place.with_path(OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno())), descriptor)

    def sync(self, descriptor: int) -> None:
        """Flush the written bytes to disk."""
        try:
            getattr(os, "fdatasync", os.fsync)(descriptor)
        except OSError as error:
            raise place.with_path(error, descriptor) from error

    def sync_file_system(self, descriptor: int) -> None:
        """Flush all files of the file system of an open file to disk.

        For many small files, it is a hundred times as fast as a sync of each.
        """
        if not hasattr(_LIBC, "syncfs"):  # macOS
            os.sync()
        elif _LIBC.syncfs(descriptor):
            number = ctypes.get_errno()
            raise place.with_path(OSError(number, os.strerror(number)), descriptor)

    def set_modified(self, descriptor: int, time_ms: int) -> None:
        """Set a file's time of modification to `time_ms`, in ms since 1970.

        It is limited to ±TIME_NS_MAX.
        """
        time_ns = within_time(time_ms * 1_000_000)
        try:
            os.utime(descriptor, ns=(time_ns, time_ns))
        except OSError as error:
            raise place.with_path(error, descriptor) from error

    def resize(self, descriptor: int, size: int) -> None:
        """Cut a file to `size` bytes, or extend it by a hole."""
        try:
            os.ftruncate(descriptor, size)
        except OSError as error:
            raise place.with_path(error, descriptor) from error

    def sync_file(self, path: Path) -> None:
        """Flush the content and the times of a file to disk."""
        with self._in(path) as (name, folder):
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=folder)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def set_mtime(self, path: Path, mtime_ns: int) -> None:
        """Set the modification time of a file or folder to `mtime_ns`, in ns since 1970."""
        with self._in(path) as (name, folder):
            os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=self.follow_links)

    def check_may_change(self, path: Path) -> None:
        """Raise OSError if this process may not change a file or folder.

        It needs the right to write to a file, or to add and remove names in a folder, and to set the modification time.
        """
        with self._in(path) as (name, folder):
            status = os.stat(name, dir_fd=folder, follow_symlinks=self.follow_links)
            if stat.S_ISDIR(status.st_mode):
                if not os.access(name, os.W_OK | os.X_OK, dir_fd=folder):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            else:
                os.close(self.open_for_writing(path))
            os.utime(
                name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=folder, follow_symlinks=self.follow_links
            )

    def set_owner(self, path: Path, like: Stamp) -> None:
        """Give a file or folder the owner and the group of `like`, if run as root."""
        if os.geteuid() == 0:
            with self._opened_itself(path) as descriptor:
                os.fchown(descriptor, like.uid, like.gid)

    def set_mode(self, path: Path, mode: int) -> None:
        """Set the mode of a file or folder that belongs to this process's user.

        `mode` is for chmod, for example 0o644.
        """
        with self._opened_itself(path) as descriptor:
            os.fchmod(descriptor, mode)

    @contextmanager
    def _opened_itself(self, path: Path) -> Iterator[int]:
        """Open a file or folder that has no other name.

        What is then changed is what was checked.
        """
        with self._in(path) as (name, folder):
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
            try:
                _check_single_name(os.fstat(descriptor), path)
                yield descriptor
            finally:
                os.close(descriptor)

    def set_stamp(self, path: Path, stamp: Stamp) -> None:
        """Give a copy the owner, mode and time of the original."""
        self.set_owner(path, stamp)
        self.set_mode(path, stamp.mode)
        self.set_mtime(path, stamp.mtime_ns)

    def make_file(self, path: Path) -> int:
        """Create an empty file, replacing any existing one, and return a descriptor.

        It is durable after a sync of the file and of its folder.
        """
        with self._in(path) as (name, folder):
            return self._make_file(name, folder)

    def _make_file(self, name: str, folder: int) -> int:
        """Create a file; an existing one, which may have a hard link, is deleted first."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        mode = place.mode_of_new_folder(folder) & place.FILE_MODE
        try:
            descriptor = os.open(name, flags, mode, dir_fd=folder)
        except FileExistsError:
            os.unlink(name, dir_fd=folder)
            descriptor = os.open(name, flags, mode, dir_fd=folder)
        with closed_on_error(descriptor):
            give_to_owner(descriptor, folder)
        return descriptor

    def add_folder(self, path: Path) -> None:
        """Make a folder, durable after a sync of its parent folder."""
        with self._named(path) as (name, folder):
            self._add_folder(name, folder, place.FOLDER_MODE)

    def _add_folder(self, name: str, folder: int, mode: int) -> None:
        os.mkdir(name, place.mode_of_new_folder(folder) & mode, dir_fd=folder)
        owner = place.owner_of_new(folder)
        if owner is not None:
            os.chown(name, *owner, dir_fd=folder, follow_symlinks=False)

    def rename(self, path: Path, target: Path) -> bool:
        """Rename a file or folder; return False if the target is in another file system.

        It is durable after a sync of the parent folders of both paths.
        """
        with self._in(path) as (name, folder), self._in(target) as (new, into):
            try:
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=into)
            except OSError as error:
                if error.errno == errno.EXDEV:
                    return False
                raise
        return True

    def remove_file(self, path: Path) -> None:
        """Delete a file, durable after a sync of its folder."""
        with self._in(path) as (name, folder):
            os.unlink(name, dir_fd=folder)

    def remove_folder(self, path: Path) -> None:
        """Delete an empty folder, durable after a sync of its parent folder."""
        with self._named(path) as (name, folder):
            os.rmdir(name, dir_fd=folder)

    def free_bytes(self, folder: Path) -> int:
        """Return how many more bytes fit on the disk of a folder."""
        disk = self.disk_space(folder)
        if disk is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        return disk.usable

    def make_folder(self, folder: Path, mode: int = place.FOLDER_MODE) -> None:
        """Make a folder and its missing parent folders with `mode`, durably."""
        missing = []
        while self.entry(folder).kind is Kind.MISSING:
            missing.append(folder)
            folder = folder.parent
        for made in reversed(missing):
            with self._named(made) as (name, above):
                self._add_folder(name, above, mode)
            try:
                self.sync_folder(made.parent)
            except OSError:
                self.remove_folder(made)  # otherwise, a later call would treat the folder as durable
                raise

    def sync_folder(self, folder: Path) -> None:
        """Flush the entries of a folder to disk."""
        with self._in(folder) as (name, above):
            descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | self._no_link, dir_fd=above)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def unlink(self, path: Path) -> None:
        """Delete a file durably, if it exists."""
        if self.entry(path).kind is not Kind.MISSING:
            self.remove_file(path)
            self.sync_folder(path.parent)

    def replace_file(self, path: Path, data: bytes) -> None:
        """Replace the content of a small file.

        After a crash, it has either the old or the new content. Its owner and mode stay.
        """
        self.make_folder(path.parent)
        old = self.stamp(path)
        with self._in(path) as (name, folder):
            aside = f"{name}{UNFINISHED_SUFFIX}"
            descriptor = self._make_file(aside, folder)
            try:
                if old is not None and old.kind is Kind.FILE and old.mode != place.mode_of(descriptor):
                    os.fchmod(descriptor, old.mode)
                self.write(descriptor, 0, data)
                os.fsync(descriptor)
            except OSError as error:  # an OSError of a call with a descriptor has no path
                raise OSError(error.errno, error.strerror, str(path)) from error
            finally:
                os.close(descriptor)
            os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
        self.sync_folder(path.parent)

    def used_percent(self, folder: Path) -> int:
        """Return how full the disk of a folder is, in percent, rounded up.

        It is 0 if the folder does not exist yet (UtilAll.getDiskPartitionSpaceUsedPercent).
        """
        if self.entry(folder).kind is Kind.MISSING:
            return 0
        disk = self._disk(folder)
        used = disk.f_blocks - disk.f_bfree
        return -(-100 * used // max(used + disk.f_bavail, 1))

    def process_id(self) -> int:
        """Return the PID of this process; 5.x writes the PID into `abort`."""
        return os.getpid()

    def lock(self, path: Path) -> int | None:
        """Lock the store with RocketMQ's lock; None if another process has it.

        It is an fcntl lock on byte 0, length 1, of a file with the content `lock`; an existing file keeps its content
        and time. Returns the descriptor that has the lock. The lock is lost if this process closes any descriptor of
        the file, so do not open the file again before the lock is released.
        """
        is_new = self.entry(path).kind is Kind.MISSING
        with self._in(path) as (name, folder):
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            mode = place.mode_of_new_folder(folder) & place.FILE_MODE
            descriptor = _own_file(os.open(name, flags, mode, dir_fd=folder), path)
            with closed_on_error(descriptor):
                if is_new:
                    give_to_owner(descriptor, folder)
        try:
            with closed_on_error(descriptor):
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
                if is_new:
                    self.write(descriptor, 0, LOCK_CONTENT)
        except BlockingIOError:
            return None
        return descriptor

    def _status(self, path: Path, *, follow: bool = False) -> os.stat_result:
        if self._is_named(path):
            return super()._status(path, follow=True)
        return super()._status(path, follow=follow) if self.follow_links else place.status(path, self._roots)

    def _is_named(self, path: Path) -> bool:
        """Return whether `path` is in `named`; with `beneath`, never."""
        return path in self.named and self._beneath is None

    @property
    def _roots(self) -> list[Path]:
        """Return the folders below which no link is followed."""
        return [] if self.follow_links else [self._beneath, *self.named] if self._beneath is not None else self.named

    def _check_lies_beneath(self, path: Path) -> None:
        if self._beneath is not None and all(
            place.names_below(path, root) is None for root in (self._beneath, *self.named)
        ):
            raise OSError(errno.EINVAL, "this does not lie in the store", str(path))

    @property
    def _no_link(self) -> int:
        return 0 if self.follow_links else os.O_NOFOLLOW

    def _in(self, path: Path) -> AbstractContextManager[tuple[str, int]]:
        """Return the last name of `path`, and a descriptor of its parent folder.

        If `path` is one of `_roots`, the name may be `.`, and the descriptor that of `path`.
        """
        self._check_lies_beneath(path)
        return place.strictly(path, self._roots)

    def _named(self, path: Path) -> AbstractContextManager[tuple[str, int]]:
        """Return the name of `path`, and always a descriptor of the parent folder.

        For a folder in `named`, `_in` may return `.` and a descriptor of the folder itself.
        """
        self._check_lies_beneath(path)
        return place.strictly(path, [root for root in self._roots if root != path])


def _own_file(descriptor: int, path: Path) -> int:
    """Close the descriptor and raise OSError if rmqctl may not change it in place."""
    regular(descriptor, path)
    with closed_on_error(descriptor):
        _check_single_name(os.fstat(descriptor), path)
    return descriptor


def _check_single_name(found: os.stat_result, path: Path) -> None:
    """Raise PermissionError if root would change a file with several names.

    Whoever may add a name to a folder of the store could give root's files a second name there.
    """
    if stat.S_ISREG(found.st_mode) and found.st_nlink > 1 and os.geteuid() == 0:
        what = "it has several names (hard links), and root changes no file that somebody else may have linked there"
        raise PermissionError(errno.EPERM, what, str(path))
