"""The cache of compiled kernels.

rmqctl executes what is in the cache. So it is a folder in which nobody else can put a file (`rmqctl.scratch`): in the
user's cache folder, or else, where the home cannot be written or belongs to somebody else, in a folder for temporary
files. If there is none, kernels are not cached.

numba does not notice changes in the source files of functions that a kernel calls. Each version of the source code has
its own cache folder.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from fnmatch import filter as matching
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rmqctl.scratch import NEW_FOLDER_MODE, open_folder, temporary_paths

if TYPE_CHECKING:
    from collections.abc import Iterable


class KernelCache(NamedTuple):
    """The folder of the cache: where it was found, and its descriptor."""

    path: Path
    folder: int

    @property
    def numba_path(self) -> str:
        """Return the path for numba, through the descriptor where the system can.

        `path` may lead elsewhere the next moment.
        """
        through = f"/proc/self/fd/{self.folder}"
        return through if os.path.exists(through) else str(self.path)

    def has(self, modules: Iterable[str]) -> bool:
        """Return whether the cache has kernels of each of these modules."""
        files = [name for _, _, names in os.walk(self.numba_path) for name in names]
        return all(matching(files, f"{module.rpartition('.')[2]}.*.nbi") for module in modules)

    def source_file(self, module: str) -> str:
        """Return a path that stands for a module without a file of its own.

        numba reads the file, to tell versions apart. Raises OSError.
        """
        name = f"{module.rpartition('.')[2]}.py"
        Path(self.numba_path, name).touch()
        return str(self.path / name)

    def clear(self) -> None:
        """Delete the files of numba, as far as that is possible."""
        for folder in os.scandir(self.numba_path):
            if folder.is_dir(follow_symlinks=False):
                shutil.rmtree(folder.path, ignore_errors=True)


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
            found = KernelCache(Path(folder, own, digest), open_folder(folder, own, digest, creates=True))
            os.chmod(found.numba_path, NEW_FOLDER_MODE)  # numba makes folders in it, whose mode depends on the umask
            return found
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
