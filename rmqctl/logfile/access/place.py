"""Paths, and access to them without following symbolic links in the store.

The owner of a store may replace a folder in it by a link at any moment, and the operating system follows links in the
folders of a path. So when rmqctl changes a store, it opens the folders of a path one by one, each by its name in its
parent folder (openat with O_NOFOLLOW).

`hold` keeps a folder open: it stays reachable after a rename, and without rights on the parent folders.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

FILE_MODE, FOLDER_MODE, PRIVATE_FOLDER_MODE = 0o644, 0o755, 0o700
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_HELD: dict[Path, int] = {}


def hold(folder: Path) -> None:
    """Keep a folder reachable until the process ends.

    Raises OSError.
    """
    if folder not in _HELD:
        _HELD[folder] = os.open(folder, _FOLDER)


def holds_any() -> bool:
    """Return whether `hold` keeps a folder open."""
    return bool(_HELD)


def reached(path: Path | str) -> tuple[Path | str, int | None]:
    """Return `path` relative to a held folder, and the descriptor of this folder.

    If `hold` has opened no folder that contains it, they are `path` and None.
    """
    for folder, descriptor in _HELD.items():
        names = names_below(Path(path), folder)
        if names is not None:
            return "/".join(names) or ".", descriptor
    return path, None


def is_same(path: Path, other: Path) -> bool:
    """Return whether two paths lead to one place, links followed."""
    return os.path.realpath(path) == os.path.realpath(other)


def names_below(path: Path, folder: Path) -> tuple[str, ...] | None:
    """Return the names of `path` below `folder`; None if it is not in the folder.

    There are none if the path is the folder itself. Faster than `Path.relative_to`.
    """
    start, parts = folder.parts, path.parts
    if parts[: len(start)] != start or (not start and path.is_absolute()):
        return None
    return parts[len(start) :]


def is_path_text(text: str) -> bool:
    """Return whether a text can be a path.

    A path has no NUL, and can be encoded in the encoding of file names. For any other text, `os.open` raises ValueError
    instead of OSError.
    """
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def from_root(root: Path, path: str) -> Path:
    """Return a folder below `root` as a path that begins with `root`.

    A folder elsewhere is returned unchanged. STORE can be a relative path while broker.conf has absolute paths.
    """
    for own, other in (
        (os.path.abspath(root), os.path.abspath(path)),
        (os.path.realpath(root), os.path.realpath(path)),
    ):
        if Path(other).is_relative_to(own):
            return root / Path(other).relative_to(own)
    return Path(path)


@contextmanager
def strictly(path: Path, roots: Collection[Path]) -> Iterator[tuple[str, int]]:
    """Yield the last name of `path`, and a descriptor of its parent folder.

    If `path` is one of `roots`, the name may be `.`, and the descriptor that of `path`. No link below one of `roots` is
    followed; outside, the system follows links as usual. Raises OSError with `path` in its text.
    """
    with naming(path):
        root, names = _below_one_of(path, roots)
        if ".." in names:
            raise OSError(errno.EINVAL, "a path with `..`", str(path))
        folder = _open_root(path.parent if root is None else root)
        try:
            for name in names[:-1]:
                below = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
                os.close(folder)
                folder = below
            yield names[-1] if names else ".", folder
        finally:
            os.close(folder)


def _below_one_of(path: Path, roots: Collection[Path]) -> tuple[Path | None, tuple[str, ...]]:
    """Split a path into the first of `roots` that contains it, and the names below.

    Without such a root, return None and the last name of the path.
    """
    for root in roots:
        names = names_below(path, root)
        if names is not None:
            return root, names
    return None, (path.name or ".",)


def _open_root(root: Path) -> int:
    return os.dup(_HELD[root]) if root in _HELD else os.open(root, _FOLDER)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to an OSError of the `with` block, and that it has a link, if so."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP or (error.errno == errno.ENOTDIR and _has_link(path)):
            raise OSError(
                errno.ELOOP, "a symbolic link is in its place, or on the way: not followed", str(path)
            ) from error
        error.filename = str(path)
        raise


def _has_link(path: Path) -> bool:
    """Return whether a path, or a folder above it, is a link."""
    return any(os.path.islink(folder) for folder in (path, *path.parents))


def with_path(error: OSError, descriptor: int) -> OSError:
    """Return `error` with the path of the open file.

    An OSError has no path if the failed call used a descriptor.
    """
    try:
        path = _path_of(descriptor)
    except OSError:
        return error
    return error if error.filename is not None else OSError(error.errno, error.strerror, path)


def _path_of(descriptor: int) -> str:
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if not path.endswith(" (deleted)"):
        return path
    found = os.fstat(descriptor)  # Linux also adds `(deleted)` if a file got its name after it was opened
    with os.scandir(os.path.dirname(path)) as entries:
        return next(
            (entry.path for entry in entries if os.path.samestat(entry.stat(follow_symlinks=False), found)), path
        )


def status(path: Path, roots: Collection[Path]) -> os.stat_result:
    """Return the `stat` result of a path, without following links.

    Raises OSError.
    """
    with strictly(path, roots) as (name, folder):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


def names(folder: Path, roots: Collection[Path]) -> list[str]:
    """Return the names in a folder, sorted. Raises OSError."""
    with strictly(folder, roots) as (name, above):
        return names_in(name, above, os.O_NOFOLLOW)


def names_in(name: Path | str, above: int, flags: int = 0) -> list[str]:
    """Return the names in the folder `name` of the open folder `above`, sorted.

    `flags` are further flags of the open. Raises OSError.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | flags, dir_fd=above)
    try:
        return sorted(os.listdir(descriptor))
    finally:
        os.close(descriptor)


def open_for_reading(path: Path, roots: Collection[Path]) -> int:
    """Open a file for reading, and return the descriptor.

    The call never waits, even if `path` is a pipe. Raises OSError.
    """
    with strictly(path, roots) as (name, folder):
        return os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, dir_fd=folder)


def mode_of_new_folder(folder: int) -> int:
    """Return the mode for a new subfolder of `folder` (a descriptor).

    It is 0o755 AND the mode of `folder`.
    """
    return stat.S_IMODE(os.fstat(folder).st_mode) & FOLDER_MODE


def mode_of_new_file(folder: int) -> int:
    """Return the mode for a new file in `folder` (a descriptor).

    It is 0o644 AND the modes of the files among the folder's first and last entries, or without such a file the mode of
    `folder`.
    """
    modes = [found.st_mode for name in _some_names(folder) if stat.S_ISREG((found := _status_in(folder, name)).st_mode)]
    return reduce(and_, modes or [os.fstat(folder).st_mode], FILE_MODE)


def _some_names(folder: int) -> list[str]:
    found = names_in(".", folder)
    return found[:1] + found[-1:]


def _status_in(folder: int, name: str) -> os.stat_result:
    return os.stat(name, dir_fd=folder, follow_symlinks=False)


def mode_of(descriptor: int) -> int:
    """Return the mode of an open file, for example 0o644."""
    return stat.S_IMODE(os.fstat(descriptor).st_mode)


def owner_of_new(folder: int) -> tuple[int, int] | None:
    """Return the user and the group of new files in a folder, or None.

    None means this process's user: only root can give files to another one. A broker that does not run as root cannot
    write files of root.
    """
    found = os.fstat(folder)
    if os.geteuid() != 0 or (found.st_uid, found.st_gid) == (0, 0):
        return None
    return found.st_uid, found.st_gid


def is_same_file(descriptor: int, name: str, folder: int) -> bool:
    """Return whether an open file still has the name `name` in `folder`.

    False if `name` does not exist. Raises OSError otherwise.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))
