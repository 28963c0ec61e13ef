"""An operating system that fails: at a chosen call, in a chosen way, under whatever writes through WritableStorage.

It stands in for the modules `os`, `fcntl` and `mmap` of writable_storage.py and new_file.py, so every call that can
change something is counted without being named, also those inside one storage method (a file that has its size and not
its name yet), whoever made the storage.

for system in every_fault(tmp_path, Fault.NO_SPACE): # call 1 fails, then call 2, ..., until one is enough
prepare(system.root) # a folder of its own; what is there counts as being on the disk with system:
operation(system.root) check(system.root) # and of system.after_power_failure(...)

Nothing is really brought to the disk: a sync only notes what would be there. Metadata is taken to reach the disk in
order, as with ext4, XFS and Btrfs: a name that is durable is that of a file of its full size, and a rename is there in
both folders or in none; data is there only after a sync of its file. What is deleted is moved to a graveyard beside
`root`, so that no other file gets its inode's number.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import shutil
import signal
import stat
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from enum import Enum
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

from rmqctl.logfile.system import new_file, writable_storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random
    from types import ModuleType, TracebackType

SECTOR_SIZE = 512
CHANGES_NOTHING = {"close", "geteuid", "getpid"}
SYNCS = {"fsync", "fdatasync"}
UNNAMED = getattr(os, "O_TMPFILE", os.O_CREAT)  # several bits, one of them O_DIRECTORY's


class Fault(Enum):
    """What happens at the chosen call."""

    NO_SPACE = "ENOSPC, once"
    IO_ERROR = "EIO, once"
    IO_ERROR_AFTER = "done, and EIO all the same"
    SHORT_WRITE = "half of the data is written, without an error"
    TORN_WRITE = "half of the data is written, then ENOSPC, once"
    FULL_DISK = "half of the data is written, then ENOSPC for all that needs room, from here on"
    DEAD_DISK = "EIO from here on"
    CRASH_BEFORE = "the process ends before it"
    CRASH_AFTER = "the process ends after it"
    CRASH_WITHIN = "the process ends when half of the data is written"


CRASHES = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.CRASH_WITHIN)
ERRORS = tuple(fault for fault in Fault if fault not in CRASHES)
_OF_WRITES = (Fault.SHORT_WRITE, Fault.TORN_WRITE, Fault.CRASH_WITHIN)
_FROM_HERE = (Fault.FULL_DISK, Fault.DEAD_DISK)


class Crashed(BaseException):
    """The process is gone: nothing may catch this, and no call is carried out any more."""


class Name(NamedTuple):
    """A folder's entry as it is on the disk; `size` in bytes."""

    inode: int
    is_folder: bool
    size: int


class Renamed(NamedTuple):
    """A rename that may not be on the disk yet; folders by their inode."""

    source: int
    old: str
    target: int
    new: str


class FaultySystem:
    """Lets call number `at` fail (counted from 1, of those that `fault` can strike); 0: none, it only counts and notes.

    A context manager, one at a time. `happened` says whether there was a call of that number, `counts` how many of each
    name. `before_sync` hears of each sync (its name) before it is done, without a lock; it may wait, or raise OSError.
    """

    _graves = count()  # of all systems: those of one root have one graveyard

    def __init__(self, root: Path, fault: Fault = Fault.NO_SPACE, at: int = 0) -> None:
        self.root = root
        self.fault = fault
        self.at = at
        self.calls = 0
        self.happened = False
        self.crashed = False
        self.noted: Any = None
        self.counts: Counter[str] = Counter()
        self.before_sync: Callable[[str], object] = lambda _: None
        self._struck = ""
        self._mappings: list[mmap.mmap] = []
        self._lock = threading.Lock()
        self._content: dict[int, bytes] = {}
        self._names: dict[int, dict[str, Name]] = {}
        self._renamed: list[Renamed] = []
        self.graveyard = root.with_name(f"{root.name}-graveyard")
        self._patches = ExitStack()

    def __str__(self) -> str:
        return f"{self.fault.value}, at call {self.at}: {self._struck}"

    def __enter__(self) -> FaultySystem:
        self._note_tree(self.root)
        _patch(self._patches, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._patches.close()

    def end_process(self, descriptors: set[int]) -> None:
        """What the end of a process does: all is closed but `descriptors`."""
        for mapping in self._mappings:  # first: each has a descriptor of its own
            mapping.close()
        for descriptor in open_descriptors() - descriptors:
            os.close(descriptor)

    def strike(self, fault: Fault, calls: int) -> None:
        """Let the call fail that is `calls` from now (1: the next)."""
        with self._lock:
            self.fault, self.at, self.happened = fault, self.calls + calls, False

    def heal(self) -> None:
        """From now on nothing fails: there is room again."""
        with self._lock:
            self.at = 0

    def call(self, name: str, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Carry out a call, or not."""
        if name in SYNCS:
            self.before_sync(name)
        with self._lock:
            if self.crashed:
                raise Crashed
            self.counts[name] += 1
            done = partial(self._carry_out, name, real, *arguments, **options)
            if self.at and self.happened and self.fault in _FROM_HERE:
                self._fail_from_here(name, arguments)
            elif self._is_counted(name):
                self.calls += 1
                if self.calls == self.at:
                    self.happened = True
                    self._struck = f"{name}{arguments}"[:200]
                    return self._strike(name, done, arguments)
            return done()

    def _is_counted(self, name: str) -> bool:
        if self.fault in _OF_WRITES:
            return name == "pwrite"
        return not (
            self.fault is Fault.IO_ERROR_AFTER and name in ("open", "mmap")
        )  # nobody could close what it opened

    def _strike(self, name: str, done: Callable[[], Any], arguments: tuple[Any, ...]) -> Any:
        fault = self.fault
        if fault is Fault.CRASH_BEFORE:
            self._crash()
        if fault is Fault.NO_SPACE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if fault in (Fault.IO_ERROR, Fault.DEAD_DISK):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if fault is Fault.FULL_DISK and name != "pwrite":
            self._fail_from_here(name, arguments)
        elif fault in (*_OF_WRITES, Fault.FULL_DISK):
            return self._write_half(*arguments)
        result = done()
        if fault is Fault.CRASH_AFTER:
            self._crash()
        if fault is Fault.IO_ERROR_AFTER:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return result

    def _write_half(self, descriptor: int, data: memoryview, position: int) -> int:
        written = os.pwrite(descriptor, data[: (len(data) + 1) // 2], position)
        if self.fault is Fault.CRASH_WITHIN:
            self._crash()
            return os.pwrite(descriptor, data, position)  # where the process goes on
        if self.fault is not Fault.SHORT_WRITE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written

    def _fail_from_here(self, name: str, arguments: tuple[Any, ...]) -> None:
        if self.fault is Fault.DEAD_DISK:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if name in ("pwrite", "posix_fallocate", "mkdir", "link", "replace", "rename") or (
            name == "open" and _makes_a_file(arguments[1])
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _crash(self) -> None:
        self.crashed = True
        raise Crashed

    def _carry_out(self, name: str, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if name in SYNCS:
            self._note(arguments[0])
            return None
        if name in ("unlink", "rmdir"):
            return self._bury(_path_of(arguments[0], options["dir_fd"]))
        if name in ("replace", "rename"):
            path, target = _path_of(arguments[0], options["src_dir_fd"]), _path_of(arguments[1], options["dst_dir_fd"])
            return self._rename(real, path, target)
        result = real(*arguments, **options)
        if name == "mmap":
            self._mappings.append(result)
        if name == "open" and os.fstat(result).st_size == 0:  # made empty, or its number was another file's before
            self._content.pop(os.fstat(result).st_ino, None)
        return result

    def _bury(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink() and any(path.iterdir()):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(path))
        self.graveyard.mkdir(exist_ok=True)
        path.rename(self.graveyard / str(next(self._graves)))

    def _rename(self, real: Callable[..., Any], path: Path, target: Path) -> None:
        self.graveyard.mkdir(exist_ok=True)
        if target.is_file():
            os.link(target, self.graveyard / str(next(self._graves)))
        real(path, target)
        self._renamed.append(Renamed(path.parent.stat().st_ino, path.name, target.parent.stat().st_ino, target.name))

    def _note(self, descriptor: int) -> None:
        """What an open file or folder holds now is on the disk."""
        found = os.fstat(descriptor)
        if not stat.S_ISDIR(found.st_mode):
            self._content[found.st_ino] = os.pread(descriptor, found.st_size, 0)
            return
        for renamed in [each for each in self._renamed if found.st_ino in (each.source, each.target)]:
            _apply_rename(self._names, renamed)
            self._renamed.remove(renamed)
        entries = {name: os.stat(name, dir_fd=descriptor) for name in os.listdir(descriptor)}
        self._names[found.st_ino] = {name: _name_of(entry) for name, entry in entries.items()}

    def _note_tree(self, folder: Path) -> None:
        if not folder.is_dir():
            return
        for path in (folder, *folder.rglob("*")):
            descriptor = os.open(path, os.O_RDONLY)
            self._note(descriptor)
            os.close(descriptor)

    def after_power_failure(self, target: Path, chance: Random | None = None) -> None:
        """At `target`, what is left of `root`: only what a sync brought to the disk.

        With `chance` each sector that was written since, and each name, may have got there all the same.
        """
        if not self.root.is_dir():
            return
        names = {folder: dict(entries) for folder, entries in self._names.items()}
        done = 0
        while (
            chance is not None and done < len(self._renamed) and chance.random() < 0.5
        ):  # in order: each, or none from one on
            _apply_rename(names, self._renamed[done])
            done += 1
        open_names = {(each.source, each.old) for each in self._renamed[done:]} | {
            (each.target, each.new) for each in self._renamed[done:]
        }
        if chance is not None:
            self._mix_names(names, open_names, chance)
        paths = {path.lstat().st_ino: path for folder in (self.graveyard, self.root) for path in folder.rglob("*")}
        self._copy_durable(self.root.stat().st_ino, target, names, paths, chance)

    def _mix_names(self, names: dict[int, dict[str, Name]], but: set[tuple[int, str]], chance: Random) -> None:
        """Each name that was made or deleted since may be as it is now."""
        for folder in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            inode = folder.stat().st_ino
            current = {path.name: _name_of(path.stat()) for path in sorted(folder.iterdir())}
            found = names.setdefault(inode, {})
            for name in sorted(found.keys() | current.keys()):
                if found.get(name) != current.get(name) and (inode, name) not in but and chance.random() < 0.5:
                    found.pop(name, None)
                    found |= {name: current[name]} if name in current else {}

    def _copy_durable(
        self,
        folder: int,
        target: Path,
        names: dict[int, dict[str, Name]],
        paths: dict[int, Path],
        chance: Random | None,
    ) -> None:
        target.mkdir()
        for name, entry in names.get(folder, {}).items():
            if entry.is_folder:
                self._copy_durable(entry.inode, target / name, names, paths, chance)
                continue
            data = self._content.get(entry.inode, bytes(entry.size))
            path = paths.get(entry.inode)
            is_as_long = path is not None and path.stat().st_size == len(data)
            (target / name).write_bytes(
                _mixed(data, path.read_bytes(), chance) if chance and path and is_as_long else data
            )


class CrashingSystem(FaultySystem):
    """Every `step`-th call ends the process, all in one run: `left` has what each end leaves, and the run goes on.

    Each is a system of its own, with `noted`, what `note` said then. Only the graveyard is shared.
    """

    def __init__(self, root: Path, fault: Fault, step: int = 1, note: Callable[[], Any] = lambda: None) -> None:
        super().__init__(root, fault, 1)
        self.left: list[FaultySystem] = []
        self._step = step
        self._note_more = note

    def _crash(self) -> None:
        left = FaultySystem(self.root.with_name(f"{self.root.name}-{self.at}"), self.fault, self.at)
        left.calls, left.happened, left.crashed, left._struck = self.calls, True, True, self._struck
        left.noted, left.graveyard = self._note_more(), self.graveyard
        inodes = {path.stat().st_ino: path.stat().st_ino for path in self.graveyard.rglob("*")}
        if self.root.is_dir():
            shutil.copytree(self.root, left.root, symlinks=True)
            for path in (self.root, *self.root.rglob("*")):
                inodes[path.lstat().st_ino] = (left.root / path.relative_to(self.root)).lstat().st_ino

        def moved(inode: int) -> int:
            return inodes.get(inode, -inode)  # a file without a name

        left._content = {moved(inode): data for inode, data in self._content.items()}
        left._names = {
            moved(folder): {name: entry._replace(inode=moved(entry.inode)) for name, entry in entries.items()}
            for folder, entries in self._names.items()
        }
        left._renamed = [each._replace(source=moved(each.source), target=moved(each.target)) for each in self._renamed]
        self.left.append(left)
        self.at += self._step


def _apply_rename(names: dict[int, dict[str, Name]], renamed: Renamed) -> None:
    entry = names.get(renamed.source, {}).pop(renamed.old, None)
    if entry is not None:
        names.setdefault(renamed.target, {})[renamed.new] = entry


def _path_of(name: str, folder: int) -> Path:
    """A name in an open folder, as a path."""
    return Path(f"/proc/self/fd/{folder}").readlink() / name


def _makes_a_file(flags: int) -> bool:
    return bool(flags & os.O_CREAT) or flags & UNNAMED == UNNAMED


def _name_of(found: os.stat_result) -> Name:
    is_folder = stat.S_ISDIR(found.st_mode)
    return Name(found.st_ino, is_folder, 0 if is_folder else found.st_size)


def _mixed(durable: bytes, current: bytes, chance: Random) -> bytes:
    """By sectors one or the other."""
    starts = range(0, len(durable), SECTOR_SIZE)
    return b"".join((current if chance.random() < 0.5 else durable)[start : start + SECTOR_SIZE] for start in starts)


class DeadlySystem:
    """Ends this process, really and by SIGKILL, before call number `at` (counted from 1). A context manager."""

    def __init__(self, at: int) -> None:
        self._left = at
        self._patches = ExitStack()

    def __enter__(self) -> None:
        _patch(self._patches, self)

    def __exit__(self, *_: object) -> None:
        self._patches.close()

    def call(self, name: str, real: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Carry out a call, or end."""
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **options)


def _patch(patches: ExitStack, system: FaultySystem | DeadlySystem) -> None:
    for target, module in ((writable_storage, os), (writable_storage, fcntl), (writable_storage, mmap), (new_file, os)):
        patches.enter_context(patch.object(target, module.__name__, _Module(module, system)))


class _Module:
    """A module whose functions are carried out by a faulty system."""

    def __init__(self, module: ModuleType, system: FaultySystem | DeadlySystem) -> None:
        self._module = module
        self._system = system

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if name in CHANGES_NOTHING or not callable(found):
            return found
        return partial(self._system.call, name, found)


def every_fault(folder: Path, fault: Fault, step: int = 1) -> Iterator[FaultySystem]:
    """A system for each call that can fail (or every `step`-th), each with a root of its own below `folder`; in the
    last one none does.
    """
    for at in count(1, step):
        system = FaultySystem(folder / f"{fault.name}-{at}", fault, at)
        yield system
        shutil.rmtree(system.root, ignore_errors=True)
        shutil.rmtree(system.graveyard, ignore_errors=True)
        if not system.happened:
            return


def open_descriptors() -> set[int]:
    """The numbers of all descriptors that this process has open."""
    found = set()
    for number in (int(path.name) for path in Path("/dev/fd").iterdir()):
        with suppress(OSError):  # that of the listing itself
            os.fstat(number)
            found.add(number)
    return found


def crash_points(
    folder: Path,
    fault: Fault,
    prepare: Callable[[Path], object],
    do: Callable[[Path], object],
    check: Callable[[FaultySystem], object],
    step: int = 1,
) -> int:
    """The process ends at every call of `do`, or every `step`-th; at how many it did."""
    system = CrashingSystem(folder / fault.name, fault, step)
    prepare(system.root)
    descriptors = open_descriptors()
    with system:
        do(system.root)
    system.end_process(descriptors)
    for left in (*system.left, system):
        try:
            check(left)
        except BaseException as error:
            error.add_note(str(left))
            raise
        shutil.rmtree(left.root, ignore_errors=True)
    shutil.rmtree(system.graveyard, ignore_errors=True)
    assert len(system.left) == -(-system.calls // step)
    return len(system.left)
