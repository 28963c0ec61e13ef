"""Folders for rmqctl's own files: temporary ones, and the cache of compiled code.

`tempfile` falls back to the current folder, which may be a store. Here, a folder has an absolute path (the user's cache
folder, TMPDIR, /tmp, /var/tmp), and is not part of a store. Where code is kept, nobody else may replace it: every
folder on the way belongs to root or to this user, and others cannot write to it, unless it is sticky as /tmp is.

The folders of a path are opened one by one, each in the one before, and checked when they are open: a path may lead
elsewhere the next moment.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from rmqctl.errors import Unreadable

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PARTS_OF_A_STORE = ("commitlog", "consumequeue")
NEW_FOLDER_MODE = 0o700
TEMPORARY_HINT = "set TMPDIR to a folder with free space, outside the store, that only you can write to"


def temporary_paths() -> list[str]:
    """Return the folders that may hold temporary files, the best first."""
    return [*filter(None, [os.environ.get("TMPDIR")]), "/tmp", "/var/tmp"]  # noqa: S108 -- checked by `open_folder`


def temporary_folder(*, holds_code: bool = False) -> str:
    """Return the first folder of `temporary_paths` that can be written.

    With `holds_code`, other users cannot replace what is in it. Raises Unreadable if there is no such folder.
    """
    from tempfile import TemporaryFile  # noqa: TID251 -- in a folder that is given

    whys = []
    for path in temporary_paths():
        real = os.path.realpath(path) if os.path.isabs(path) else path
        try:
            os.close(open_folder(real, holds_code=holds_code))
            with TemporaryFile(dir=real, buffering=0) as file:
                file.write(b"\0")  # a full disk has room for an empty file
        except OSError as error:
            whys.append(f"{path}: {error.strerror}")
        else:
            return real
    raise Unreadable(f"no folder for temporary files ({'; '.join(whys)})", hint=TEMPORARY_HINT)


def open_folder(path: str, *own: str, holds_code: bool = True, creates: bool = False) -> int:
    """Open the folder `own` below `path`, and return its descriptor.

    Links are followed in `path` alone. With `creates`, missing folders are created, for this user alone. Raises OSError
    if the folder cannot be opened or is part of a store, or with `holds_code`, if other users could put files of theirs
    into its place.
    """
    if not os.path.isabs(path):
        raise OSError(errno.EINVAL, "not an absolute path", path)
    folder = os.open("/", _FOLDER)
    try:
        for name in (*filter(None, os.path.realpath(path).split(os.sep)), *own):
            below = _opened(name, folder, creates=creates)
            os.close(folder)
            folder = below
            _check(folder, holds_code=holds_code)
    except OSError:
        os.close(folder)
        raise
    return folder


def _opened(name: str, above: int, *, creates: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=above)
    except FileNotFoundError:
        if not creates:
            raise
    with suppress(FileExistsError):  # another process made it meanwhile
        os.mkdir(name, NEW_FOLDER_MODE, dir_fd=above)
    return os.open(name, _FOLDER, dir_fd=above)


def _check(folder: int, *, holds_code: bool) -> None:
    found = os.fstat(folder)
    if holds_code and not is_trusted(found):
        raise OSError(errno.EPERM, "other users could replace what is in it")
    for name in _PARTS_OF_A_STORE:
        with suppress(FileNotFoundError):
            part = os.stat(name, dir_fd=folder, follow_symlinks=False)
            # in /tmp, anybody can create it
            if stat.S_ISDIR(part.st_mode) and part.st_uid in (0, os.geteuid(), found.st_uid):
                raise OSError(errno.EPERM, f"it lies in a store, beside its {name}")


def is_trusted(found: os.stat_result) -> bool:
    """Return whether no other user but root can change an open file or folder.

    In a sticky folder, others can create files, but cannot replace those of this user.
    """
    others_write = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    return found.st_uid in (0, os.geteuid()) and (not others_write or bool(is_sticky))
