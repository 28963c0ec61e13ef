"""The cache of compiled kernels.

The cache is in the user's cache folder. If the user's cache folder cannot be written (the home may be read-only), the
cache is in a subfolder of the temporary folder. If neither the user's cache folder nor the temporary folder can be
written, kernels are not cached. numba does not notice changes in the source files of functions that a kernel calls.
Each version of the source code has its own cache folder. Cache folders of other users are never used, because rmqctl
executes the code in the cache.
"""

from __future__ import annotations

import os
import stat
from functools import cache
from pathlib import Path


def find_folder() -> Path | None:
    """Return the folder for compiled kernels, which no other user can write to.

    The result is None if no cache folder can be used.
    """
    import tempfile

    import platformdirs

    candidates = (platformdirs.user_cache_path("rmqctl"), Path(tempfile.gettempdir()) / f"rmqctl-{os.getuid()}")
    folders = (folder / _sources_digest() for folder in candidates if _is_ours(folder))
    return next((folder for folder in folders if _is_ours(folder)), None)


@cache
def _sources_digest() -> str:
    import hashlib
    from importlib.resources import files

    from rmqctl import format as formats
    from rmqctl import kernels

    digest = hashlib.sha256()
    for package in (kernels, formats):  # kernels have constants of the format; in a folder, or in a zip on an executor
        sources = [source for source in files(package).iterdir() if source.name.endswith(".py")]
        for source in sorted(sources, key=lambda source: source.name):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _is_ours(folder: Path) -> bool:
    """Return whether `folder` belongs to this user and is writable by no other user.

    If `folder` does not exist, the function tries to create `folder`.
    """
    import tempfile

    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        return False
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
