"""The cache of compiled kernels.

rmqctl executes what is in the cache. So it is a folder in which nobody else can put a file (`rmqctl.scratch`): in the
user's cache folder, or else, where the home cannot be written or belongs to somebody else, in a folder for temporary
files. If there is none, kernels are not cached.

numba does not notice changes in the source files of functions that a kernel calls. Each version of the source code has
its own cache folder.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rmqctl.scratch import is_trusted, open_folder, temporary_paths

_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class KernelCache(NamedTuple):
    """The folder of the cache: where it was found, and its descriptor.

    All access is by the descriptor, because the path may lead elsewhere the next moment.
    """

    path: Path
    folder: int

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None.

        None means that the file cannot be read, or that another user could have written it.
        """
        try:
            with open(os.open(name, os.O_RDONLY | _OPEN, dir_fd=self.folder), "rb") as file:
                found = os.fstat(file.fileno())
                return file.read() if stat.S_ISREG(found.st_mode) and is_trusted(found) else None
        except OSError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file. Other processes see it only when it is complete. Raises OSError."""
        part = f"{name}.{os.getpid()}"
        with suppress(FileNotFoundError):  # a process with this number has left it
            os.unlink(part, dir_fd=self.folder)
        try:
            with open(
                os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o644, dir_fd=self.folder), "wb"
            ) as file:
                file.write(content)
            os.rename(part, name, src_dir_fd=self.folder, dst_dir_fd=self.folder)
        except OSError:
            with suppress(OSError):
                os.unlink(part, dir_fd=self.folder)
            raise

    def names(self) -> list[str]:
        """Return the names of the files. Raises OSError."""
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self.folder)
        try:
            return os.listdir(descriptor)
        finally:
            os.close(descriptor)


def find_cache() -> KernelCache | None:
    """Open the cache, or return None if kernels cannot be cached."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return _first_of(home, tuple(filter(os.path.isdir, temporary_paths())), os.geteuid())


@cache
def _first_of(home: str, temporary: tuple[str, ...], uid: int) -> KernelCache | None:
    try:
        digest = _sources_digest()
    except OSError:  # rmqctl was installed without its sources
        return None
    for folder, own in ((home, "rmqctl"), *((each, f"rmqctl-{uid}") for each in temporary)):
        with suppress(OSError):
            return KernelCache(Path(folder, own, digest), open_folder(folder, own, digest, creates=True))
    return None


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
