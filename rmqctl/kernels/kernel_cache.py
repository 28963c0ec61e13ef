"""The cache of compiled kernels.

rmqctl executes what is in it. So it is a folder in which nobody else can put a file (`rmqctl.scratch`): in the user's
cache folder, or else, where the home cannot be written or belongs to somebody else, in a folder for temporary files. If
there is none, kernels are not cached.

numba does not notice changes in the source files of functions that a kernel calls, so each version of the source code
has its own cache folder.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqctl.scratch import NEW_FOLDER_MODE, open_folder, temporary_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


PACKAGE = "rmqctl.kernels."
SEAL = ".seal"


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

    def has(self, names: Iterable[str]) -> bool:
        """Return whether the cache has each of these kernels, or one of each module."""
        kernels = {file.removesuffix(SEAL) for file in os.listdir(self.numba_path) if file.endswith(SEAL)}
        modules = {name.partition(".")[0] for name in kernels}
        return {name.removeprefix(PACKAGE) for name in names} <= kernels | modules

    def check(self, name: str) -> None:
        """Delete the files of a kernel that are not as they were written.

        A damaged one could end this process, or compute something else. Raises OSError.
        """
        seal, files = self._seal(name), self._files(name)
        if files and (not seal.exists() or seal.read_bytes() != _digest(files)):
            for file in files:
                file.unlink(missing_ok=True)

    def seal(self, name: str) -> None:
        """Note what numba has written for a kernel. Raises OSError."""
        self._seal(name).write_bytes(_digest(self._files(name)))

    def source_file(self, name: str) -> str:
        """Return a path that stands for the source of a kernel without a file.

        numba wants to see a file, and calls its own by this one's name. Raises OSError.
        """
        module = f"{name.partition('.')[0]}.py"
        Path(self.numba_path, module).touch()
        return str(self.path / module)

    def _seal(self, name: str) -> Path:
        return Path(self.numba_path, f"{name}{SEAL}")

    def _files(self, name: str) -> list[Path]:
        return sorted(Path(self.numba_path).glob(f"*/{name}-*.nb[ic]"))


def kernel_name(function: Callable[..., Any]) -> str:
    """Return the name of a kernel in the cache, with which numba's files begin."""
    return f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"


def _digest(files: list[Path]) -> bytes:
    digest = blake2b()
    for file in files:
        digest.update(file.read_bytes())
    return digest.digest()


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
            mode = stat.S_IMODE(os.stat(found.numba_path).st_mode)
            if mode & ~NEW_FOLDER_MODE:  # numba makes folders in it, and the umask may let others write to them
                os.chmod(found.numba_path, NEW_FOLDER_MODE)
            return found
    return None


@cache
def _sources_digest() -> str:
    import hashlib
    from pkgutil import get_data, iter_modules

    from rmqctl import format as formats
    from rmqctl import kernels

    digest = hashlib.sha256(str(sys.version_info).encode())
    for package in (kernels, formats):  # kernels have constants of the format; in a folder, or in a zip on an executor
        names = sorted(module.name for module in iter_modules(package.__path__) if not module.ispkg)
        for name in names:
            digest.update(get_data(package.__name__, f"{name}.py") or b"")
    return digest.hexdigest()[:16]
