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
    import platformdirs

    try:
        digest = _sources_digest()
    except OSError:  # rmqctl was installed without its sources
        return None
    own = platformdirs.user_cache_path("rmqctl") / digest
    if _is_ours(own.parent) and _is_ours(own):
        return own
    import tempfile  # this import takes as long as loading a kernel

    temporary = Path(tempfile.gettempdir()) / f"rmqctl-{os.getuid()}" / digest
    return temporary if _is_ours(temporary.parent) and _is_ours(temporary) else None


@cache
def _sources_digest() -> str:
    import hashlib
    from pkgutil import get_data, iter_modules

    from rmqctl import format as formats
    from rmqctl import kernels

    digest = hashlib.sha256()
    for package in (kernels, formats):  # kernels have constants of the format; in a folder, or in a zip on an executor
        names = sorted(module.name for module in iter_modules(package.__path__) if not module.ispkg)
        for name in names:
            digest.update(get_data(package.__name__, f"{name}.py") or b"")
    return digest.hexdigest()[:16]


def _is_ours(folder: Path) -> bool:
    """Return whether only this user, who owns `folder`, can write to `folder`.

    If `folder` does not exist, the function tries to create `folder`.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(folder)
    except OSError:
        return False
    is_effective = os.access in os.supports_effective_ids
    return (
        os.access(folder, os.W_OK | os.X_OK, effective_ids=is_effective)
        and stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
