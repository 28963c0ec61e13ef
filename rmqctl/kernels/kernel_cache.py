"""Where compiled kernels are kept between runs, so that only the first one compiles.

In the user's cache folder; where that cannot be written (a read-only home), in a folder of the user's own below the
temporary one; otherwise nowhere. Below it is a folder for each state of the kernels' sources: numba itself looks only
at the file of each function, not at what it calls. Nobody else's folder is ever used: what is loaded from there is run.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path

import platformdirs

from rmqctl import format as kernels


def find_folder() -> Path | None:
    """Return a folder that this user can write and nobody else can.

    None: there is none.
    """
    candidates = (platformdirs.user_cache_path("rmqctl"), Path(tempfile.gettempdir()) / f"rmqctl-{os.getuid()}")
    folders = (folder / _sources_digest() for folder in candidates if _is_ours(folder))
    return next((folder for folder in folders if _is_ours(folder)), None)


@cache
def _sources_digest() -> str:
    digest = hashlib.sha256()
    sources = [
        source for source in files(kernels).iterdir() if source.name.endswith(".py")
    ]  # in a folder; or in a zip, on an executor
    for source in sorted(sources, key=lambda source: source.name):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _is_ours(folder: Path) -> bool:
    """Return whether `folder` is, or can be made, a folder that belongs to this user and that only they can write."""
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
