"""The operating system, for writing. What reads never imports this.

A full disk must be an OSError that can be reported: files are written with `pwrite`, or through a mapping whose blocks were
allocated before, since a store into a hole of a full disk is a SIGBUS. (Where blocks are copied when they are written again, as in
ZFS or in Btrfs with snapshots, that is no promise; a broker, which maps holes, has none either.)
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

from rmqctl.logfile.storage import Kind, Stamp, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_MODE, FOLDER_MODE = 0o644, 0o755
LOCK_CONTENT = b"lock"
MADV_POPULATE_WRITE = 23  # Linux 5.14; other systems refuse it
_LIBC = ctypes.CDLL(None, use_errno=True)


class WritableStorage(Storage):
    """Read and write access to the files of one store. All methods raise OSError."""

    def open_for_writing(self, path: Path) -> int:
        """A descriptor for reading and writing; never follows a link in the file's place."""
        return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)

    def create(self, path: Path, size: int) -> int:
        """Make a file of `size` zero bytes, its folders too where they are missing; a descriptor for reading and writing.

        A file appears at its full size, or not at all, where the system can do that: no broker loads one that is shorter. One
        that is there at this size and was never written, left behind by a failure, is taken.
        """
        self.make_folder(path.parent)
        try:
            descriptor = self._create_unnamed(path, size) or self._create_named(path, size)
        except FileExistsError:
            blank = self._open_blank(path, size)
            if blank is None:
                raise
            descriptor = blank
        try:
            with _closed_on_error(descriptor):
                self.sync_folder(path.parent)
        except OSError:
            os.unlink(path)  # it could not be made again
            raise
        return descriptor

    def _open_blank(self, path: Path, size: int) -> int | None:
        descriptor = self.open_for_writing(path)
        if os.fstat(descriptor).st_size == size and self.next_data(descriptor, 0) is None:
            return descriptor
        os.close(descriptor)
        return None

    def _create_named(self, path: Path, size: int) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        try:
            os.ftruncate(descriptor, size)
        except OSError:
            os.close(descriptor)
            os.unlink(path)
            raise
        return descriptor

    def _create_unnamed(self, path: Path, size: int) -> int | None:
        """A file that gets its name when it has its size; None where the system has no such thing. Raises OSError when it fails else."""
        unnamed = getattr(os, "O_TMPFILE", None)
        if unnamed is None:
            return None
        try:
            descriptor = os.open(path.parent, os.O_RDWR | unnamed | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                return None
            raise
        try:
            with _closed_on_error(descriptor):
                os.ftruncate(descriptor, size)
                # only with a folder's descriptor does Python's link follow the link; the path is absolute, so which one is no matter
                self._link(descriptor, path)
        except FileNotFoundError:  # no /proc
            return None
        return descriptor

    def _link(self, descriptor: int, path: Path) -> None:
        try:
            os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
        except OSError:
            entry = self.entry(path)  # it may be there all the same, and could not be made again
            if entry.kind is Kind.FILE and os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                os.unlink(path)
            raise

    def write(self, descriptor: int, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data` at `position`."""
        rest = memoryview(data)
        while rest:
            count = os.pwrite(descriptor, rest, position)
            rest = rest[count:]
            position += count

    def allocate(self, descriptor: int, position: int, size: int) -> None:
        """Have the blocks of [position, position + size) on the disk, so that writing there needs no more room; bytes stay as they are."""
        fallocate = getattr(os, "posix_fallocate", None)
        if fallocate is None:  # macOS
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        fallocate(descriptor, position, size)

    def map(self, descriptor: int, size: int) -> mmap.mmap:
        """The first `size` bytes of a file as memory that can be written where blocks are allocated; `sync` syncs it, too."""
        return mmap.mmap(descriptor, size)

    def populate(self, mapping: mmap.mmap, position: int, size: int) -> None:
        """Have pages of a mapping at hand whose blocks are allocated: a page fault for each costs more than what is written to it."""
        memory = ctypes.c_char.from_buffer(mapping, position)  # by ctypes, other threads run meanwhile; by `mapping.madvise` they would not
        if _LIBC.madvise(ctypes.byref(memory), ctypes.c_size_t(size), MADV_POPULATE_WRITE) and ctypes.get_errno() != errno.EINVAL:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def sync(self, descriptor: int) -> None:
        """Have what was written on the disk."""
        getattr(os, "fdatasync", os.fsync)(descriptor)

    def set_modified(self, descriptor: int, time_ms: int) -> None:
        """Have a file say that it was written last at `time_ms`, ms since 1970."""
        os.utime(descriptor, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def resize(self, descriptor: int, size: int) -> None:
        """Cut a file to `size` bytes, or extend it by a hole."""
        os.ftruncate(descriptor, size)

    def sync_file(self, path: Path) -> None:
        """Have a file on the disk, with its times."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def set_mtime(self, path: Path, mtime_ns: int) -> None:
        """Have a file or folder say that it was changed last at `mtime_ns`, ns since 1970."""
        os.utime(path, ns=(mtime_ns, mtime_ns))

    def check_may_change(self, path: Path) -> None:
        """Raises OSError where this process may not write to a file, or change the names of a folder, or give it its time back."""
        status = os.lstat(path)
        if stat.S_ISDIR(status.st_mode):
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        else:
            os.close(self.open_for_writing(path))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns), follow_symlinks=False)

    def set_owner(self, path: Path, like: Stamp) -> None:
        """Give a file or folder to whom `like` belongs. Only root may: for others it stays as it is."""
        if os.geteuid() == 0:
            os.chown(path, like.uid, like.gid, follow_symlinks=False)

    def set_stamp(self, path: Path, stamp: Stamp) -> None:
        """Owner, mode and time of a copy as of its original."""
        self.set_owner(path, stamp)
        os.chmod(path, stamp.mode)
        self.set_mtime(path, stamp.mtime_ns)

    def make_file(self, path: Path) -> int:
        """A new, empty file, or one that is there made empty; a descriptor for writing. Durable with a sync of it and of its folder."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)

    def add_folder(self, path: Path) -> None:
        """A new folder; durable with the next sync of the one above."""
        os.mkdir(path, FOLDER_MODE)

    def rename(self, path: Path, target: Path) -> bool:
        """Another name within a file system, durable with a sync of both folders; False: the target is in another file system."""
        try:
            os.rename(path, target)
        except OSError as error:
            if error.errno == errno.EXDEV:
                return False
            raise
        return True

    def remove_file(self, path: Path) -> None:
        """Delete a name; durable with the next sync of its folder."""
        os.unlink(path)

    def remove_folder(self, path: Path) -> None:
        """Delete an empty folder; durable with the next sync of the one above."""
        os.rmdir(path)

    def free_bytes(self, folder: Path) -> int:
        """What this process may still write to the disk of a folder."""
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize

    def make_folder(self, folder: Path) -> None:
        """Make a folder and those above it where they are missing, durably."""
        missing = []
        while self.entry(folder).kind is Kind.MISSING:
            missing.append(folder)
            folder = folder.parent
        for made in reversed(missing):
            os.mkdir(made, FOLDER_MODE)
            try:
                self.sync_folder(made.parent)
            except OSError:
                os.rmdir(made)  # the next time it would count as durable
                raise

    def sync_folder(self, folder: Path) -> None:
        """Have the folder's entries on the disk."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        """Delete a file, durably; one that is not there is no error."""
        if self.entry(path).kind is not Kind.MISSING:
            os.unlink(path)
            self.sync_folder(path.parent)

    def replace_file(self, path: Path, data: bytes) -> None:
        """A small file with new content: the old or the new one, whenever a crash comes."""
        self.make_folder(path.parent)
        aside = path.with_name(path.name + ".tmp")
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            self.write(descriptor, 0, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(aside, path)
        self.sync_folder(path.parent)

    def used_percent(self, folder: Path) -> int:
        """How full the disk of a folder is, rounded up (UtilAll.getDiskPartitionSpaceUsedPercent); 0 where there is no such folder yet."""
        if self.entry(folder).kind is Kind.MISSING:
            return 0
        disk = os.statvfs(folder)
        used = disk.f_blocks - disk.f_bfree
        return -(-100 * used // max(used + disk.f_bavail, 1))

    def process_id(self) -> int:
        """The number of this process, as 5.x writes it into `abort`."""
        return os.getpid()

    def lock(self, path: Path) -> int | None:
        """RocketMQ's lock: fcntl on byte 0, length 1, of a file with the content `lock`; the descriptor that holds it.

        None: another process has it. Closing any descriptor of the file drops the lock: nothing else in this process may open it meanwhile.
        A file that is there stays as it is, its time too: nobody reads it.
        """
        is_new = self.entry(path).kind is Kind.MISSING
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            with _closed_on_error(descriptor):
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0, os.SEEK_SET)
                if is_new:
                    self.write(descriptor, 0, LOCK_CONTENT)
        except BlockingIOError:
            return None
        return descriptor


@contextmanager
def _closed_on_error(descriptor: int) -> Iterator[None]:
    """Close a descriptor that is not going to be handed out."""
    try:
        yield
    except OSError:
        os.close(descriptor)
        raise
