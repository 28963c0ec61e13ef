"""The folder of an export on this host's file systems.

The whole export is prepared in a hidden folder beside the target, and gets the target's name in one step: the target
has the earlier files or the new ones at every moment, also if the export is killed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rmqctl.errors import BadRequest
from rmqctl.logfile.system.exchange import exchange
from rmqctl.spark.question.export.earlier_files import MANIFEST, MARKER, SUCCESS, Leftovers, Mode, check_replaceable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rmqctl.spark.question.export.part_files import PartFile


class LocalTarget:
    """A folder of this host (`target`) to which an export goes.

    `hidden` is the hidden folder of this export. `suffix` is the end of the names of files. `left` is what killed
    exports had left.
    """

    def __init__(self, target: Path, hidden: Path, mode: Mode, suffix: str, left: Leftovers) -> None:
        self.left = left
        self._target = target
        self._mode = mode
        self._suffix = suffix
        self._run = uuid.uuid4().hex
        self._messages = hidden / "messages"
        self._tasks = hidden / "tasks"
        self._tasks.mkdir()

    @property
    def staging(self) -> str:
        """The folder to which tasks write."""
        return str(self._tasks)

    def publish(self, files: Sequence[PartFile]) -> None:
        """Give the target the files of an export, in one step.

        All data is flushed to disk first. With `Mode.APPEND`, the earlier files are kept. A manifest of an export to a
        URL is left out, because it does not name the new files. Raises BadRequest if the target has other files than
        exports write, or if another program changes it at the same time. Raises OSError.
        """
        earlier = _checked(self._target, self._mode, self._suffix)
        self._messages.mkdir()
        if self._mode is Mode.APPEND:
            for name in earlier:
                if name != MANIFEST:
                    _link(self._target / name, self._messages / name)
        for number, part in enumerate(files):
            path = self._messages / part.name(number, self._run, self._suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            Path(part.path).rename(path)
        (self._messages / SUCCESS).touch()
        _sync_tree(self._messages)
        if earlier:
            shutil.copymode(self._target, self._messages)
            self._exchange()
            if _names_in(self._messages) != earlier:
                self._exchange()
                raise BadRequest("another program changes the folder", path=str(self._target), hint="try again")
        else:
            self._messages.rename(self._target)
        _sync(self._target.parent)

    def _exchange(self) -> None:
        """Raise BadRequest if the file system cannot exchange folders."""
        try:
            exchange(self._messages, self._target)
        except OSError as error:
            raise BadRequest(
                f"this file system cannot exchange two folders: {error.strerror}",
                path=str(self._target),
                hint="give --to a new folder",
            ) from error


class FileTarget(LocalTarget):
    """A file of this host to which an export goes (`ONE_FILE`)."""

    def publish(self, files: Sequence[PartFile]) -> None:
        """Give the target the one file of an export, in one step.

        Raises BadRequest if it is there, without `Mode.OVERWRITE`. Raises OSError.
        """
        (made,) = (Path(one.path) for one in files)
        _sync(made)
        _checked_file(self._target, self._mode)
        made.rename(self._target)
        _sync(self._target.parent)


@contextmanager
def local_target(target: Path, mode: Mode, suffix: str, kind: type[LocalTarget] = LocalTarget) -> Iterator[LocalTarget]:
    """Yield a LocalTarget of a `kind`; remove its hidden folder after the block.

    The hidden folder lies beside `target`, with a marker file that stays locked while the export runs. Those that
    killed exports have left are removed first, but no folder without rmqctl's marker.

    Raises BadRequest if `mode` does not allow an export to `target`, if the parent folder does not exist, or if another
    export to `target` is running. Raises OSError.
    """
    target = target.absolute()
    if kind is FileTarget:
        _checked_file(target, mode)
    else:
        _checked(target, mode, suffix)
    hidden = target.parent / f".{target.name}.{uuid.uuid4().hex}"
    hidden.mkdir()
    try:
        with (hidden / MARKER).open("x", encoding="utf-8") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX)
            left = Leftovers([], [])
            for other in _hidden_folders(target):
                if other != hidden and _is_abandoned(other):
                    _remove(other)
                    left.removed.append(str(other))
                elif other != hidden:
                    left.unknown.append(str(other))
            yield kind(target, hidden, mode, suffix, left)
    finally:
        _remove(hidden)


def _remove(hidden: Path) -> None:
    """Remove a hidden folder, with its marker at last.

    If the process is killed here, the next export finds the marker, and removes the rest.
    """
    for name in ("messages", "tasks"):
        shutil.rmtree(hidden / name, ignore_errors=True)
    shutil.rmtree(hidden, ignore_errors=True)


def _hidden_folders(target: Path) -> list[Path]:
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{32}}")
    beside = sorted(target.parent.iterdir()) if target.parent.is_dir() else []
    return [path for path in beside if name.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def _is_abandoned(folder: Path) -> bool:
    """Return whether a hidden folder belongs to an export that was killed.

    It does if it is empty, or if it has rmqctl's marker and no process locks it; not with a marker that cannot be
    opened. Raises BadRequest if an export locks the marker.
    """
    try:
        marker = os.open(folder / MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return not any(folder.iterdir())
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        hint = "wait until it ends, or choose another --to"
        raise BadRequest("another export to the same folder is running", path=str(folder), hint=hint) from None
    finally:
        os.close(marker)
    return True


def _checked(target: Path, mode: Mode, suffix: str) -> list[str]:
    # raises BadRequest if `mode` does not allow an export to the target; returns the target's files
    if not target.parent.is_dir():
        raise BadRequest("no such folder", path=str(target.parent))
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise BadRequest("already exists and is not a folder", path=str(target), hint="give --to a new folder")
    names = _names_in(target) if target.exists() else []
    check_replaceable(str(target), names, mode, suffix)
    return names


def _checked_file(target: Path, mode: Mode) -> None:
    # raises BadRequest if `mode` does not allow an export to this file
    if not target.parent.is_dir():
        raise BadRequest("no such folder", path=str(target.parent))
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise BadRequest("already exists and is no file", path=str(target), hint="give --to a new file")
    if target.exists() and mode is not Mode.OVERWRITE:
        raise BadRequest("already exists", path=str(target), hint="give --mode overwrite")


def _names_in(target: Path) -> list[str]:
    """Return all files, links and empty folders in a folder, sorted, relative to it.

    Raises OSError if a folder in it cannot be listed.
    """
    return sorted(str(path.relative_to(target)) for path in _leaves(target))


def _leaves(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = Path(entry.path)
            inner = list(_leaves(path)) if entry.is_dir(follow_symlinks=False) else []
            yield from inner or [path]


def _link(path: Path, copy: Path) -> None:
    # copy the file if the file system or the file's owner does not allow a second name
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, copy, follow_symlinks=False)
    except OSError:
        shutil.copy2(path, copy, follow_symlinks=False)


def _sync_tree(folder: Path) -> None:
    for inner, _, names in os.walk(folder, topdown=False):
        for name in names:
            _sync(Path(inner, name))
        _sync(Path(inner))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
