"""The change of the process's user from root to the owner of a store.

If root starts rmqctl, the process becomes the owner of the store, permanently, before it writes. It then has only the
owner's rights, so no link in the store leads to root's files, and the files that it creates belong to the owner.
"""

from __future__ import annotations

import grp
import os
import pwd
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.logfile.access.place import hold

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class Owner(NamedTuple):
    """A user id, and the group id of new files."""

    uid: int
    gid: int

    def __str__(self) -> str:
        try:
            return f"{pwd.getpwuid(self.uid).pw_name} (uid {self.uid})"
        except KeyError:
            return f"uid {self.uid}"


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0


def owner_of(folder: Path) -> Owner:
    """Return the owner of a folder, or of the nearest existing folder above it.

    If the group of the folder is root, the group is the owner's primary group. Raises OSError.
    """
    while not os.path.lexists(folder):
        folder = folder.absolute().parent
    found = os.stat(folder)
    return Owner(found.st_uid, found.st_gid or _group_of(found.st_uid))


def _group_of(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return uid


def owners_in(folders: Iterable[Path]) -> set[int]:
    """Return the user ids of the owners of all files at or below `folders`.

    Links are not followed. Raises OSError.
    """
    found: set[int] = set()
    waiting = [os.fspath(folder) for folder in folders if os.path.isdir(folder)]
    found.update(os.stat(folder).st_uid for folder in waiting)
    while waiting:  # no recursion: folders may be nested deeper than Python's recursion limit
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                found.add(entry.stat(follow_symlinks=False).st_uid)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    return found


def become(owner: Owner, folders: Iterable[Path]) -> None:
    """Change the user of this process to `owner`, permanently.

    `folders` stay reachable, because they are opened before. Raises OSError.
    """
    for folder in folders:
        if os.path.isdir(folder):
            hold(folder)
    os.setgroups(_groups_of(owner))
    os.setgid(owner.gid)
    os.setuid(owner.uid)


def _groups_of(owner: Owner) -> list[int]:
    """Return the store's group, then those of its owner.

    The owner is not always a member of the store's group.
    """
    try:
        user = pwd.getpwuid(owner.uid)
    except KeyError:
        return [owner.gid]
    listed = (group.gr_gid for group in grp.getgrall() if user.pw_name in group.gr_mem)
    return list(dict.fromkeys((owner.gid, user.pw_gid, *listed)))
