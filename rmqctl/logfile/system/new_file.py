"""Creates files in their full size: no broker loads a file that is too short.

All functions raise OSError. `folder` is a descriptor of the folder.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rmqctl.logfile.access import place

if TYPE_CHECKING:
    from collections.abc import Iterator


def create_named(name: str, folder: int, size: int) -> int:
    """Create a file of `size` zero bytes, and return its descriptor."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(name, flags, place.mode_of_new_file(folder), dir_fd=folder)
    try:
        with closed_on_error(descriptor):
            give_to_owner(descriptor, folder)
            os.ftruncate(descriptor, size)
    except OSError:
        os.unlink(name, dir_fd=folder)
        raise
    return descriptor


def create_unnamed(name: str, folder: int, size: int) -> int | None:
    """Create a file with O_TMPFILE, and name it when it has its full size.

    None if the system does not support O_TMPFILE, or has no /proc.
    """
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is None:
        return None
    try:
        descriptor = os.open(".", os.O_RDWR | unnamed | os.O_CLOEXEC, place.mode_of_new_file(folder), dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            return None
        raise
    try:
        with closed_on_error(descriptor):
            give_to_owner(descriptor, folder)
            os.ftruncate(descriptor, size)
            _link(descriptor, name, folder)
    except FileNotFoundError:  # no /proc
        return None
    return descriptor


def _link(descriptor: int, name: str, folder: int) -> None:
    try:
        # Python's `link` follows a symbolic link only if it gets a folder's descriptor; any folder will do, because the
        # path is absolute
        os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=True)
    except OSError:
        # the link may exist in spite of the error; a later attempt could not create it
        if place.is_same_file(descriptor, name, folder):
            os.unlink(name, dir_fd=folder)
        raise


def give_to_owner(descriptor: int, folder: int) -> None:
    """Give a new file to the owner of its folder, if run as root."""
    owner = place.owner_of_new(folder)
    if owner is not None:
        os.fchown(descriptor, *owner)


@contextmanager
def closed_on_error(descriptor: int) -> Iterator[None]:
    """Close the descriptor if the block raises an OSError."""
    try:
        yield
    except OSError:
        os.close(descriptor)
        raise
